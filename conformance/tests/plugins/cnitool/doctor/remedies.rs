//! What `cnitool doctor` says to do works as it is printed: a remedy that begins with a capital letter is a sentence, any other
//! is a line for a shell.

use super::cases::{cases, parse};
use super::damage::{LEFT_OVER, OTHERS};
use super::{Ward, make_old};
use crate::cnitool::{Tour, netns};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Kinds whose remedies only show more, or whose cause is elsewhere.
const SHOWING: [&str; 3] = ["config", "not-ready", "range-full"];

fn commands(findings: &[Value]) -> Vec<(&str, &str)> {
    let all = findings.iter().filter_map(|one| Some((one["kind"].as_str()?, one["remedy"].as_str()?)));
    all.filter(|(_, remedy)| remedy.starts_with(|first: char| first.is_ascii_lowercase())).collect()
}

#[test]
fn each_command_runs_as_it_is_printed_and_mends_what_it_is_for() {
    let mut count = 0;
    for case in [LEFT_OVER, OTHERS].into_iter().flat_map(cases).filter(|case| !case.contains("two-rulesets")) {
        let ward = Ward::new();
        let case = ward.tour.with_addresses(&case);
        ward.damage(parse(&case).0);
        let (_, findings) = ward.doctor(&[]);
        for (kind, command) in commands(&findings) {
            let done = ward.tour.shell(command);
            let is_showing = SHOWING.contains(&kind);
            // 2: wrong words; 126 and 127: no program. What shows an error ends with status 1.
            let is_right = |code: i32| code == 0 || is_showing && code == 1;
            assert!(done.status.code().is_some_and(is_right), "{case}: {command}: {done:?}");
            count += 1;
            if !is_showing {
                let (_, findings) = ward.doctor(&[]);
                assert!(!findings.iter().any(|finding| finding["kind"] == kind), "{case}: {command}: {findings:#?}");
            }
        }
    }
    assert!(count > 10, "{count}");
}

/// A node whose folders only options name: its remedies mean these folders, too.
#[test]
fn remedies_name_the_folders_that_the_caller_has_named() {
    let tour = Tour::with_plugins();
    let work = tour.node.work_dir();
    let conf_dir = work.join("it's here");
    fs::create_dir(&conf_dir).unwrap();
    fs::copy("/etc/cni/net.d/10-office.conflist", conf_dir.join("10-office.conflist")).unwrap();
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    let folders = [("--conf-dir", conf_dir), ("--cache-dir", work.join("cache")), ("--cni-path", tour.bin_dir.clone())];
    let folders = folders.map(|(option, folder)| [option.to_owned(), folder.display().to_string()]).concat();
    let run = |words: &[&str]| {
        let words = words.iter().copied().chain(folders.iter().map(String::as_str));
        Command::new(tour.bin_dir.join("cnitool")).args(words).env_clear().output().unwrap()
    };
    let pod = tour.node.container();
    assert!(run(&["add", "office", &netns(&pod)]).status.success());
    tour.lose(&pod);
    make_old(&Path::new("/var/lib/cni/networks/office").join(tour.address(2)));
    let doctor = || -> Vec<Value> { serde_json::from_slice(&run(&["doctor", "--json"]).stdout).unwrap() };
    let remedy =
        |findings: &[Value]| findings.iter().find(|it| it["kind"] == "leftover").map(|it| it["remedy"].clone());
    let remedy = remedy(&doctor()).unwrap();
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tour.bin_dir.display());
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", remedy.as_str().unwrap()]).env_clear().env("PATH", path).output().unwrap();
    assert!(done.status.success(), "{remedy}: {done:?}");
    assert_eq!(doctor(), [Value::Null; 0], "after {remedy}");
}
