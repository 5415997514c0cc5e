//! Calls under ptrace.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use testns::trace::{Fate, Program, Syscall};
use testns::{Attachment, Call, Node, Subject, Verb};

use crate::calls::script;

/// Three files, made by the shell itself, the second in a child.
const FILES: &str = r#"
: > /run/testns/one
(: > /run/testns/two)
: > /run/testns/three
echo '{"cniVersion":"1.1.0"}'
"#;

fn there(node: &Node) -> Vec<&'static str> {
    let names = ["one", "two", "three"];
    names.into_iter().filter(|name| node.work_dir().join(name).exists()).collect()
}

fn call() -> Call {
    Call::new(Verb::Add, "{}", Attachment::none()).plugin("files")
}

#[test]
fn a_trace_counts_across_processes() {
    let node = Node::new();
    script(&node, "files", FILES);
    let traced = call().trace(&node);
    assert!(traced.hit.is_none());
    let creations = traced.changes().filter(|call| call.name() == "openat").count();
    assert_eq!(creations, 3, "{:?}", traced.counts());
    assert_eq!(traced.counts()["exit_group"], 2);
    assert_eq!(traced.reply.ok()["cniVersion"], "1.1.0");
    assert_eq!(there(&node), ["one", "two", "three"]);
}

#[test]
fn a_kill_leaves_what_was_done_before() {
    let mut seen = Vec::new();
    for n in 1.. {
        let node = Node::new();
        script(&node, "files", FILES);
        let traced = call().kill_before(&node, n);
        let now = there(&node);
        assert!(seen.last().is_none_or(|before: &Vec<_>| now.starts_with(before)));
        seen.push(now);
        if traced.hit.is_none() {
            traced.reply.ok();
            break;
        }
        assert_eq!(traced.reply.output.code(), 137);
    }
    seen.dedup();
    let steps: [&[&str]; 4] = [&[], &["one"], &["one", "two"], &["one", "two", "three"]];
    assert_eq!(seen, steps);
}

#[test]
fn a_failure_is_returned_and_nothing_done() {
    let node = Node::new();
    script(&node, "files", FILES);
    let traced = call().trace(&node);
    let first = traced.changes().position(|call| call.name() == "openat").unwrap() + 1;
    for name in there(&node) {
        fs::remove_file(node.work_dir().join(name)).unwrap();
    }
    let failed = call().try_traced(&node, Some((first, Fate::Fail(Errno::ENOSPC)))).unwrap();
    assert_eq!(failed.hit.map(|call| call.name()).unwrap(), "openat");
    let stderr = &failed.reply.output.stderr;
    assert!(stderr.to_lowercase().contains("no space left"), "{stderr}");
    assert!(!there(&node).contains(&"one"));
}

#[test]
fn a_shortened_write_writes_half() {
    let node = Node::new();
    script(&node, "files", "printf 12345678");
    let is_answer = |call: &Syscall| call.name() == "write" && call.arguments[0] == 1;
    let traced = call().try_traced(&node, Some((1, Fate::ShortenWhere(is_answer)))).unwrap();
    assert_eq!(traced.hit.map(|call| call.name()).unwrap(), "write");
    let stdout = &traced.reply.output.stdout;
    assert!(stdout.starts_with("1234"), "{stdout}");
    assert!(traced.eligible > 1 || stdout == "1234", "the rest was written without another call: {stdout}");
}

#[test]
fn threads_of_the_reference_are_followed() {
    let Some(reference) = Subject::reference_or_skip("threads_of_the_reference_are_followed") else { return };
    let config = r#"{"cniVersion":"1.0.0","name":"n","type":"host-local","ipam":{"type":"host-local",
        "subnet":"10.7.0.0/24"}}"#;
    let node = Node::with(&reference);
    let pod = node.container();
    let traced = Call::new(Verb::Add, config, &pod).trace(&node);
    let mut pids: Vec<_> = traced.calls.iter().map(|call| call.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() > 1, "Go starts threads");
    assert_eq!(traced.reply.ok()["ips"][0]["address"], "10.7.0.2/24");
    assert!(fs::exists("/var/lib/cni/networks/n/10.7.0.2").unwrap());

    let half = traced.changes().count() / 2;
    let other = Call::new(Verb::Add, config, &node.container()).kill_before(&node, half);
    assert!(other.hit.is_some());
    assert_eq!(other.reply.output.code(), 137);
}

#[test]
fn a_refused_message_is_the_kernels_refusal() {
    let Some(reference) = Subject::reference_or_skip("a_refused_message_is_the_kernels_refusal") else { return };
    let config = r#"{"cniVersion":"1.0.0","name":"n","type":"bridge"}"#;
    let count = {
        let node = Node::with(&reference);
        let traced = Call::new(Verb::Add, config, &node.container()).trace(&node);
        traced.reply.ok();
        let words: Vec<_> = traced.messages.iter().map(ToString::to_string).collect();
        assert!(words.contains(&"RTM_NEWLINK".to_owned()), "{words:?}");
        words.len()
    };
    let node = Node::with(&reference);
    let refused = Call::new(Verb::Add, config, &node.container()).refuse(&node, 1);
    assert!(refused.hit.is_some());
    assert!(refused.reply.fails().msg.contains("operation not supported"), "{}", refused.reply);
    assert!(node.host().find_link("cni0").is_none());
    let beyond = Call::new(Verb::Add, config, &node.container()).refuse(&node, count + 10);
    assert!(beyond.hit.is_none());
    beyond.reply.ok();
}

#[test]
fn a_signal_reaches_the_plugin_at_its_point() {
    let node = Node::new();
    script(&node, "files", &format!("trap 'echo caught >&2; exit 3' TERM\n{FILES}"));
    let traced = call().signal_before(&node, 1, Signal::SIGTERM);
    assert!(traced.hit.is_some());
    assert_eq!((traced.reply.output.code(), traced.reply.output.stderr.as_str()), (3, "caught\n"));
    assert!(there(&node).len() < 3);
}

/// The shell makes a child that stays a shell, and one that becomes another program.
#[test]
fn a_trace_distinguishes_forks_from_executed_programs() {
    let node = Node::new();
    script(&node, "children", "(: > /run/testns/one)\n/bin/true\necho done");
    let executable = node.bin_dir().join("children");
    let program = Program {
        executable: &executable,
        arguments: &[],
        environment: &[],
        stdin: "",
        deadline: Duration::from_secs(60),
    };
    let seen = program.trace(&node).unwrap();
    assert_eq!(seen.output.stdout, "done\n");
    let execs: Vec<_> = seen.processes.iter().map(|process| process.execs).collect();
    assert_eq!(execs, [0, 0, 1], "{:?}", seen.processes);
    for process in seen.processes {
        assert_eq!(process.threads, 0);
        // A shell and `true`: more than a page, and less than what runs this test.
        assert!((100..10_000).contains(&process.peak_kib), "{process:?}");
    }
}
