//! `cnitool validate`: its output; each kind of finding has a file.

mod keys_of_one_plugin;
mod lists;
mod marked_places;
mod networks_of_one_folder;
mod networks_that_projects_document;
pub(crate) mod networks_without_fault;
mod refused_by_add;
mod unreachable_gateways;

use crate::fixture::Tool;
use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::process::Stdio;

#[test]
fn a_network_without_a_fault() {
    let tool = Tool::new();
    expect![[r#"
        0
        stdout: note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/net.conflist:1:55
          |
        1 | {"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilitie...
          |                                                       ^^^^^^

        net: no errors ($DIR/net.d/net.conflist: good; capabilities mac)

        stderr: "#]]
    .assert_eq(&tool.run(&["validate", "net"]).shown());
}

#[test]
fn a_fault_is_shown_at_its_place_and_fails() {
    let tool = Tool::new();
    tool.write(
        "net.d/bad.conflist",
        "{\"cniVersion\":\"0.4.0\",\n \"name\":\"bad\",\n \"plugins\":[{\"type\":\"good\"},\n  {\"type\":\"brigde\"}]}",
    );
    expect![[r#"
        1
        stdout: error: plugin good does not speak cniVersion 0.4.0
         --> $DIR/net.d/bad.conflist:3:21
          |
        3 |  "plugins":[{"type":"good"},
          |                     ^^^^^^
          |
        help: It speaks 1.0.0, 1.1.0.

        error: failed to find plugin "brigde" in path [$DIR/bin]
         --> $DIR/net.d/bad.conflist:4:11
          |
        4 |   {"type":"brigde"}]}
          |           ^^^^^^^^
          |
        help: Did you mean bridge?


        stderr: error: 2 errors and 0 warnings in 1 file
    "#]]
    .assert_eq(&tool.run(&["validate", "bad"]).shown());
    // Nothing is looked for on the node: both are of another project, and one resembles a known one.
    expect![[r#"
        1
        stdout: note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/bad.conflist:3:21
          |
        3 |  "plugins":[{"type":"good"},
          |                     ^^^^^^

        warning: plugin brigde is unknown
         --> $DIR/net.d/bad.conflist:4:11
          |
        4 |   {"type":"brigde"}]}
          |           ^^^^^^^^
          |
        help: Did you mean bridge?

        bad: no errors ($DIR/net.d/bad.conflist: good, brigde)

        stderr: error: 0 errors and 1 warning in 1 file
    "#]]
    .assert_eq(&tool.run(&["validate", "--offline", "--strict", "bad"]).shown());
    expect![[r#"
        0
        stdout: [
            {
                "file": "$DIR/net.d/bad.conflist",
                "network": "bad",
                "cniVersion": "0.4.0",
                "plugins": [
                    "good",
                    "brigde"
                ],
                "capabilities": [],
                "findings": [
                    {
                        "level": "note",
                        "line": 3,
                        "column": 21,
                        "endLine": 3,
                        "endColumn": 27,
                        "key": "plugins[0].type",
                        "message": "plugin good is not part of this suite: its keys are not checked",
                        "help": ""
                    },
                    {
                        "level": "warning",
                        "line": 4,
                        "column": 11,
                        "endLine": 4,
                        "endColumn": 19,
                        "key": "plugins[1].type",
                        "message": "plugin brigde is unknown",
                        "help": "Did you mean bridge?"
                    }
                ]
            }
        ]

        stderr: "#]]
    .assert_eq(&tool.run(&["--json", "validate", "--offline", "bad"]).shown());
}

#[test]
fn all_files_of_the_folder_count_and_a_broken_one_hides_none() {
    let tool = Tool::new();
    tool.write("net.d/10-broken.conflist", "{");
    tool.write("net.d/20-again.conf", r#"{"cniVersion":"1.1.0","name":"net","type":"good"}"#);
    expect![[r#"
        1
        stdout: error: EOF while parsing an object
         --> $DIR/net.d/10-broken.conflist:1:2
          |
        1 | {
          |  ^
          |
        help: The end is missing: a bracket is not closed, or the file was cut off while it was written.

        error: containerd has no network: of a folder it reads the first file by name alone, and this one cannot be used
         --> $DIR/net.d/10-broken.conflist:1:2
          |
        1 | {
          |  ^
          |
        help: Mend or remove it. CRI-O and kubelets ignore it, and take network net of $DIR/net.d/20-again.conf.

        note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/20-again.conf:1:43
          |
        1 | {"cniVersion":"1.1.0","name":"net","type":"good"}
          |                                           ^^^^^^

        warning: network net is in $DIR/net.d/20-again.conf, too, which is found first
         --> $DIR/net.d/net.conflist:1:30
          |
        1 | {"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilitie...
          |                              ^^^^^
          |
        help: containerd, CRI-O and kubelets use $DIR/net.d/20-again.conf; podman and the reference's cnitool use this file. Remove one.

        note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/net.conflist:1:55
          |
        1 | {"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilitie...
          |                                                       ^^^^^^

        net: no errors ($DIR/net.d/20-again.conf: good)
        net: no errors ($DIR/net.d/net.conflist: good; capabilities mac)

        stderr: error: 2 errors and 1 warning in 3 files
    "#]]
    .assert_eq(&tool.run(&["validate"]).shown());
}

#[test]
fn standard_input_is_a_file_too() {
    let tool = Tool::new();
    let mut child =
        tool.command().args(["validate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"cniVersion":"1.1.0","name":"x","type":"good"}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.ends_with("x: no errors (<stdin>: good)\n"), "{text}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let tool = Tool::new();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot read ./absent.conflist: No such file or directory
    "#]]
    .assert_eq(&tool.run(&["validate", "./absent.conflist"]).shown());
    expect![[r#"
        1
        stdout: 
        stderr: error: no net configuration with name "absent" in $DIR/net.d
          The folder has net.
    "#]]
    .assert_eq(&tool.run(&["validate", "absent"]).shown());
}

/// The key `log`: no container fails for it, but its value may be ignored.
#[test]
fn a_log_that_is_ignored_is_a_warning() {
    let tool = Tool::new();
    let messages = |log: &str| {
        let plugin = format!("{{\"type\":\"loopback\",\"log\":{log}}}");
        let list = format!("{{\"cniVersion\":\"1.1.0\",\"name\":\"net\",\"log\":{log},\"plugins\":[{plugin}]}}");
        tool.write("net.d/net.conflist", &list);
        let run = tool.run(&["validate", "--offline", "net"]);
        assert_eq!(run.code, 0);
        run.stdout
    };
    for fine in ["null", "\"journal\"", "\"file\"", "\"stderr\"", "\"off\""] {
        assert!(messages(fine).starts_with("net: no errors"), "{fine}: {}", messages(fine));
    }
    for (log, why, help) in [
        ("5", "5 is ignored: expected a string", "Write one of journal, file, stderr, off."),
        ("\"jornal\"", "\"jornal\" is ignored: it is an unknown destination", "Did you mean journal?"),
        (
            "\"logs/calls\"",
            "\"logs/calls\" is ignored: it is a relative path, and a network cannot choose the file",
            "Write \"file\" for /var/log/cni/calls.log, or the absolute path into /etc/cni/log.",
        ),
        (
            "\"/var/log/x\"",
            "\"/var/log/x\" is ignored: a network cannot choose the file",
            "Write \"file\" for /var/log/cni/calls.log, or the absolute path into /etc/cni/log.",
        ),
    ] {
        let text = messages(log);
        assert!(text.contains(":1:42\n"), "{text}");
        assert_eq!(text.matches(&format!("warning: key log = {why}\n")).count(), 2, "list and plugin: {text}");
        assert_eq!(text.matches(&format!("help: {help}\n")).count(), 2, "{text}");
    }
}

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

/// A list may name one plugin a thousand times.
#[test]
fn each_plugin_is_asked_once_for_its_versions_and_once_whether_it_answers_questions() {
    let tool = Tool::new();
    let plugins = vec![r#"{"type":"good"}"#; 1000].join(",");
    tool.write("net.d/many.conflist", &format!(r#"{{"cniVersion":"1.1.0","name":"many","plugins":[{plugins}]}}"#));
    tool.run(&["validate", "many"]).ok();
    assert_eq!(tool.log().matches("VERSION").count(), 2);
}

/// An operator in the folder names a file by its name alone. A network's name comes first.
#[test]
fn a_file_of_the_folder_is_found_by_its_name() {
    let tool = Tool::new();
    tool.write("net.d/10-cut.conflist", "{\"name\": \"pods\"");
    let shown = tool.run(&["validate", "10-cut.conflist"]).shown();
    assert!(shown.contains("net.d/10-cut.conflist:1:16") && shown.contains("a bracket is not closed"), "{shown}");
    let shown = tool.run(&["validate", "11-absent.conflist"]).shown();
    assert!(shown.contains("no net configuration with name \"11-absent.conflist\""), "{shown}");
}

/// A version that there is not is one fault, and not one of each plugin, too.
#[test]
fn an_unknown_version_is_one_finding() {
    let tool = Tool::new();
    tool.write("net.d/new.conflist", r#"{"cniVersion":"1.0.1","name":"new","plugins":[{"type":"good"}]}"#);
    let shown = tool.run(&["validate", "new"]).shown();
    assert!(shown.contains("network new has cniVersion \"1.0.1\"") && shown.contains("1 error and"), "{shown}");
}

#[test]
fn a_folder_is_validated_as_the_usual_one() {
    let tool = Tool::new();
    let folder = tool.path("net.d").display().to_string();
    assert_eq!(tool.run(&["validate", &folder]).stdout, tool.run(&["validate"]).stdout);
}
