//! SIGTERM at every point of ADD: it is rolled back, unless it was complete.

use super::{FILTERED, GATEWAY, PLAIN, Scenario, assert_clean, assert_new, each_point};
use crate::subjects::node;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use testns::Remains;

pub(super) fn interrupted(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    let mut ends = BTreeMap::<String, usize>::new();
    each_point(&format!("ADD {} asked to end", scenario.name), |n| {
        let pod = node.container();
        let traced = scenario.add(&pod).signal_before(&node, n, Signal::SIGTERM);
        let reply = &traced.reply;
        let point = format!("{}, {n}: {:?}\n{reply}", scenario.name, traced.hit.map(|hit| hit.to_string()));
        let end = match reply.output.code() {
            0 => "finished".to_owned(),
            143 => "ended before it began".to_owned(),
            _ => format!("code {}", reply.fails().code),
        };
        if end == "finished" {
            scenario.del(&pod).prev_result(&reply.ok()).run(&node).ok();
        }
        assert_clean(&node, &point);
        assert_new(&node, &pod, &point);
        *ends.entry(end).or_default() += 1;
        pod.leave(Remains::Gone);
        traced.hit.is_some()
    });
    testns::note(&format!("ENDS {ends:?}"));
    assert!(ends.contains_key("code 109"), "{ends:?}");
    scenario.assert_addresses_are_free(&node, "after all points");
}

/// Style guide 8: a signal during ADD is another way for a step to fail.
#[test]
fn a_signalled_add_leaves_nothing() {
    interrupted(GATEWAY);
}

#[test]
fn a_signalled_add_with_filters_leaves_nothing() {
    interrupted(FILTERED);
}

/// While it waits for the store's lock, ADD holds nothing: it ends at once, and does not wait for the lock again.
#[test]
fn add_that_waits_for_the_store_ends_at_once() {
    let node = node();
    PLAIN.warm_up(&node);
    let lock = File::open("/var/lib/cni/networks/net/lock").unwrap();
    lock.lock().unwrap();
    let pod = node.container();
    let (executable, variables, config) = PLAIN.add(&pod).variable("CNI_LOG", "info").invocation(&node);
    let mut command = Command::new(executable);
    command.env_clear().envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.by_ref().lines().map_while(Result::ok);
    let waits = lines.any(|line| line.contains("another process holds the lock"));
    assert!(waits, "it has not waited for the lock");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["code"], 109, "{error}");
    assert_eq!(error["details"], "Undone: addresses released.");
    drop(lock);
    assert_clean(&node, "interrupted while it waited for the lock");
    assert_new(&node, &pod, "interrupted while it waited for the lock");
}
