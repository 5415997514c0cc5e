//! DEL of a link in the container alone, whose name, alias and Ethernet address the container has changed.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held};
use crate::prelude::*;
use testns::Reply;

/// Returns whether such a link has an Ethernet address of its own, not its master's.
fn has_own_mac(kind: InterfacePlugin) -> bool {
    matches!(kind.name, "macvlan" | "tap" | "dummy")
}

/// Changes name and alias of the link, as a container with CAP_NET_ADMIN can.
fn disguise(pod: &Container) {
    pod.namespace().set_down("eth0");
    pod.namespace().rename("eth0", "evil");
    pod.namespace().set_alias("evil", "x");
    pod.namespace().set_up("evil");
}

/// Asserts that a line of stderr names the link and has the text.
#[track_caller]
fn assert_warns(reply: &Reply, link: &str, text: &str) {
    let stderr = &reply.output.stderr;
    assert!(stderr.lines().any(|line| line.contains(link) && line.contains(text)), "{stderr}");
}

fn a_link_under_another_name_and_alias_is_removed_by_its_ethernet_address(kind: InterfacePlugin) {
    for mode in ["bridge", "passthru"] {
        let own = if kind.name == "macvlan" { json!({"mode": mode}) } else { json!({}) };
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, own.clone()), &pod);
        disguise(&pod);
        let reply = attached.del();
        reply.ok();
        assert_warns(&reply, "evil", "removed by its Ethernet address");
        assert!(pod.namespace().find_link("evil").is_none());
        assert_eq!(held(), Vec::<String>::new());
        // DEL is silent where nothing is left.
        let again = attached.del();
        again.ok();
        assert!(!again.output.stderr.contains("left"), "{}", again.output.stderr);
        Attached::add(&node, &kind.config(0, own), &node.container()).del().ok();
    }
}

/// Nothing shows that it is the attachment's: a link of another attachment never goes.
fn a_link_that_nothing_identifies_is_left_and_named(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(2);
    let pod = node.container();
    let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
    let own = json!({"name": "other", "ipam": {"type": "host-local", "subnet": "10.8.0.0/24"}});
    let other = Attached::add(&node, &kind.config(1, own), pod.attachment_as("net1"));
    disguise(&pod);
    if has_own_mac(kind) {
        pod.namespace().set_mac("evil", "0a:00:00:00:00:01");
        pod.namespace().set_mac("net1", attached.result["interfaces"][0]["mac"].as_str().unwrap());
    } else {
        for address in pod.namespace().global_addresses("evil") {
            pod.namespace().delete_address("evil", &address);
        }
    }
    let reply = attached.del();
    reply.ok();
    assert_warns(&reply, "evil", "no alias says whose");
    if has_own_mac(kind) {
        assert_warns(&reply, "net1", "its alias names another one");
    }
    assert!(pod.namespace().find_link("net1").is_some() && pod.namespace().find_link("evil").is_some());
    assert_eq!(held(), Vec::<String>::new());
    other.del().ok();
    assert!(pod.namespace().find_link("net1").is_none());
}

/// The decoy has the interface's name and the attachment's alias, and is of the same kind.
fn a_decoy_does_not_save_the_link(kind: InterfacePlugin) {
    if kind.place == LinkPlace::Upon {
        return;
    }
    for alias in ["", "the attachment's"] {
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
        disguise(&pod);
        let decoy = kind.config(1, json!({"name": "decoy"}));
        Attached::add(&node, &decoy, &pod);
        let mark = format!("cni:net/{}/eth0", pod.id());
        pod.namespace().set_alias("eth0", if alias.is_empty() { "" } else { &mark });
        let reply = attached.del();
        reply.ok();
        assert_warns(&reply, "evil", "removed by its Ethernet address");
        assert!(pod.namespace().find_link("evil").is_none() && pod.namespace().find_link("eth0").is_none());
    }
}

each_interface_plugin! {
    macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (
        a_link_under_another_name_and_alias_is_removed_by_its_ethernet_address
        a_link_that_nothing_identifies_is_left_and_named
        a_decoy_does_not_save_the_link
    )
}
