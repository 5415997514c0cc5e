//! The output of the runner.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::process::Command;

#[test]
fn a_sandbox_reaches_the_internet_alone_and_is_reached_by_its_port() {
    let output = Command::new(env!("CARGO_BIN_EXE_sandbox")).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    for expected in [
        "A slot reaches the internet",
        "A slot does not reach the metadata service",
        "A slot does not reach a private host",
        "Port 8080 of the node leads to port 80",
        "33 slots are destroyed",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}
