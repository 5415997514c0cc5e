//! Address plugins of other makes, which run as processes: those that use the container's link, as dhcp does, find it.

use crate::configs::{bridge, with};
use crate::subjects::{node as plain_node, reference_or_skip};
use serde_json::{Value, json};
use std::fs;
use testns::{Call, Container, Feature, Node, Reply, Subject, Verb};

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

/// The interface plugins that make the link first, each with the keys that it needs here.
fn subjects() -> Vec<(&'static str, Value)> {
    let mut subjects = vec![
        ("bridge", json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "macspoofchk": true})),
        ("host-device", json!({"device": "uplink"})),
    ];
    if Feature::Macvlan.or_skip() {
        subjects.push(("macvlan", json!({"master": "uplink"})));
    }
    if Feature::Tun.or_skip() {
        subjects.push(("tap", json!({})));
    }
    subjects
}

fn config(plugin: &str, own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": {"type": "witness"}});
    with(base, own)
}

fn on(node: Node) -> (Node, testns::Namespace) {
    let outside = node.remote("outside");
    node.host().add_veth("uplink", &outside, "outside");
    node.remember();
    (node, outside)
}

fn add(node: &Node, config: &Value, pod: &Container) -> Reply {
    node.call(Verb::Add, config, pod)
}

#[test]
fn address_plugin_of_another_make_finds_the_link() {
    for (plugin, own) in subjects() {
        let (node, _outside) = on(plain_node());
        install_witness(&node, &usable());
        let (pod, config) = (node.container(), config(plugin, own));
        let result = add(&node, &config, &pod).ok();
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.9.0.5/24"], "{plugin}");
        assert_eq!(result["ips"][0]["gateway"], "10.9.0.1", "{plugin}");
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
        node.call(Verb::Del, &config, &pod).ok();
        let log = log(&node);
        assert!(log.starts_with("ADD 1\n") && log.ends_with("DEL 0\n"), "{plugin}: {log}");
    }
}

/// The address is released when no link has it any more.
#[test]
fn failed_add_releases_the_address_after_the_link() {
    for (plugin, own) in subjects() {
        let (node, _outside) = on(plain_node());
        install_witness(&node, &unusable());
        let pod = node.container();
        add(&node, &config(plugin, own), &pod).fails();
        assert_eq!(log(&node), "ADD 1\nDEL 0\n", "{plugin}");
        assert!(pod.namespace().find_link("eth0").is_none(), "{plugin}");
        // Objects that attachments share stay: the bridge, forwarding, and the base chains of the packet filter. A device that
        // was in the container gets its link-local address from the kernel again, in its own time.
        let stays = ["br0", "/run/cni", "ip_forward", "nft chain", "nft table", "dev uplink", "on uplink"];
        node.assert_as_before_except(|line| stays.iter().any(|part| line.contains(part)));
    }
}

/// A container with CAP_NET_ADMIN may rename its link as soon as it is there.
#[test]
fn link_that_is_renamed_while_the_address_plugin_runs_fails_add() {
    let node = plain_node();
    let path = node.bin_dir().join("witness");
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in ADD) \
         nsenter --net=\"$CNI_NETNS\" ip link set eth0 name zz && echo '{}' ;; esac\n",
        usable()
    );
    testns::write_executable(path, script).unwrap();
    let pod = node.container();
    let error = add(&node, &config("bridge", json!({"bridge": "br0"})), &pod).fails_with(100);
    assert!(error.msg.ends_with("it was renamed zz during ADD"), "{error:?}");
    assert!(pod.namespace().find_link("zz").is_none());
}

/// Host-local needs no link, so an ADD that it refuses makes none, not even the bridge.
#[test]
fn address_plugin_of_the_suite_is_called_before_anything_is_made() {
    let node = plain_node();
    node.remember();
    let refused = json!({"ipam": {"type": "host-local", "subnet": "10.9.0.0/33"}});
    add(&node, &bridge(refused), &node.container()).fails();
    node.assert_as_before();
}

#[test]
fn address_plugin_that_is_not_installed_is_missed_before_anything_is_made() {
    let node = plain_node();
    node.remember();
    add(&node, &bridge(json!({"ipam": {"type": "witness"}})), &node.container()).fails();
    node.assert_as_before();
}

/// ptp calls the address plugin first, as the reference's does.
#[test]
fn ptp_and_bridge_call_the_address_plugin_when_the_reference_does() {
    let Some(reference) = reference_or_skip() else { return };
    for (plugin, own) in [("ptp", json!({})), ("bridge", json!({"bridge": "br0"}))] {
        let logs = [&Subject::ours(), &reference].map(|subject| {
            let (node, _outside) = on(Node::with(subject));
            install_witness(&node, &usable());
            add(&node, &config(plugin, own.clone()), &node.container()).ok();
            log(&node)
        });
        assert_eq!(logs[0], logs[1], "{plugin}");
    }
}
