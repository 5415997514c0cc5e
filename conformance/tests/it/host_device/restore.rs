//! What the kernel forgets when a device moves, and what a container can leave on it: the node has its device as it was.

use super::{RECORDS, config, device};
use crate::configs::Attached;
use crate::subjects::{node, ours};
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
