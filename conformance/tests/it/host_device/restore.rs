//! What the kernel forgets when a device moves, and what a container can leave on it: the node has its device as it was.

use super::{RECORDS, config, device, records};
use crate::configs::Attached;
use crate::subjects::{node, ours, reference_or_skip};
use serde_json::json;
use std::process::Command;
use testns::{Attachment, Namespace, Node, Verb};
use testns::{Attachment, Namespace, Node, Verb};

/// Runs a script of the shell's and returns what it prints.
#[track_caller]
fn sh(namespace: &Namespace, script: &str) -> String {
    let output = namespace.enter(|| Command::new("sh").args(["-ec", script]).output()).expect("run sh");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// An upgrade, a downgrade and an upgrade: the record of the first is none of the device's present container.
#[test]
fn a_record_that_the_references_del_left_keeps_no_device_away() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&ours());
    device(&node);
    let (first, second) = (node.container(), node.container());
    let attached = Attached::add(&node, &config(json!({})), &first);
    node.install(&theirs);
    attached.del().ok();
    drop(first.leave(testns::Remains::Gone));
    let next = Attached::add(&node, &config(json!({})), &second);
    node.install(&ours());
    next.del().ok();
    assert!(node.host().find_link("dev1").is_some());
    assert_eq!(records(), Vec::<String>::new());
}

/// What is no file of ours is passed over: a pipe would be waited for, and a link could lead anywhere.
#[test]
fn what_is_no_record_is_passed_over() {
    let node = node();
    device(&node);
    let host = node.host();
    sh(
        host,
        &format!(
            "mkdir -p {RECORDS}; mkfifo {RECORDS}/pipe; ln -s /dev/zero {RECORDS}/link; mkdir {RECORDS}/folder
        truncate -s 2M {RECORDS}/long"
        ),
    );
    let pod = node.container();
    let config = config(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
    Attached::add(&node, &config, &pod);
    node.call(Verb::Gc, &config, Attachment::none()).ok();
    assert!(host.find_link("dev1").is_some());
}
