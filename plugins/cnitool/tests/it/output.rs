//! Where output goes: a pipe that is closed, a full disk, a terminal.

use crate::fixture::Tool;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::Stdio;

/// Verbs that print something, for the network `net`.
const PRINTING: &[&[&str]] = &[
    &["version"],
    &["attachments"],
    &["show"],
    &["validate"],
    &["schema"],
    &["completions", "bash"],
    &["ipam", "free", "pool"],
    &["metrics"],
    &["status", "net", "--json"],
];

fn tool() -> Tool {
    let tool = Tool::new();
    tool.write(
        "net.d/pool.conflist",
        r#"{"cniVersion":"1.1.0","name":"pool","plugins":[{"type":"good","ipam":{"type":"host-local","subnet":"10.7.0.0/24"}}]}"#,
    );
    tool.run(&["add", "net", crate::fixture::NETNS]).ok();
    tool
}

#[test]
fn a_closed_pipe_ends_a_verb_quietly() {
    let tool = tool();
    for words in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = tool.command().args(*words).stdout(Stdio::from(writer)).output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(141), ""),
            "{words:?}"
        );
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let tool = tool();
    for words in &[&["add", "net", crate::fixture::NETNS, "-i", "eth1"][..], &["show"], &["--help"], &["--version"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = tool.command().args(*words).stdout(Stdio::from(full)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("cannot write to stdout"), "{words:?} {stderr}");
        assert_eq!(stderr.contains("ADD was rolled back"), words[0] == "add");
        // The first one is the tool's own.
        assert_eq!(tool.files("cache/results").len(), 1);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        tool.command().args(["add", "net", crate::fixture::NETNS, "-i", "eth2"]).stdout(Stdio::from(writer)).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
}

/// The next change may be hours away.
#[test]
fn a_watch_whose_reader_ends_ends_without_a_change() {
    let tool = tool();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = tool.command();
    let mut watching = command.args(["show", "--watch"]).stdout(Stdio::from(writer)).spawn().unwrap();
    drop(command);
    reader.read_exact(&mut [0]).unwrap();
    drop(reader);
    let fd = pidfd_open(Pid::from_child(&watching), PidfdFlags::empty()).unwrap();
    let mut waiting = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let ended = poll(&mut waiting, PollTimeout::from(30_000_u16));
    watching.kill().unwrap();
    assert_eq!((ended, watching.wait().unwrap().code()), (Ok(1), Some(141)));
}

/// No line is wrapped by the terminal, which `--watch` would not know of.
#[test]
fn lines_fit_a_narrow_terminal() {
    let tool = tool();
    let size = Winsize { ws_row: 50, ws_col: 30, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let mut command = tool.command();
    let status = command.args(["show"]).env("NO_COLOR", "1").stdout(Stdio::from(pty.slave)).status().unwrap();
    drop(command);
    let (mut terminal, mut seen) = (File::from(pty.master), Vec::new());
    // The end of a terminal is an error, after all that was written.
    drop(terminal.read_to_end(&mut seen));
    let seen = String::from_utf8(seen).unwrap();
    let widest = seen.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(status.success() && seen.contains("10.7.0.254") && widest <= 30, "{widest}: {seen}");
}

/// The terminal shows that something happens, and in the end only what was asked for.
#[test]
fn what_takes_longer_than_a_second_shows_that_it_works() {
    let tool = Tool::new();
    let gate = tool.path("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_retain(0o600)).unwrap();
    // Without a command it is asked for its release.
    let wait = format!("test -z \"$CNI_COMMAND\" || cat {} > /dev/null", gate.display());
    tool.plugin("slow", &format!("{wait}; {}", crate::fixture::GOOD));
    let pty = openpty(None, None).unwrap();
    let mut command = tool.command();
    command.args(["version", "slow"]).stderr(Stdio::from(pty.slave)).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    // The terminal ends with the last descriptor of it.
    drop(command);
    let mut terminal = File::from(pty.master);
    let mut seen = String::new();
    let mut chunk = [0; 1024];
    while !seen.contains("cnitool version: 1 s") {
        let mut waiting = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waiting, PollTimeout::from(30_000_u16)), Ok(1), "{seen:?}");
        let count = terminal.read(&mut chunk).unwrap();
        seen += &String::from_utf8_lossy(&chunk[..count]);
    }
    drop(File::options().write(true).open(&gate).unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    while let Ok(count @ 1..) = terminal.read(&mut chunk) {
        seen += &String::from_utf8_lossy(&chunk[..count]);
    }
    assert!(seen.ends_with("\r\x1b[K"), "{seen:?}");
}

/// What a file or a plugin says does not act on the terminal.
#[test]
fn no_escape_reaches_the_terminal() {
    let tool = tool();
    tool.write("cache/results/x", "\u{1b}[2J");
    tool.write("net.d/x.conflist", "{\"name\":\"\u{1b}[2J\"}");
    let all =
        "{\"name\": \"\\u001b]0;x\\u0007\\u009b2J\\u202e\", \"plugins\": [{\"type\": \"\u{9b}\u{202e}\u{feff}\"}]}";
    tool.write("net.d/a\u{1b}b.conflist", all);
    let loud = r#"printf '{"cniVersion":"1.0.0","code":100,"msg":"\\u001b[2J \\u202e \\u009b"}'; exit 1"#;
    tool.plugin("loud", loud);
    tool.write("net.d/loud.conflist", r#"{"cniVersion":"1.0.0","name":"loud","plugins":[{"type":"loud"}]}"#);
    for words in [
        &["attachments"][..],
        &["add", "loud", crate::fixture::NETNS],
        &["add", "none", crate::fixture::NETNS],
        &["version"],
        &["version", "loud"],
        &["show"],
        &["explain", "\u{1b}[2J"],
        &["validate"],
        &["doctor"],
    ] {
        for form in [&[][..], &["--json"]] {
            let output = tool.command().args(words).args(form).output().unwrap();
            let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(
                !shown.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{feff}', '\u{9b}']),
                "{words:?} {form:?}: {shown:?}"
            );
        }
    }
    // As text it is passed on.
    tool.plugin("loud", &format!("printf '\\302\\2332J' >&2; {loud}"));
    let output = tool.command().args(["--json", "add", "loud", crate::fixture::NETNS]).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(shown.contains(r"\u009b2J") && !shown.contains('\u{9b}'), "{shown:?}");
}
