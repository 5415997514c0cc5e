//! Every system call fails in turn, once or each time, as under seccomp or at a limit: the start of the runtime and the calls of a
//! foreign address plugin, too. No call panics, each answers, and DEL removes what is left.
//!
//! A part of the points is tried; `EVERY_CALL=1` has all tried.

use super::rollback::is_reply;
use super::{GATEWAY, PTP_DUAL, Scenario, assert_clean, inside_links};
use crate::configs::with;
use faults::settings;
use nix::errno::Errno;
use nix::libc;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use testns::trace::{Fate, Program, Syscall};
use testns::{Call, Container, Node, Output, Remains, Verb};

/// What seccomp and limits answer.
const ERRNOS: [Errno; 7] =
    [Errno::EMFILE, Errno::ENFILE, Errno::EPERM, Errno::EACCES, Errno::ENOSYS, Errno::ENOMEM, Errno::EINVAL];

/// An address plugin of another make, which runs as a process.
const FOREIGN: Scenario = Scenario {
    name: "foreign address plugin",
    config: || with((GATEWAY.config)(), json!({"ipam": with(super::one_each(), json!({"type": "foreign"}))})),
    ..GATEWAY
};

/// A node with the script of the foreign plugin, which has had a container.
fn node(scenario: Scenario) -> Node {
    let node = scenario.node();
    let script = "#!/bin/sh\nexec \"${0%/*}/host-local\"\n";
    testns::write_executable(node.bin_dir().join("foreign"), script).unwrap();
    scenario.warm_up(&node);
    node
}

/// Calls that do not fail. Without memory, and before `main`, the C library ends the process. Rust's hash maps do without random
/// numbers only where each call for them fails. Linux releases a descriptor whatever close(2) answers, but a call that is not
/// made leaves it open, and a delegate that reads its stdin to the end then takes the whole of its time.
const SPARED: &[i64] = &[
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigreturn,
];

/// The points to try of a call that makes these system calls.
fn points(calls: &[Syscall], stride: usize) -> Vec<(usize, Fate)> {
    let is_all = settings::number("EVERY_CALL").is_some();
    let once = (1..=calls.len()).filter(|n| !SPARED.contains(&calls[n - 1].number));
    let once = once.map(|n| (n, Fate::FailAny(ERRNOS[n % ERRNOS.len()], SPARED)));
    let numbers: BTreeSet<i64> =
        calls.iter().map(|call| call.number).filter(|number| !SPARED.contains(number)).collect();
    let denied = numbers.iter().enumerate();
    let denied = denied.map(|(place, number)| (1, Fate::Deny(*number, ERRNOS[place % ERRNOS.len()])));
    let no_random = [Errno::EPERM, Errno::ENOSYS].map(|errno| (1, Fate::Deny(libc::SYS_getrandom, errno)));
    let all = once.chain(denied).chain(no_random).enumerate();
    all.filter(|(place, _)| is_all || place % stride == 0).map(|(_, point)| point).collect()
}

/// Checks that the process has answered: with status 0, or an error.
#[track_caller]
fn assert_answered(output: &Output, hit: Option<Syscall>, is_cnitool: bool, point: &str) {
    // Rust's own start, which cnitool has, asks for its streams, ignores SIGPIPE, and aborts where it cannot.
    let is_start = |hit: Syscall| match hit.number {
        libc::SYS_poll => hit.arguments[1] == 3,
        libc::SYS_rt_sigaction => hit.arguments[0] == libc::SIGPIPE as u64,
        _ => false,
    };
    if is_cnitool && hit.is_some_and(is_start) {
        return;
    }
    let text = format!("{point}: {hit:?}: {}\n{}\n{}", output.status, output.stdout, output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 101), "{text}");
    // tokio wakes itself by eight bytes, and panics where it cannot; the plugin rolls back.
    let is_wake = hit.is_some_and(|hit| hit.number == libc::SYS_write && hit.arguments[2] == 8);
    assert!(is_wake || !output.stdout.contains("fault in plugin"), "{text}");
    // An answer that cannot be written is none.
    if is_cnitool || hit.as_ref().is_some_and(is_reply) {
        return;
    }
    match output.code() {
        0 => assert!(output.stdout.is_empty() || serde_json::from_str::<Value>(&output.stdout).is_ok(), "{text}"),
        _ => {
            let error: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
            assert!(error["code"].as_u64() > Some(0) && error["msg"] != "", "{text}");
        }
    }
}

