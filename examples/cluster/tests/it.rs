//! The output of the example.

#![allow(missing_docs, reason = "a test's name is its documentation")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::process::Command;

#[test]
fn three_nodes_give_distinct_addresses_and_their_pods_reach_each_other() {
    let output = Command::new(env!("CARGO_BIN_EXE_cluster-example")).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 120), "{text}");
    for expected in [
        "12 pods, none twice",
        "132 of 132 answers",
        "addresses are in no run",
        "Without the store: 4 more pods on node1",
        "node node3 is forgotten",
        "no address in two",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}
