//! Failures whose cause is on the node: other links, privileges, the kernel's features.

use super::Trouble;
use crate::configs::bridge;
use crate::subjects::skip;
use expect_test::expect;
use serde_json::json;
use std::path::Path;
use testns::Feature;

/// The kernel's `BR_MAX_PORTS` is 1024, and port 0 is not used.
const PORTS_MAX: usize = 1023;

/// The container already has an interface of that name.
#[test]
fn taken_ifname() {
    let trouble = Trouble::new();
    trouble.node.host().add_veth("other", trouble.pod.namespace(), "eth0");
    trouble.adding(
        &bridge(json!({})),
        &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 103,
            "msg": "cannot create interface eth0 in /run/netns/pod1: a veth of that name already exists",
            "details": "Call DEL for the attachment that has it, or use another CNI_IFNAME."
        }
    "#]],
    );
}

/// A link that is no bridge has the bridge's name.
#[test]
fn another_kind_of_link_by_the_bridges_name() {
    let trouble = Trouble::new();
    trouble.node.host().add_veth("br0", trouble.node.host(), "other");
    trouble.adding(
        &bridge(json!({})),
        &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 103,
            "msg": "cannot use bridge br0 on the host: br0 already exists and is a veth",
            "details": "Choose another name by key bridge. Undone: addresses released."
        }
    "#]],
    );
}

/// The bridge has the maximum number of ports.
#[test]
fn a_bridge_with_1024_ports() {
    let trouble = Trouble::new();
    trouble.node.host().add_link("br0", "bridge");
    trouble.node.host().crowd_bridge("br0", PORTS_MAX);
    trouble.adding(&bridge(json!({})), &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 100,
            "msg": "cannot create veth veth063f9704 with peer eth0 in /run/netns/pod1 on the host: there is no room for another",
            "details": "RTM_NEWLINK kind=veth name=veth063f9704 peer=eth0: EXFULL (54). Bridge br0 has as many ports as the kernel allows, 1023: remove some, run GC, or use another bridge. Undone: addresses released."
        }
    "#]]);
}

/// The plugin is root without the capability to change networks.
#[test]
fn no_cap_net_admin() {
    let Some(trouble) = unprivileged("exec /usr/bin/setpriv --bounding-set=-net_admin \"$CNI_PATH/bridge\"") else {
        return;
    };
    let call = trouble.add(&bridge(json!({}))).plugin("unprivileged");
    trouble.calling(&call, &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 102,
            "msg": "cannot create bridge br0 on the host: operation not permitted",
            "details": "RTM_NEWLINK kind=bridge name=br0: EPERM (1). The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace. Undone: addresses released."
        }
    "#]]);
}

/// As in a container of its own: root in a user namespace that does not own the node's network.
#[test]
fn root_of_another_user_namespace() {
    let Some(trouble) = unprivileged("exec /usr/bin/unshare --user --map-root-user \"$CNI_PATH/bridge\"") else {
        return;
    };
    let call = trouble.add(&bridge(json!({}))).plugin("unprivileged");
    trouble.calling(&call, &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 102,
            "msg": "cannot enter network namespace /run/netns/pod1: operation not permitted",
            "details": "setns CLONE_NEWNET: EPERM (1). The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace."
        }
    "#]]);
}

/// A node whose plugin `unprivileged` is bridge under a program that takes privileges away.
fn unprivileged(script: &str) -> Option<Trouble> {
    let program = script.split(' ').nth(1).expect("a program");
    if !Path::new(program).exists() {
        skip(&format!("there is no {program}"));
        return None;
    }
    let trouble = Trouble::new();
    let path = trouble.node.bin_dir().join("unprivileged");
    testns::write_executable(path, format!("#!/bin/sh\n{script}\n")).expect("write the script");
    Some(trouble)
}

/// The kernel was built without a feature that the config needs.
#[test]
fn a_kernel_without_vlan_filtering() {
    if Feature::BridgeVlanFiltering.is_here() {
        skip("this kernel has bridge VLAN filtering");
        return;
    }
    Trouble::new().adding(&bridge(json!({"vlan": 100})), &expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 101,
            "msg": "cannot create bridge br0 on the host: operation not supported",
            "details": "RTM_NEWLINK kind=bridge name=br0 vlan_filtering=1: EOPNOTSUPP (95). The kernel was built without CONFIG_BRIDGE_VLAN_FILTERING, which keys vlan and vlanTrunk need. Undone: addresses released."
        }
    "#]]);
}
