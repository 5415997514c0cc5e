//! Every example of `--help` and of the man pages of verbs, run as it is printed, one after the other on one node.

use crate::subjects::ours;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use testns::Subject;

/// The node, and what an example finds there that others have changed. Arguments: the three executables, a folder, the examples.
const NODE: &str = include_str!("examples_of_help_and_man.sh");

const OF_HELP: &str = "Examples:\n";
const OF_PAGE: &str = ".SH EXAMPLES\n.nf\n";

/// The examples in the text of `--help` or of a page, below this heading, a command each.
fn examples(heading: &str, text: &str) -> Vec<String> {
    let Some((_, below)) = text.split_once(heading) else { return Vec::new() };
    let mut commands: Vec<String> = Vec::new();
    for line in below.lines().take_while(|line| line.starts_with("  ")) {
        let goes_on = |command: &String| command.ends_with('\\') || command.matches('\'').count() % 2 == 1;
        match commands.last_mut().filter(|command| goes_on(command)) {
            Some(command) => *command += &format!("\n{}", line.trim()),
            None if line.trim().starts_with('#') => {}
            None => commands.push(line.trim().to_owned()),
        }
    }
    commands
}

/// The characters that a page in the language of man(7) shows.
fn shown(page: &str) -> String {
    page.replace(r"\*(Aq", "'").replace(r"\-", "-").replace(r"\\", r"\")
}

fn cnitool(words: &[&str]) -> String {
    let output = Command::new(testns::cnitool()).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs, in the order of the help of the whole program: those that look after those that add.
fn verbs() -> Vec<String> {
    let help = cnitool(&["--help"]);
    let verb = |line: &str| line.strip_prefix("  ").and_then(|line| line.split(' ').next()).map(str::to_owned);
    let verbs = help.lines().take_while(|line| *line != "Options:").filter_map(verb);
    verbs.filter(|verb| verb.chars().all(|c| c.is_ascii_lowercase()) && !verb.is_empty() && verb != "help").collect()
}

fn pages() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    cnitool(&["generate", "man", dir.path().to_str().unwrap()]);
    dir
}

#[test]
fn every_example_of_help_and_man_pages_works_as_printed() {
    let Subject::Multicall(plugins) = ours() else { panic!("ours is one executable") };
    let (pages, opt) = (pages(), tempfile::tempdir().unwrap());
    let mut commands = examples(OF_HELP, &cnitool(&["--help"]));
    for verb in verbs().into_iter().chain(["cluster forget".to_owned()]) {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let of_help = examples(OF_HELP, &cnitool(&words));
        let page = format!("man1/cnitool-{}.1", verb.replace(' ', "-"));
        let page = fs::read_to_string(pages.path().join(page)).unwrap();
        assert_eq!(examples(OF_PAGE, &shown(&page)), of_help, "{verb}");
        assert!(!of_help.is_empty(), "{verb} has no example");
        commands.extend(of_help);
    }
    let mut seen = BTreeSet::new();
    commands.retain(|command| seen.insert(command.clone()));
    // `cargo test` without --workspace does not build it.
    let cluster = testns::cnitool().with_file_name("cluster");
    if !cluster.exists() {
        crate::subjects::skip("examples of cnitool cluster: the plugin is not built (cargo build -p cni-cluster)");
        commands.retain(|command| !command.starts_with("cnitool cluster "));
    }
    let mut sh = Command::new("unshare");
    sh.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--propagation",
        "private",
        "sh",
        "-c",
        NODE,
        "sh",
    ]);
    sh.args([testns::cnitool(), plugins.as_path(), &cluster, opt.path()]).args(&commands);
    let output = sh.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("ran {}\n", commands.len()), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(commands.len() > 35, "{}", commands.len());
}
