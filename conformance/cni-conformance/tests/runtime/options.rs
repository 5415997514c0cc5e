//! The command line.

use crate::run_kit::{MINI, check, driver, run};
use serde_json::json;

#[test]
fn a_command_without_a_driver_is_told_what_to_do() {
    let output = run(&["--", "/bin/true"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "cni-conformance: there is no driver for /bin/true: describe it with --driver FILE\n");
}

#[test]
fn a_rule_that_is_not_there_is_told() {
    let output = run(&["--rule", "chain.add-in-oder", "--", "cnitool"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("did you mean chain.add-in-order"), "{stderr}");
}

#[test]
fn a_command_that_is_not_there_is_told() {
    let output = run(&["--", "there-is-no-such-runtime"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "cni-conformance: there is no executable there-is-no-such-runtime\n"
    );
}

#[test]
fn a_failure_can_be_tried_again_alone() {
    let checked = check("args", &["--rule", "call.args"]);
    assert_eq!(checked.status, Some(1));
    let again = checked.trials[0]["again"].as_str().unwrap().to_owned();
    assert!(
        again.starts_with(concat!(env!("CARGO_BIN_EXE_cni-conformance"), " runtime --rule call.args --driver /")),
        "{again}"
    );
    assert!(again.contains(" --seed ") && again.ends_with("/mini-runtime"), "{again}");
    let calls = checked.trials[0]["calls"].as_array().unwrap();
    assert_eq!(calls[0]["arguments"][0], "ADD");
    assert!(calls[1]["executable"].as_str().unwrap().ends_with("/kit-mock-a"), "{}", calls[1]);
}

/// A reader of the table sees what was not asked, and why.
#[test]
fn exemptions_show_in_the_table_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = (folder.path().join("driver.json"), folder.path().join("report"));
    let mut exempt = driver("");
    exempt["unbound"] =
        json!({ "lifecycle.del-twice": "it ends once", "config.search-order/second": "it has one folder" });
    std::fs::write(&file, exempt.to_string()).unwrap();
    let target = format!("terminal={}", report.display());
    let rules = ["--rule", "lifecycle.del-twice", "--rule", "config.search-order"];
    let words = ["--driver", file.to_str().unwrap(), "--report", &target, "--", MINI];
    let output = run(&[&rules[..], &words].concat());
    let text = std::fs::read_to_string(&report).unwrap();
    let row = |id: &str| text.lines().find(|line| line.trim_start().starts_with(id)).unwrap_or_default().to_owned();
    assert!(row("config.search-order").ends_with("pass 1, exempt 1"), "{text}");
    assert!(row("lifecycle.del-twice").ends_with("exempt 1"), "{text}");
    for (why, rule) in [("it ends once", "lifecycle.del-twice"), ("it has one folder", "config.search-order")] {
        assert!(text.contains(&format!("exempt: 1 trial of {rule}: {why} (")), "{rule}: {text}");
    }
    assert!(text.contains("3 trials: 1 pass, 0 fail, 0 skip, 0 not tried, 2 exempt"), "{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
}

/// A word that a runtime does not know has it print its usage, which is no GC.
#[test]
fn a_verb_that_prints_usage_is_no_verb() {
    let folder = tempfile::tempdir().unwrap();
    let (file, wrapper) = (folder.path().join("driver.json"), folder.path().join("usage"));
    testns::write_executable(
        &wrapper,
        format!("#!/bin/sh\n[ \"$1\" != GC ] || {{ echo 'usage: add, del'; exit 0; }}\nexec {MINI} \"$@\"\n"),
    )
    .unwrap();
    std::fs::write(&file, driver("").to_string()).unwrap();
    let rules =
        ["chain.gc-is-no-del", "chain.gc-disabled", "chain.no-gc-before-1.1.0"].map(|rule| ["--rule", rule]).concat();
    let words = ["--driver", file.to_str().unwrap(), "--report", "terminal", "--", wrapper.to_str().unwrap()];
    let output = run(&[&rules[..], &words].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(": 0 pass, 0 fail, 3 skip") && text.contains("calls no plugin"), "{text}");
}

/// With `--list-rules` too, which tries nothing.
#[test]
fn a_driver_with_a_misspelt_rule_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driver.json");
    let mut wrong = driver("");
    wrong["unbound"] = json!({ "lifecycle.dell-twice": "why" });
    std::fs::write(&file, wrong.to_string()).unwrap();
    let words = ["--driver", file.to_str().unwrap(), "--", MINI];
    for words in [&words[..], &[&["--list-rules"], &words[..]].concat()] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean lifecycle.del-twice"));
    }
}
