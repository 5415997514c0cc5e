//! Calls of executables, also under ptrace. That a traced call is killed, fails or is refused at its point is shown by the kit's
//! mutants of the groups `crash` and `faults`, and its counts by the limits of `bench`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use testns::trace::{Fate, Syscall};
use testns::{Attachment, Call, Node, Verb, unshared, write_executable};

/// A call of a script.
fn call(node: &Node, script: &str) -> Call {
    write_executable(node.bin_dir().join("script"), format!("#!/bin/sh\n{script}")).expect("write a script");
    Call::new(Verb::Add, "{}", Attachment::none()).plugin("script")
}

/// A child has every descriptor of the thread that starts it, until it executes its program.
#[test]
fn a_file_that_is_written_unshared_is_not_open_in_other_threads() {
    let node = Node::new();
    let path = node.work_dir().join("program");
    // "PID/task/TID"
    let other = fs::read_link("/proc/thread-self").unwrap();
    let has_open = |thread: PathBuf| {
        let fds = fs::read_dir(PathBuf::from("/proc").join(thread).join("fd")).unwrap();
        fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).any(|file| file == path)
    };
    let here_and_there = unshared(|| {
        let _open = File::create(&path).unwrap();
        (has_open(fs::read_link("/proc/thread-self").unwrap()), has_open(other))
    });
    assert_eq!(here_and_there, (true, false));
}

#[test]
fn a_call_has_a_deadline() {
    let node = Node::new();
    let call = call(&node, "while :; do :; done").deadline(Duration::from_millis(200));
    assert!(std::panic::catch_unwind(|| call.run(&node).output).is_err());
    assert!(std::panic::catch_unwind(|| call.trace(&node).reply.output).is_err());
}

#[test]
fn a_shortened_write_writes_half() {
    let node = Node::new();
    let is_answer = |call: &Syscall| call.name() == "write" && call.arguments[0] == 1;
    let call = call(&node, "printf 12345678");
    let traced = call.try_traced(&node, Some((1, Fate::ShortenWhere(is_answer)))).unwrap();
    assert_eq!(traced.hit.map(|call| call.name()).unwrap(), "write");
    let stdout = &traced.reply.output.stdout;
    assert!(stdout.starts_with("1234"), "{stdout}");
    assert!(traced.eligible > 1 || stdout == "1234", "the rest was written without another call: {stdout}");
}

#[test]
fn a_signal_reaches_the_plugin_at_its_point() {
    let node = Node::new();
    let script = "trap 'echo caught >&2; exit 3' TERM\n: >/run/testns/one\n: >/run/testns/two";
    let traced = call(&node, script).signal_before(&node, 1, Signal::SIGTERM);
    assert!(traced.hit.is_some());
    assert_eq!((traced.reply.output.code(), traced.reply.output.stderr.as_str()), (3, "caught\n"));
    assert!(!node.work_dir().join("two").exists());
}
