//! Calls of executables: of a script that shows what it was given, and of the reference plugins.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use testns::{Attachment, Call, Node, Remains, Verb, unshared, write_executable};

/// Installs a shell script as a plugin.
pub(crate) fn script(node: &Node, name: &str, text: &str) {
    write_executable(node.bin_dir().join(name), format!("#!/bin/sh\n{text}")).expect("write a script");
}

const SHOW: &str = r#"
echo "$CNI_COMMAND|$CNI_CONTAINERID|$CNI_NETNS|$CNI_IFNAME|$CNI_ARGS|$CNI_PATH|${CNI_NETNS-unset}" >&2
cat >&2
test "$CNI_COMMAND" = ADD && echo '{"cniVersion":"1.1.0"}'
test "$CNI_COMMAND" != CHECK || { echo '{"code":11,"msg":"later"}'; exit 1; }
"#;

#[test]
fn a_call_gives_what_the_verb_has() {
    let node = Node::new();
    script(&node, "show", SHOW);
    let (pod, config) = (node.container(), r#"{"name":"n","type":"show"}"#);

    let add = Call::new(Verb::Add, config, &pod).args("A=b").variable("PATH", "/usr/bin:/bin").run(&node);
    let netns = "/run/netns/pod1";
    let expected = format!("ADD|pod1|{netns}|eth0|A=b|/run/testns/bin|{netns}\n{config}");
    assert_eq!(add.output.stderr, expected);
    assert_eq!(add.ok()["cniVersion"], "1.1.0");

    let empty = pod.leave(Remains::EmptyPath);
    let check = Call::new(Verb::Check, config, &empty).variable("PATH", "/usr/bin:/bin").run(&node);
    assert!(check.output.stderr.starts_with("CHECK|pod1||eth0||/run/testns/bin|\n"));
    assert_eq!(check.fails_with(11).msg, "later");

    let status = Call::new(Verb::Status, config, Attachment::none()).without("CNI_PATH");
    let status = status.variable("PATH", "/usr/bin:/bin").run(&node);
    assert!(status.output.stderr.starts_with("STATUS||||||unset\n"), "{status}");
    assert!(status.ok().is_null());
}

/// A child has every descriptor of the thread that starts it, until it executes its program.
#[test]
fn a_file_that_is_written_unshared_is_not_open_in_other_threads() {
    let node = Node::new();
    let path = node.work_dir().join("program");
    // "PID/task/TID"
    let other = fs::read_link("/proc/thread-self").unwrap();
    let has_open = |thread: PathBuf| {
        let fds = fs::read_dir(PathBuf::from("/proc").join(thread).join("fd")).unwrap();
        fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).any(|file| file == path)
    };
    let here_and_there = unshared(|| {
        let _open = File::create(&path).unwrap();
        (has_open(fs::read_link("/proc/thread-self").unwrap()), has_open(other))
    });
    assert_eq!(here_and_there, (true, false));
}

#[test]
fn a_call_has_a_deadline() {
    let node = Node::new();
    script(&node, "loop", "while :; do :; done");
    let call = Call::new(Verb::Add, "{}", Attachment::none()).plugin("loop");
    let call = call.deadline(Duration::from_millis(200));
    assert!(std::panic::catch_unwind(|| call.run(&node).output).is_err());
    assert!(std::panic::catch_unwind(|| call.trace(&node).reply.output).is_err());
}
