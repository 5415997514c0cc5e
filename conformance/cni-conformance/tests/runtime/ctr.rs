//! `ctr`, whose run lasts as long as its container, and the daemon that it needs; podman, which makes containers of its own.

use crate::run_kit::run;
use serde_json::Value;
use std::path::Path;

/// The kit's examples of drivers.
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/runtimes");

/// Tries `rules` on a runtime, if it is installed with its programs. Some have to pass, and one is broken, as these runtimes do.
fn is_driven(runtime: &str, driver: &str, programs: &[&str], rules: &[&str], passed: &[&str]) {
    if let Some(program) = programs.iter().find(|name| !Path::new("/usr/bin").join(name).exists()) {
        return testns::skip(&format!("{runtime}_is_driven"), &format!("{program} is not installed"));
    }
    let driver = format!("{DRIVERS}/{driver}");
    let rules = rules.iter().flat_map(|rule| ["--rule", rule]);
    let words: Vec<_> = rules.chain(["--report", "json", "--driver", &driver, "--", runtime]).collect();
    let document: Value = serde_json::from_slice(&run(&words).stdout).unwrap();
    let with = |verdict: &str| {
        let trials = document["trials"].as_array().unwrap().iter().filter(|trial| trial["verdict"] == verdict);
        let mut rules: Vec<_> = trials.map(|trial| trial["rule"].as_str().unwrap()).collect();
        rules.dedup();
        // On a busy machine plugins sometimes inherit a descriptor of podman's storage.
        rules.retain(|rule| runtime != "podman" || *rule != "call.no-other-files");
        rules
    };
    let has_passed = with("pass");
    for rule in passed.iter().chain(&["call.command", "call.netns", "call.path", "chain.del-in-reverse"]) {
        assert!(has_passed.contains(rule), "{rule}: {document:#}");
    }
    assert_eq!((with("fail"), with("broken")), (vec!["chain.del-stops-at-error"], vec![]), "{document:#}");
}

#[test]
fn ctr_is_driven() {
    let programs = ["ctr", "containerd", "containerd-shim-runc-v2", "crun"];
    let own = ["lifecycle.del-after-failed-add", "lifecycle.containers-in-parallel"];
    let rules = [&["call.", "chain.add", "chain.del"][..], &own].concat();
    let passed = [&["chain.add-in-order", "chain.add-stops-at-error", "chain.del-has-result"][..], &own].concat();
    is_driven("ctr", "ctr-1.json", &programs, &rules, &passed);
}

#[test]
fn podman_is_driven() {
    let passed = ["chain.add-in-order", "chain.del-has-result"];
    is_driven("podman", "podman-4.json", &["podman", "crun", "conmon"], &["call.", "chain.add", "chain.del"], &passed);
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
