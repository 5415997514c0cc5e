//! Address plugins of other makes, which run as processes: those that use the container's link, as dhcp does, find it.

use crate::interface_plugins::{BRIDGE, HOST_DEVICE, InterfacePlugin, MACVLAN, PTP, TAP};
use crate::prelude::*;
use std::fs;
use testns::{Reply, Subject};

/// Notes with each call whether the container has the link. ADD prints `result`.
fn install_witness(node: &Node, result: &Value) {
    let path = node.bin_dir().join("witness");
    let log = node.work_dir().join("witness.log");
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in VERSION) \
         echo '{{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}}'; exit ;; esac\n\
         echo $CNI_COMMAND $(nsenter --net=\"$CNI_NETNS\" grep -c \"$CNI_IFNAME:\" /proc/net/dev) >>{}\n\
         case $CNI_COMMAND in ADD) echo '{result}' ;; esac\n",
        log.display()
    );
    testns::write_executable(path, script).unwrap();
}

fn log(node: &Node) -> String {
    fs::read_to_string(node.work_dir().join("witness.log")).unwrap_or_default()
}

fn usable() -> Value {
    json!({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}]})
}

/// No interface can have such a route, so ADD fails after the address plugin.
fn unusable() -> Value {
    json!({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]})
}

/// The interface plugins that make the link first.
fn kinds() -> impl Iterator<Item = InterfacePlugin> {
    [BRIDGE, HOST_DEVICE, MACVLAN, TAP].into_iter().filter(|kind| kind.is_known())
}

fn config(kind: InterfacePlugin) -> Value {
    kind.config(0, json!({"cniVersion": "1.0.0", "ipam": {"type": "witness"}}))
}

fn add(node: &Node, config: &Value, pod: &Container) -> Reply {
    node.call(Verb::Add, config, pod)
}

#[test]
fn address_plugin_of_another_make_finds_the_link() {
    for kind in kinds() {
        let (plugin, (node, _outside)) = (kind.name, kind.node(1));
        install_witness(&node, &usable());
        let (pod, config) = (node.container(), config(kind));
        let result = add(&node, &config, &pod).ok();
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.9.0.5/24"], "{plugin}");
        assert_eq!(result["ips"][0]["gateway"], "10.9.0.1", "{plugin}");
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
        node.call(Verb::Del, &config, &pod).ok();
        let log = log(&node);
        assert!(log.starts_with("ADD 1\n") && log.ends_with("DEL 0\n"), "{plugin}: {log}");
    }
}

#[test]
fn failed_add_releases_the_address_after_the_link() {
    for kind in kinds() {
        let (plugin, (node, _outside)) = (kind.name, kind.node(1));
        install_witness(&node, &unusable());
        let pod = node.container();
        add(&node, &config(kind), &pod).fails();
        assert_eq!(log(&node), "ADD 1\nDEL 0\n", "{plugin}");
        assert!(pod.namespace().find_link("eth0").is_none(), "{plugin}");
        // Objects that attachments share stay: the bridge, forwarding, and the base chains of the packet filter. A device that
        // was in the container gets its link-local address from the kernel again, in its own time.
        let stays = ["br0", "/run/cni", "ip_forward", "nft chain", "nft table", "uplink", "dev0"];
        node.assert_as_before_except(|line| stays.iter().any(|part| line.contains(part)));
    }
}

/// A container with CAP_NET_ADMIN may rename its link as soon as it is there.
#[test]
fn link_that_is_renamed_while_the_address_plugin_runs_fails_add() {
    let node = node();
    let path = node.bin_dir().join("witness");
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in ADD) \
         nsenter --net=\"$CNI_NETNS\" ip link set eth0 name zz && echo '{}' ;; esac\n",
        usable()
    );
    testns::write_executable(path, script).unwrap();
    let pod = node.container();
    let error = add(&node, &config(BRIDGE), &pod).fails_with(100);
    assert!(error.msg.ends_with("it was renamed zz during ADD"), "{error:?}");
    assert!(pod.namespace().find_link("zz").is_none());
}

/// Host-local needs no link, so an ADD that it refuses makes none, not even the bridge; nor does one whose plugin is not installed.
#[test]
fn address_plugin_that_refuses_or_is_not_installed_is_noticed_before_anything_is_made() {
    for ipam in [json!({"type": "host-local", "subnet": "10.9.0.0/33"}), json!({"type": "witness"})] {
        let node = node();
        node.remember();
        add(&node, &bridge(json!({"ipam": ipam})), &node.container()).fails();
        node.assert_as_before();
    }
}

#[test]
fn ptp_and_bridge_call_the_address_plugin_when_the_reference_does() {
    let Some(reference) = reference_or_skip() else { return };
    for kind in [PTP, BRIDGE] {
        let logs = [&Subject::ours(), &reference].map(|subject| {
            let node = Node::with(subject);
            install_witness(&node, &usable());
            add(&node, &config(kind), &node.container()).ok();
            log(&node)
        });
        assert_eq!(logs[0], logs[1], "{}", kind.name);
    }
}
