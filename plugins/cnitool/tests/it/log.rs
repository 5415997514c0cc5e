//! `cnitool log --follow`.

use crate::fixture::Tool;
use std::io::{BufRead, BufReader, Write};

/// Each call is printed once as it comes, also after a rotation, and before there is a log.
#[test]
fn the_log_is_followed() {
    let tool = Tool::new();
    tool.shell("calls").ok();
    let path = tool.path("calls.log");
    let mut follow = tool.command();
    follow.args(["log", "-f", "-n", "1", "--verb", "DEL", "--from"]).arg(&path).stdout(std::process::Stdio::piped());
    let mut child = follow.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("DEL  bridge  pods  c1"));
    let text = tool.read("calls.log");
    let line =
        |container: &str| text.lines().find(|line| line.contains("DEL")).unwrap().replace("c1", container) + "\n";
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(format!("\n{}{}", line("c2").replace("DEL", "ADD"), line("c3")).as_bytes()).unwrap();
    assert!(next().contains("DEL  bridge  pods  c3"));
    std::fs::rename(&path, tool.path("calls.log.1")).unwrap();
    std::fs::write(&path, line("c4")).unwrap();
    assert!(next().contains("DEL  bridge  pods  c4"));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), nix::sys::signal::SIGINT)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
