//! Calls of host-device, for which a veth with its other end elsewhere stands for the hardware.

use crate::configs::{v4, with};
use crate::subjects::node_with_pod;
use serde_json::{Value, json};
use testns::{Container, Namespace, Node};

/// The folder of what the plugin has to give back.
pub const RECORDS: &str = "/run/cni/host-device";

pub fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": "host-device", "device": "dev1", "ipam": v4()});
    with(base, own)
}

/// The device, in use: up, with an address of each family and an MTU of its own; and what is at its other end.
pub fn device(node: &Node) -> Namespace {
    let beyond = node.remote("beyond");
    node.host().add_veth("dev1", &beyond, "near");
    node.host().set_mtu("dev1", 1400);
    node.host().add_address("dev1", "192.0.2.1/24");
    node.host().add_address("dev1", "fd01::1/64");
    node.host().wait_until_settled("dev1");
    node.remember();
    beyond
}

pub fn device_and_pod() -> (Node, Container) {
    let (node, pod) = node_with_pod();
    device(&node);
    (node, pod)
}

/// Checks that the device is on the host with all that it had, and that no record is left.
#[track_caller]
pub fn assert_home(node: &Node, point: &str) {
    let changes = node.changes();
    let left: Vec<_> = changes.lines().filter(|line| !may_stay(line)).collect();
    assert!(left.is_empty(), "{point}:\n{}", left.join("\n"));
    assert_eq!(records(), Vec::<String>::new(), "{point}");
}

/// Returns whether DEL leaves this line of a snapshot.
pub fn may_stay(line: &str) -> bool {
    // The kernel's own addresses and routes come with the carrier; the store's own files and the folder of records stay.
    line.contains("/var/lib/cni")
        || line.contains("/run/cni")
        || line.contains("folder /run/mount")
        || line.contains(" fe80::")
        || line.contains(" route ") && line.contains("::") && line.contains(" table 255 ")
}

pub fn records() -> Vec<String> {
    let entries = std::fs::read_dir(RECORDS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
