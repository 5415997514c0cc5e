//! The command line.

use crate::kit::{check, run};

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
    assert!(again.starts_with("cni-conformance runtime --rule call.args --driver /"), "{again}");
    assert!(again.ends_with("/mini-runtime"), "{again}");
    let calls = checked.trials[0]["calls"].as_array().unwrap();
    assert_eq!(calls[0]["arguments"][0], "ADD");
    assert!(calls[1]["executable"].as_str().unwrap().ends_with("/kit-mock-a"), "{}", calls[1]);
}