/// Fails each call of a verb. `make` gives the call, `undo` removes what it and the calls before it have made.
fn each(scenario: Scenario, verb: Verb, stride: usize) {
    let node = node(scenario);
    let call = |pod: &Container| Call::new(verb, (scenario.config)(), pod);
    let begin = || {
        let pod = node.container_without_probes();
        let result = (verb != Verb::Add).then(|| scenario.add(&pod).run(&node).ok());
        let call = match &result {
            Some(result) => call(&pod).prev_result(result),
            None => call(&pod),
        };
        (pod, call)
    };
    let end = |pod: Container, point: &str| {
        let reply = scenario.del(&pod).run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        assert_eq!(inside_links(&pod), ["lo"], "{point}: left in the container");
        pod.leave(Remains::Gone);
        assert_clean(&node, point);
    };
    let (pod, traced) = begin();
    let traced = traced.trace(&node);
    assert_eq!(traced.reply.output.code(), 0, "{}", traced.reply);
    end(pod, "none");
    let all = points(&traced.calls, stride);
    testns::note(&format!(
        "POINTS {verb:?} {}, any call failing: {} of {}",
        scenario.name,
        all.len(),
        traced.calls.len()
    ));
    for (n, fate) in all {
        let (pod, call) = begin();
        let point = format!("{verb:?} {}, {n}, {fate:?}", scenario.name);
        let failed = call.try_traced(&node, Some((n, fate)));
        let failed = failed.unwrap_or_else(|| panic!("{point}, {:?}: no end", traced.calls.get(n - 1)));
        let is_silent = matches!(fate, Fate::Deny(libc::SYS_write | libc::SYS_writev, _));
        assert_answered(&failed.reply.output, failed.hit, is_silent, &point);
        end(pod, &format!("{point}\n{}", failed.reply));
    }
}

#[test]
fn add_answers_whatever_call_fails() {
    each(GATEWAY, Verb::Add, 19);
    each(FOREIGN, Verb::Add, 37);
    each(PTP_DUAL, Verb::Add, 83);
}

#[test]
fn del_answers_whatever_call_fails() {
    each(GATEWAY, Verb::Del, 19);
    each(FOREIGN, Verb::Del, 37);
}

#[test]
fn check_answers_whatever_call_fails() {
    each(GATEWAY, Verb::Check, 19);
    each(FOREIGN, Verb::Check, 37);
}

#[test]
fn status_answers_whatever_call_fails() {
    each(FOREIGN, Verb::Status, 19);
}

/// The verbs of the command line; an ADD is followed by DEL.
#[test]
fn cnitool_ends_with_an_error_whatever_call_fails() {
    let node = node(FOREIGN);
    let plugin = (FOREIGN.config)();
    let network = json!({"cniVersion": plugin["cniVersion"], "name": plugin["name"], "plugins": [plugin]});
    std::fs::create_dir_all("/etc/cni/net.d").unwrap();
    std::fs::write("/etc/cni/net.d/10-net.conflist", network.to_string()).unwrap();
    let bin = node.bin_dir().display().to_string();
    let environment = [("CNI_PATH", bin.as_str()), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let run = |words: &[&str], fate: Option<(usize, Fate)>| {
        let arguments: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let (executable, deadline) = (testns::cnitool(), Duration::from_secs(60));
        let program = Program { executable, arguments: &arguments, environment: &environment, stdin: "", deadline };
        program.with_fate(&node, fate).unwrap_or_else(|| panic!("{words:?}, {fate:?}: no end"))
    };
    for (verb, stride) in [
        ("add", 61),
        ("check", 61),
        ("del", 61),
        ("status", 61),
        ("gc", 61),
        ("version", 2003),
        ("attachments", 31),
        ("doctor", 997),
    ] {
        let pod = node.container_without_probes();
        let attachment = pod.attachment();
        let of_pod = ["net", &attachment.netns, "--container-id", &attachment.container_id];
        let words = |verb: &'static str| match verb {
            "add" | "check" | "del" => [&[verb], &of_pod[..]].concat(),
            "gc" | "status" => vec![verb, "net"],
            verb => vec![verb],
        };
        let all = |verb| run(&words(verb), None);
        let prepare = || {
            if matches!(verb, "check" | "del" | "gc") {
                assert_eq!(all("add").output.code(), 0);
            }
        };
        let end = |point: &str| {
            let del = all("del").output;
            assert_eq!(del.code(), 0, "{point}: {}", del.stderr);
            assert_eq!(inside_links(&pod), ["lo"], "{point}: left in the container");
        };
        prepare();
        let traced = all(verb);
        end(verb);
        let points = points(&traced.calls, stride);
        testns::note(&format!("POINTS cnitool {verb}, any call failing: {} of {}", points.len(), traced.calls.len()));
        for (n, fate) in points {
            prepare();
            let point = format!("cnitool {verb}, {n}, {fate:?}");
            let traced = run(&words(verb), Some((n, fate)));
            assert_answered(&traced.output, traced.hit, true, &point);
            end(&format!("{point}\n{}", traced.output.stderr));
        }
        pod.leave(Remains::Gone);
    }
}
