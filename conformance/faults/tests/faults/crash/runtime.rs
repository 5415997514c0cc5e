//! `kill -9` of the runtime while it starts a plugin, and DEL by the next runtime before the plugin continues. The
//! runtime is `cnitool`.

use super::{PLAIN, changes, inside_links};
use crate::subjects::node;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;
use testns::trace::Program;
use testns::{Container, Node, Remains};

/// A node whose folder of networks has one, `net`, which has had a container.
fn node_with_network() -> Node {
    let node = node();
    let plugin = (PLAIN.config)();
    let network = json!({"cniVersion": plugin["cniVersion"], "name": plugin["name"], "plugins": [plugin]});
    std::fs::create_dir_all("/etc/cni/net.d").unwrap();
    std::fs::write("/etc/cni/net.d/10-net.conflist", network.to_string()).unwrap();
    PLAIN.warm_up(&node);
    let pod = node.container();
    assert!(cnitool(&node, &pod, "add").status().unwrap().success());
    del(&node, &pod, "warm-up");
    pod.leave(Remains::Gone);
    node.remember();
    node
}

fn words(pod: &Container, verb: &str) -> [String; 5] {
    let attachment = pod.attachment();
    [verb.to_owned(), "net".to_owned(), attachment.netns, "--container-id".to_owned(), attachment.container_id]
}

fn cnitool(node: &Node, pod: &Container, verb: &str) -> Command {
    let mut command = Command::new(testns::cnitool());
    command.args(words(pod, verb)).env_clear().env("CNI_PATH", node.bin_dir());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[track_caller]
fn del(node: &Node, pod: &Container, point: &str) {
    let output = cnitool(node, pod, "del").output().unwrap();
    assert!(output.status.success(), "{point}: DEL: {}", String::from_utf8_lossy(&output.stderr));
}

/// Checks that nothing is on the node, in the container and in the cache, once all processes have ended.
#[track_caller]
fn assert_nothing_of(node: &Node, pod: &Container, point: &str) {
    // What a runtime has not finished writing to its cache goes by age, with GC: `libcni`'s tests `killed`.
    let is_unfinished = |line: &&str| line.contains("/var/lib/cni/results/.unfinished-");
    let left: Vec<_> = changes(node).lines().filter(|line| !is_unfinished(line)).map(str::to_owned).collect();
    assert!(left.is_empty(), "{point}: left on the node:\n{}", left.join("\n"));
    assert_eq!(inside_links(pod), ["lo"], "{point}: left in the container");
    pod.leave(Remains::Gone);
    PLAIN.assert_addresses_are_free(node, point);
}

/// The plugin is forked, has been executed, or reads its config; the runtime has not recorded it yet.
#[test]
fn a_plugin_whose_runtime_died_before_it_was_noted_does_nothing() {
    let node = node_with_network();
    let environment = [("CNI_PATH".to_owned(), node.bin_dir().display().to_string())];
    let mut points = 0;
    for n in 1.. {
        let pod = node.container();
        let arguments = words(&pod, "add");
        let (executable, deadline) = (testns::cnitool(), Duration::from_secs(60));
        let program = Program { executable, arguments: &arguments, environment: &environment, stdin: "", deadline };
        let point = format!("call {n} after the start of the plugin");
        let calls = program.orphan(&node, n, || del(&node, &pod, &point)).expect("the runtime writes the note");
        // The kill comes before its last call.
        if calls[..calls.len() - 1].iter().any(|call| call.name() == "pwrite64") {
            break;
        }
        assert_nothing_of(&node, &pod, &format!("{point}: {}", calls[calls.len() - 1]));
        points += 1;
    }
    assert!(points > 5, "only {points} points were found");
    testns::note(&format!("POINTS runtime killed at the start of a plugin, DEL: {points}"));
}
