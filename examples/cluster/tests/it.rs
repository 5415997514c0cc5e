//! The output of the example.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::process::Command;

/// Runs the example; its output, or none where etcd is wanted and not there.
fn run(test: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_cluster-example")).args(words).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    if errors.contains("packages etcd-server") {
        testns::skip(test, errors.trim());
        return None;
    }
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 140), "{text}");
    Some(text)
}

fn assert_steps(text: &str) {
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

#[test]
fn three_nodes_give_distinct_addresses_and_their_pods_reach_each_other() {
    assert_steps(&run("three_nodes", &[]).unwrap());
}

#[test]
fn on_etcd_the_steps_are_the_same() {
    let Some(text) = run("on_etcd_the_steps_are_the_same", &["--etcd"]) else { return };
    assert!(text.contains("etcd with three members"), "{text}");
    assert_steps(&text);
}

/// The published case in small. README.md has the command and the figures of ten nodes with a hundred pods each.
#[test]
fn a_range_of_exactly_the_pods_is_enough_while_the_leader_is_killed_and_all_pods_reach_each_other() {
    let words = ["--etcd", "--nodes", "3", "--pods", "10", "--kill-leader"];
    let Some(text) = run("a_range_of_exactly_the_pods_is_enough", &words) else { return };
    for expected in [
        "30 pods on 3 nodes, 30 addresses, none twice",
        "870 of 870 answers",
        "30 addresses, each answered by the one pod",
        "no address in two",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}
