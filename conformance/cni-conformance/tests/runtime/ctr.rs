//! `ctr`, whose run lasts as long as its container, and the daemon that it needs.

use crate::run_kit::run;
use serde_json::Value;
use std::path::Path;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/runtimes/ctr-1.json");

/// The trials of these rules, or `None` where it is not installed.
fn trials(test: &str, rules: &[&str]) -> Option<Vec<Value>> {
    let programs =
        ["/usr/bin/ctr", "/usr/bin/containerd", "/usr/bin/containerd-shim-runc-v2", "/usr/bin/crun"].map(Path::new);
    if let Some(program) = programs.iter().find(|program| !program.exists()) {
        testns::skip(test, &format!("{} is not installed", program.display()));
        return None;
    }
    let rules = rules.iter().flat_map(|rule| ["--rule", rule]);
    let words: Vec<_> = rules.chain(["--report", "json", "--driver", DRIVER, "--", "ctr"]).collect();
    let mut document: Value = serde_json::from_slice(&run(&words).stdout).unwrap();
    let Value::Array(trials) = document["trials"].take() else { panic!("no trials: {document}") };
    Some(trials)
}

/// Rules with a trial of that verdict.
fn with<'a>(trials: &'a [Value], verdict: &str) -> Vec<&'a str> {
    let is_it = |trial: &&Value| trial["verdict"] == verdict;
    let mut rules: Vec<_> = trials.iter().filter(is_it).map(|trial| trial["rule"].as_str().unwrap()).collect();
    rules.dedup();
    rules
}

#[test]
fn ctr_is_driven() {
    let rules =
        ["call.", "chain.add", "chain.del", "lifecycle.del-after-failed-add", "lifecycle.containers-in-parallel"];
    let Some(trials) = trials("ctr_is_driven", &rules) else { return };
    let passed = with(&trials, "pass");
    for rule in [
        "call.command",
        "call.netns",
        "call.path",
        "chain.add-in-order",
        "chain.add-stops-at-error",
        "chain.del-in-reverse",
        "chain.del-has-result",
        "lifecycle.containers-in-parallel",
        "lifecycle.del-after-failed-add",
    ] {
        assert!(passed.contains(&rule), "{rule}: {trials:#?}");
    }
    assert_eq!(
        (with(&trials, "fail"), with(&trials, "broken")),
        (vec!["chain.del-stops-at-error"], vec![]),
        "{trials:#?}"
    );
}

#[test]
fn a_program_that_is_missing_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driver.json");
    let driver = r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"programs":["there-is-no-such-daemon"]}"#;
    std::fs::write(&file, driver).unwrap();
    let output = run(&["--driver", file.to_str().unwrap(), "--", "/bin/sh"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), stderr.contains("there-is-no-such-daemon, which x needs")),
        (Some(2), true),
        "{stderr}"
    );
}

#[test]
fn a_daemon_that_does_not_start_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driver.json");
    let driver = r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"daemon":["/bin/sh","-c","echo no such option >&2"]}"#;
    std::fs::write(&file, driver).unwrap();
    let words = ["--rule", "chain.add-in-order", "--driver", file.to_str().unwrap(), "--", "/bin/sh"];
    let output = run(&words);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), stdout.contains("no such option")), (Some(3), true), "{stdout}");
}
