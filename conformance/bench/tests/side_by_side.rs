//! Two pods of each row with unoptimised executables: every row works, and a call that fails ends the run.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

fn side_by_side(arguments: &[&str], subject: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_side-by-side"));
    command.args(arguments).args(["--pods", "4"]).arg(subject).output().unwrap()
}

/// Our executables under the names that the program looks for, and what else `make` puts beside them.
fn subject(make: impl FnOnce(&std::path::Path)) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    symlink(testns::cnitool(), folder.path().join("cnitool")).unwrap();
    make(folder.path());
    let subject = format!("ours={}", folder.path().display());
    (folder, subject)
}

#[test]
fn every_row_is_timed() {
    let (_folder, subject) = subject(|folder| symlink(testns::plugins(), folder.join("cni-plugins")).unwrap());
    let output = side_by_side(&["--at-once", "2"], &subject);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let timed = |verb: &str| stdout.lines().filter(|line| line.starts_with(verb)).count();
    assert_eq!([timed("VERSION"), timed("ADD"), timed("CHECK"), timed("DEL")], [1, 16, 15, 16], "{stdout}");

    for beside in ["pods=3", "others=3", "links=10", "rules=10"] {
        let output = side_by_side(&["--only", "bridge-masq", "--at-once", "1", "--beside", beside], &subject);
        assert!(output.status.success(), "{beside}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_failed_call_ends_the_run() {
    let (_folder, subject) = subject(|folder| {
        testns::write_executable(folder.join("loopback"), "#!/bin/sh\necho no network\nexit 7\n").unwrap();
    });
    let output = side_by_side(&["--only", "loopback"], &subject);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("loopback: ADD ended with 7: no network"), "{stderr}");
    let output = side_by_side(&["--only", "nothing"], &subject);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no row \"nothing\""));
}
