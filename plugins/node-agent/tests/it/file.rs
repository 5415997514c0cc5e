//! The network's file: when it is written, and that it is whole at any moment.

use crate::bench::{AGENT, Bench, FILE, wait_for_range, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;
use testns::trace::Program;

fn mode() -> u32 {
    fs::metadata(FILE).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_given_range_is_written_once_with_the_wanted_permissions() {
    let bench = Bench::new();
    let once = |words: &[&str]| {
        let mut command = bench.command(&[&["--once"], words].concat());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    once(&["--cidr", "10.1.0.0/24", "--cidr", "fd00:1::/64"]);
    let network: Value = serde_json::from_slice(&fs::read(FILE).unwrap()).unwrap();
    let ipam = &network["plugins"][0]["ipam"];
    assert_eq!(ipam["ranges"].to_string(), r#"[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]]"#);
    assert_eq!(ipam["routes"].to_string(), r#"[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]"#);
    assert_eq!(mode(), 0o600);
    let first = fs::metadata(FILE).unwrap();
    // The same content: the file stays the same one, and only its permissions change.
    once(&["--cidr", "10.1.0.0/24", "--cidr", "fd00:1::/64", "--mode", "0644"]);
    let second = fs::metadata(FILE).unwrap();
    assert_eq!((first.ino(), first.mtime_nsec()), (second.ino(), second.mtime_nsec()));
    assert_eq!(mode(), 0o644);
    bench.write("template", include_str!("../../templates/one-family.conflist"));
    once(&["--cidr", "fd00:1::/64"]);
    let network: Value = serde_json::from_slice(&fs::read(FILE).unwrap()).unwrap();
    assert_eq!(network["plugins"][0]["ipam"]["ranges"].to_string(), r#"[[{"subnet":"fd00:1::/64"}]]"#);
}

#[test]
fn a_file_that_is_lost_or_changed_is_written_again() {
    let bench = Bench::new();
    bench.write("cidrs", "# of this node\n10.1.0.0/24\n");
    let cidrs = bench.path("cidrs").display().to_string();
    let agent = bench.start(&["--cidr-file", &cidrs]);
    wait_for_range("10.1.0.0/24");
    fs::remove_file(FILE).unwrap();
    wait_for_range("10.1.0.0/24");
    for content in ["{", "10"] {
        fs::write(FILE, content).unwrap();
        wait_for_range("10.1.0.0/24");
    }
    bench.write("template", &crate::bench::TEMPLATE.replace("pods0", "pods1"));
    wait_until("the new template counts", || fs::read_to_string(FILE).unwrap().contains("pods1"));
    bench.write("cidrs", "10.1.7.0/24\n");
    wait_for_range("10.1.7.0/24");
    agent.end();
    wait_for_range("10.1.7.0/24");
}

#[test]
fn a_template_that_makes_no_network_changes_nothing_and_is_named_with_its_line() {
    let bench = Bench::new();
    let mut agent = bench.start(&["--cidr", "10.1.0.0/24"]);
    wait_for_range("10.1.0.0/24");
    for (template, wanted) in [
        ("{\n{{.Node}}", ":2: {{.Node}} is not supported"),
        ("{{.PodCIDR}}", "makes no network for 10.1.0.0/24"),
        (r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": []}"#, "no plugins in list"),
        (r#"{"cniVersion": "1.0.0", "name": "a/b", "plugins": [{"type": "bridge"}]}"#, "a/b"),
    ] {
        bench.write("template", template);
        agent.0.wait_for(wanted);
        assert!(fs::read_to_string(FILE).unwrap().contains("10.1.0.0/24"));
    }
    agent.end();
}

/// Killed before each state-changing system call, with a file of a former range and without any: the file is the former one or the new one.
#[test]
fn a_kill_at_any_system_call_leaves_a_whole_file() {
    let mut kills = 0;
    for is_replaced in [false, true] {
        for n in 1.. {
            let bench = Bench::new();
            let before = bench.command(&["--once", "--cidr", "10.1.0.0/24"]);
            let former = is_replaced.then(|| {
                { before }.output().unwrap();
                fs::read_to_string(FILE).unwrap()
            });
            let words =
                ["--template", &bench.path("template").display().to_string(), "--once", "--cidr", "10.1.1.0/24"];
            let program = Program {
                executable: AGENT.as_ref(),
                arguments: &words.map(str::to_owned),
                environment: &[],
                stdin: "",
                deadline: Duration::from_secs(60),
            };
            let hit = program.kill_before(&bench.node, n);
            let found = fs::read_to_string(FILE).ok();
            let is_new = found.as_ref().is_some_and(|text| {
                serde_json::from_str::<Value>(text).unwrap();
                text.contains("10.1.1.0/24")
            });
            assert!(is_new || found == former, "killed before {hit:?}: {found:?}");
            assert!(bench.command(&["--once", "--cidr", "10.1.1.0/24"]).status().unwrap().success());
            let names = fs::read_dir("/etc/cni/net.d").unwrap().map(|entry| entry.unwrap().file_name());
            let hidden = names.filter(|name| name.to_string_lossy().ends_with(".new")).count();
            assert!(fs::read_to_string(FILE).unwrap().contains("10.1.1.0/24") && hidden == 0, "killed before {hit:?}");
            if hit.is_none() {
                assert!(is_new);
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 8, "{kills}");
}

#[test]
fn a_second_agent_of_a_folder_waits_for_the_end_of_the_first() {
    let bench = Bench::new();
    let mut first = bench.start(&["--cidr", "10.1.0.0/24"]);
    wait_for_range("10.1.0.0/24");
    let mut second = bench.start(&["--cidr", "10.1.1.0/24"]);
    second.0.wait_for(&format!("process {}", first.0.id()));
    let mut third = bench.start(&["--cidr", "10.1.2.0/24"]);
    third.0.wait_for("this one waits until it ends");
    // A waiting agent ends in time, too.
    third.end();
    assert!(fs::read_to_string(FILE).unwrap().contains("10.1.0.0/24"));
    first.0.end(Signal::SIGKILL);
    wait_for_range("10.1.1.0/24");
    second.end();
}

#[test]
fn arguments_that_cannot_be_used_end_the_agent() {
    let bench = Bench::new();
    for (words, wanted) in [
        (["--cidr", "10.1.0.1/24"], "bits of a host"),
        (["--mode", "0666"], "[possible values: 0600, 0644]"),
        (["--kubeconfig", "/none"], "cannot use kubeconfig /none"),
        (["--watch-seconds", "0"], "0 is not in"),
    ] {
        let output = bench.command(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(wanted), "{words:?}: {text}");
    }
    let both = bench.command(&["--cidr", "10.1.0.0/24", "--routes"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    assert!(!fs::exists(FILE).unwrap());
}
