//! The other examples of sixty lines: a runtime on `libcni`, a plugin on `interface`, and one on `chained`, all on one node.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use testns::{Node, Remains, Subject};

/// A node with the suite's plugins and the examples', and a network of the latter.
fn node() -> Node {
    let node = Node::with(&Subject::Multicall(env!("CARGO_BIN_EXE_plugins-before").into()));
    symlink(env!("CARGO_BIN_EXE_pair"), node.bin_dir().join("pair")).unwrap();
    symlink(env!("CARGO_BIN_EXE_address-file"), node.bin_dir().join("address-file")).unwrap();
    let ipam = json!({"type": "host-local", "subnet": "10.9.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    let network = json!({
        "cniVersion": "1.1.0", "name": "pairs",
        "plugins": [{"type": "pair", "mtu": 1400, "ipam": ipam}, {"type": "address-file"}],
    });
    fs::write(node.work_dir().join("10-pairs.conflist"), network.to_string()).unwrap();
    node
}

fn runtime(node: &Node, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runtime"));
    command.arg(node.bin_dir()).arg(node.work_dir()).args(words).output().unwrap()
}

/// What the runtime prints, which succeeds.
fn said(node: &Node, words: &[&str]) -> String {
    let output = runtime(node, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_container_gets_its_network_and_loses_it_again() {
    let node = node();
    let (pod, other) = (node.container(), node.container());
    let netns = pod.namespace().path().to_str().unwrap();
    let of_pod = |verb| [verb, "pairs", pod.id(), netns];
    let file = Path::new("/run/cni-addresses/pairs").join(format!("{}:eth0", pod.id()));

    assert_eq!(said(&node, &of_pod("add")), "10.9.0.2/24\n");
    assert_eq!(pod.namespace().link("eth0").mtu_bytes, 1400);
    pod.namespace().ping([10, 9, 0, 1]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "10.9.0.2\n");
    said(&node, &of_pod("check"));
    assert_eq!(said(&node, &["list"]), format!("pairs {}\n", pod.id()));

    fs::write(&file, "10.9.0.3\n").unwrap();
    let changed = runtime(&node, &of_pod("check"));
    assert!(String::from_utf8_lossy(&changed.stderr).contains("address-file"), "{changed:?}");

    // An ADD that fails takes the interface back. What stands in the file's place is not the plugin's to remove, so DEL is due.
    let in_the_way = file.with_file_name(format!("{}:eth0", other.id()));
    let of_other = |verb| [verb, "pairs", other.id(), other.namespace().path().to_str().unwrap()];
    fs::create_dir(&in_the_way).unwrap();
    assert!(!runtime(&node, &of_other("add")).status.success());
    assert!(other.namespace().find_link("eth0").is_none());
    fs::remove_dir(&in_the_way).unwrap();
    said(&node, &of_other("del"));

    said(&node, &of_pod("del"));
    said(&node, &of_pod("del"));
    assert!(pod.namespace().find_link("eth0").is_none() && !file.exists());
    assert_eq!(said(&node, &["list"]), "");
}

#[test]
fn gc_and_del_remove_what_is_left_of_a_container_that_is_gone() {
    let node = node();
    let pods = [node.container(), node.container()];
    for pod in &pods {
        said(&node, &["add", "pairs", pod.id(), pod.namespace().path().to_str().unwrap()]);
    }
    let [gone, kept] = &pods;
    let file = |id: &str| Path::new("/run/cni-addresses/pairs").join(format!("{id}:eth0"));
    drop(gone.leave(Remains::Gone));
    let valid = json!([{"containerID": kept.id(), "ifname": "eth0"}]);
    let config =
        json!({"cniVersion": "1.1.0", "name": "pairs", "type": "address-file", "cni.dev/valid-attachments": valid});
    node.call(testns::Verb::Gc, config, testns::Attachment::none()).ok();
    assert!(!file(gone.id()).exists() && file(kept.id()).exists());
    said(&node, &["del", "pairs", gone.id(), "/run/netns/gone"]);
}

#[test]
fn each_example_has_at_most_sixty_lines() {
    let examples = [
        include_str!("../src/main.rs"),
        include_str!("../src/chained.rs"),
        include_str!("../../interface-plugin/src/main.rs"),
        include_str!("../../../libcni/examples/runtime.rs"),
    ];
    for example in examples {
        let title = example.lines().next().unwrap();
        assert!(example.lines().count() <= 60, "{title}: {} lines", example.lines().count());
        assert!(example.lines().all(|line| line.chars().count() <= 120), "{title}");
    }
}
