//! Programs that an administrator runs on a node, or a container's in its namespace.

use std::process::Command;
use testns::Namespace;

/// Runs a script of the shell in a namespace, and returns what it prints.
///
/// # Panics
/// The script fails, or prints what is no text.
#[track_caller]
pub fn sh(namespace: &Namespace, script: &str) -> String {
    let output = namespace.enter(|| Command::new("sh").args(["-ec", script]).output()).expect("run sh");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `ip` of iproute2 with these words in a namespace, and returns what it prints.
///
/// # Panics
/// As [`sh`].
#[track_caller]
pub fn ip(namespace: &Namespace, words: &str) -> String {
    sh(namespace, &format!("ip {words}"))
}
