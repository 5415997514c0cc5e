//! Calls that a signal or a deadline ends.

use crate::fixture::{NETNS, Tool};
use expect_test::expect;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_signal_ends_the_plugin_and_rolls_back() {
    use nix::sys::signal::{Signal, kill};
    for (signal, code) in [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let tool = Tool::new();
        tool.plugin(
            "stuck",
            r#"echo "$CNI_COMMAND stuck" >> "$dir/../log"; [ $CNI_COMMAND = DEL ] || { echo begun >&2; exec sleep 1000; }"#,
        );
        let list = r#"{"cniVersion":"1.0.0","name":"s","plugins":[{"type":"good"},{"type":"stuck"}]}"#;
        tool.write("net.d/s.conflist", list);
        let mut child = tool.command().args(["add", "s", NETNS]).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut begun = [0; 6];
        stderr.read_exact(&mut begun).unwrap();
        kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        expect![[r#"
            error: plugin type="stuck" failed (add): cannot finish ADD: the operation was cancelled
              It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: stuck, good.
        "#]]
        .assert_eq(&rest);
        expect![[r#"
            ADD cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net []
            ADD stuck
            DEL stuck
            DEL cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net []
        "#]]
        .assert_eq(&tool.log());
    }
}

/// Ignores SIGTERM, in each call but DEL.
const STUBBORN: &str = r#"
echo "$CNI_COMMAND" >> "$dir/../log"
[ $CNI_COMMAND = DEL ] || { trap '' TERM; echo begun >&2; while :; do sleep 1000; done; }"#;

/// A plugin that ignores SIGTERM has as long again as the timeout, not the five seconds of long ones.
#[test]
fn a_short_timeout_has_a_short_grace() {
    let tool = Tool::new();
    tool.plugin("stubborn", STUBBORN);
    tool.write("net.d/s.conflist", r#"{"cniVersion":"1.0.0","name":"s","plugins":[{"type":"stubborn"}]}"#);
    let begin = Instant::now();
    let ended = tool.run(&["add", "s", NETNS, "--timeout", "1"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let took = begin.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(tool.log(), "ADD\nDEL\n");
}

/// The second one does not wait for a plugin that ignores the first, but for the rollback.
#[test]
fn a_second_signal_kills_the_plugin_and_the_rollback_goes_on() {
    use nix::sys::signal::{Signal, kill};
    let tool = Tool::new();
    tool.plugin("stubborn", STUBBORN);
    tool.write(
        "net.d/s.conflist",
        r#"{"cniVersion":"1.0.0","name":"s","plugins":[{"type":"good"},{"type":"stubborn"}]}"#,
    );
    let mut child = tool.command().args(["add", "s", NETNS]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_exact(&mut [0; 6]).unwrap();
    let begin = Instant::now();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        kill(pid, signal).unwrap();
    }
    stderr.read_to_string(&mut String::new()).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(130 | 143)));
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert!(
        tool.log().ends_with("ADD\nDEL\nDEL cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net []\n"),
        "{}",
        tool.log()
    );
}

#[test]
fn a_timeout_may_be_longer_than_the_clock_can_show() {
    let tool = Tool::new();
    for seconds in [i64::MAX as u64, u64::MAX] {
        for verb in ["add", "check", "del"] {
            tool.run(&[verb, "net", NETNS, "--timeout", &seconds.to_string()]).ok();
        }
    }
}
