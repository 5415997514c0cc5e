//! Programs that an administrator runs on a node, or a container's in its namespace.

use std::process::Command;
use testns::Namespace;

#[track_caller]
pub fn sh(namespace: &Namespace, script: &str) -> String {
    run(namespace, Command::new("sh").args(["-ec", script]))
}

/// Runs `ip` of iproute2 with these words in a namespace, and returns what it prints. Not by [`sh`]: busybox's has an `ip` of its own.
#[track_caller]
pub fn ip(namespace: &Namespace, words: &str) -> String {
    run(namespace, Command::new("ip").args(words.split(' ')))
}

#[track_caller]
fn run(namespace: &Namespace, command: &mut Command) -> String {
    let output = namespace.enter(|| command.output()).expect("run a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
