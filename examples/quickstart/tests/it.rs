//! The output of the quick start.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::process::Command;

#[test]
fn the_output_fits_a_screen_and_ends_with_what_is_left() {
    let output = Command::new(env!("CARGO_BIN_EXE_quickstart")).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for expected in [
        "ADD ",
        "── pod2: eth0",
        "pod2 pings pod1:",
        "2001:db8::2 sees 2001:db8::1",
        "DEL ",
        "Left of the pods: nothing",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}
