//! `cnitool validate`: a signal; `validate/findings.txt` has each kind of finding.

mod findings;

use crate::fixture::Tool;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;

/// Standard input may be a pipe that never ends.
#[test]
fn a_signal_ends_validate_while_it_reads() {
    let tool = Tool::new();
    let mut child = tool.command().args(["validate", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let status = format!("/proc/{}/status", child.id());
    let handles_signals = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (Signal::SIGTERM as i32 - 1) != 0
    };
    while !handles_signals() {
        std::thread::yield_now();
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    drop(input);
}
