//! Slots with packets through them, and what a killed process leaves.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod killed;
mod packets;
mod strangers;

use netslot::{Pool, Spec};
use testns::{Namespace, Node};

/// A machine that the node reaches: by a public address, as a cloud's metadata service, and as a private one.
const PUBLIC: &str = "192.0.2.2";
const METADATA: &str = "169.254.169.254";
const PRIVATE: &str = "10.9.9.9";

/// A node with a way to another machine, which has no route to slots.
fn node() -> (Node, Namespace) {
    let node = Node::new();
    let outside = node.remote("outside");
    node.host().add_veth("uplink0", &outside, "eth0");
    for (near, far) in [("192.0.2.1/24", PUBLIC), ("169.254.169.1/24", METADATA), ("10.9.9.1/24", PRIVATE)] {
        node.host().add_address("uplink0", near);
        outside.add_address("eth0", &format!("{far}/24"));
    }
    node.host().add_address("uplink0", "2001:db8::1/64");
    outside.add_address("eth0", "2001:db8::2/64");
    for family in ["ipv4", "ipv6"] {
        node.host().set_sysctl(&format!("net/{family}/conf/all/forwarding"), "1");
    }
    node.host().wait_until_settled("uplink0");
    node.remember();
    (node, outside)
}

fn spec(name: &str) -> Spec {
    Spec::new(name, "10.88.0.0/24".parse().unwrap()).subnet("fd00:88::/64".parse().unwrap())
}

fn open(spec: Spec) -> Pool {
    Pool::open(spec).unwrap()
}

/// Panics if the node has more than it had, but for tables and chains, which stay, and the pools' folders.
#[track_caller]
fn assert_nothing_is_left(node: &Node, when: &str) {
    let stays = |line: &&str| line.contains("nft ") && !line.contains("element") || line.contains("/run/netslot");
    let changes = node.changes();
    let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
    assert!(left.is_empty(), "{when}: {left:#?}");
    let folders = std::fs::read_dir("/run/netslot").unwrap().map(|entry| entry.unwrap().path());
    for file in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        assert_eq!(file.unwrap().file_name(), "lock", "{when}");
    }
}
