//! DEL in every way in which a runtime calls it.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held};
use crate::configs::{Attached, with};
use serde_json::{Value, json};
use testns::{Attachment, Call, Container, Remains, Verb};

/// Keys of which each plugin's ADD refuses one at least.
fn refused() -> Value {
    let ipam = json!({"type": "host-local", "ranges": "none", "subnet": 5, "routes": 5});
    json!({"mtu": -1, "master": 5, "mode": 5, "vlanId": "x", "device": 5, "owner": [], "ipMasq": "yes", "dns": 5, "ipam": ipam})
}

/// ADD with these keys; then DEL as `del` makes it of the attachment, three times; then nothing is left of it.
fn ends(kind: InterfacePlugin, remains: Remains, own: Value, del: impl Fn(&Attached<'_>, Attachment) -> Call) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let attached = Attached::add(&node, &kind.config(0, own), &pod);
    assert_eq!(held().len(), 2);
    let attachment = pod.leave(remains);
    for _ in 0..3 {
        del(&attached, attachment.clone()).run(&node).ok();
        assert_eq!(held(), Vec::<String>::new());
    }
    assert_ended(kind, &pod, remains);
    // A device that is no hardware ends with its namespace.
    let has_ended = |line: &str| {
        kind.place == LinkPlace::Device
            && !is_there(remains)
            && ["dev0", "/dev0/"].iter().any(|name| line.contains(name))
    };
    node.assert_as_before_except(|line| kind.stays(line) || has_ended(line));
}

/// The container's link is gone, where DEL could know of it.
fn assert_ended(kind: InterfacePlugin, pod: &Container, remains: Remains) {
    let is_known = remains == Remains::Alive || matches!(kind.place, LinkPlace::Pair | LinkPlace::Device);
    if is_there(remains) && is_known {
        assert!(pod.namespace().find_link("eth0").is_none());
    }
}

fn is_there(remains: Remains) -> bool {
    matches!(remains, Remains::Alive | Remains::EmptyPath)
}

/// DEL as a runtime calls it that has kept everything.
fn whole(attached: &Attached<'_>, attachment: Attachment) -> Call {
    bare(attached, attachment).prev_result(&attached.result)
}

fn bare(attached: &Attached<'_>, attachment: Attachment) -> Call {
    Call::new(Verb::Del, &attached.config, attachment)
}

fn del_may_be_repeated(kind: InterfacePlugin) {
    ends(kind, Remains::Alive, json!({}), whole);
}

fn del_needs_no_prev_result(kind: InterfacePlugin) {
    ends(kind, Remains::Alive, json!({}), bare);
}

fn del_needs_no_namespace(kind: InterfacePlugin) {
    ends(kind, Remains::EmptyPath, json!({}), whole);
    ends(kind, Remains::EmptyPath, json!({}), bare);
}

fn del_takes_a_stale_namespace(kind: InterfacePlugin) {
    ends(kind, Remains::Gone, json!({}), whole);
    ends(kind, Remains::PlainFile, json!({}), bare);
}

/// The path `/proc/PID/ns/net` leads to the node's namespace once the pid belongs to a process of the node.
fn del_takes_the_nodes_namespace_for_one_that_is_gone(kind: InterfacePlugin) {
    let of_the_node = |attachment| Attachment { netns: "/proc/self/ns/net".to_owned(), ..attachment };
    ends(kind, Remains::EmptyPath, json!({}), |attached, attachment| whole(attached, of_the_node(attachment)));
}

fn del_needs_no_runtime_config(kind: InterfacePlugin) {
    let own = json!({"runtimeConfig": {"ips": ["10.7.0.77/24", "fd07::77/64"], "mac": "0a:00:00:00:00:07"}});
    ends(kind, Remains::Alive, own, |attached, attachment| {
        whole(attached, attachment).with_config(|config| drop(config.as_object_mut().unwrap().remove("runtimeConfig")))
    });
}

fn del_takes_a_config_that_add_refuses(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    node.call(Verb::Add, with(kind.config(0, json!({})), refused()), &node.container()).fails();
    drop(node);
    ends(kind, Remains::Alive, json!({}), |attached, attachment| {
        whole(attached, attachment).with_config(|config| *config = with(config.clone(), refused()))
    });
}

// The kit has rules for these, and `.ci/run` tries them on the plugins whose links most kernels have.
each_interface_plugin! {
    ipvlan: IPVLAN, vlan: VLAN, dummy: DUMMY;
    (
        del_may_be_repeated
        del_needs_no_prev_result
        del_needs_no_namespace
        del_takes_a_stale_namespace
        del_takes_the_nodes_namespace_for_one_that_is_gone
        del_needs_no_runtime_config
        del_takes_a_config_that_add_refuses
    )
}

each_interface_plugin! {
    ptp: PTP, macvlan: MACVLAN, host_device: HOST_DEVICE, tap: TAP;
    (del_takes_the_nodes_namespace_for_one_that_is_gone del_takes_a_config_that_add_refuses)
}
