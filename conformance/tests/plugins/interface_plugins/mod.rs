//! What all interface plugins but bridge have in common: a table of them, and each test by that table.

mod add;
mod gateways;
mod limits;
mod other_attachments;
mod other_type;
mod packets;
mod renamed;

use crate::prelude::*;

pub(crate) use conformance::interface_plugins::*;

const STORE: &str = "/var/lib/cni/networks/net";

fn held() -> Vec<String> {
    let entries = std::fs::read_dir(STORE).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// What the kernel does in its own time with a link that is up.
pub(crate) fn is_kernels(line: &str) -> bool {
    line.contains(" fe80::") || line.contains(" route ff00::/8 ")
}

/// A module for each of the kinds, with the tests of these names.
/// With `mod NAME:` all of them are in a module of that name, for further kinds of the same file.
macro_rules! each_interface_plugin {
    (mod $name:ident: $($kinds:tt)*) => {
        mod $name {
            use super::*;

            crate::interface_plugins::each_interface_plugin! { $($kinds)* }
        }
    };
    ($($module:ident: $kind:ident),*; $tests:tt) => { $(
        mod $module {
            crate::interface_plugins::tests! { $kind $tests }
        }
    )* };
}

macro_rules! tests {
    ($kind:ident ($($test:ident)*)) => { $(
        #[test]
        fn $test() {
            crate::interface_plugins::$kind.run(super::$test);
        }
    )* };
}

pub(crate) use {each_interface_plugin, tests};

/// The kernel takes 0 for its default: for a route's table that is the main one, for an IPv6 metric 1024.
#[test]
fn numbers_of_routes_that_are_0_are_the_kernels_defaults() {
    let numbers = json!({"table": 0, "scope": 0, "priority": 0, "mtu": 0, "advmss": 0});
    let routes = json!(["0.0.0.0/0", "198.51.100.0/24", "::/0"].map(|dst| with(numbers.clone(), json!({"dst": dst}))));
    for kind in [BRIDGE, PTP, MACVLAN, HOST_DEVICE].into_iter().filter(|kind| kind.is_known()) {
        each(|_, node| {
            let _outside = kind.place.lay(node, 1);
            let pod = node.container();
            let config = kind.config(0, json!({"ipam": with(dual(), json!({"routes": routes}))}));
            let attached = Attached::add(node, &config, &pod);
            let tables = pod.namespace().routes().into_iter().filter(|route| route.to == "198.51.100.0/24");
            assert_eq!(tables.map(|route| route.table).collect::<Vec<_>>(), [254], "{}", kind.name);
            attached.check().ok();
            attached.del().ok();
        });
    }
}

/// Keys of which each plugin's ADD refuses one at least.
fn refused() -> Value {
    let ipam = json!({"type": "host-local", "ranges": "none", "subnet": 5, "routes": 5});
    json!({"mtu": -1, "master": 5, "mode": 5, "vlanId": "x", "device": 5, "owner": [], "ipMasq": "yes", "dns": 5, "ipam": ipam})
}

/// ADD; then DEL as `del` makes it of the attachment, three times; then nothing is left of it.
fn ends(kind: InterfacePlugin, remains: Remains, del: impl Fn(&Attached<'_>, Attachment) -> Call) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
    assert_eq!(held().len(), 2);
    let attachment = pod.leave(remains);
    for _ in 0..3 {
        del(&attached, attachment.clone()).run(&node).ok();
        assert_eq!(held(), Vec::<String>::new());
    }
    if remains == Remains::Alive || matches!(kind.place, LinkPlace::Pair | LinkPlace::Device) {
        assert!(pod.namespace().find_link("eth0").is_none());
    }
    node.assert_as_before_except(|line| kind.stays(line));
}

fn whole(attached: &Attached<'_>, attachment: Attachment) -> Call {
    Call::new(Verb::Del, &attached.config, attachment).prev_result(&attached.result)
}

/// The path `/proc/PID/ns/net` leads to the node's namespace once the pid belongs to a process of the node.
fn del_takes_the_nodes_namespace_for_one_that_is_gone(kind: InterfacePlugin) {
    let of_the_node = |attachment| Attachment { netns: "/proc/self/ns/net".to_owned(), ..attachment };
    ends(kind, Remains::EmptyPath, |attached, attachment| whole(attached, of_the_node(attachment)));
}

fn del_takes_a_config_that_add_refuses(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    node.call(Verb::Add, with(kind.config(0, json!({})), refused()), &node.container()).fails();
    drop(node);
    ends(kind, Remains::Alive, |attached, attachment| {
        whole(attached, attachment).with_config(|config| *config = with(config.clone(), refused()))
    });
}

each_interface_plugin! {
    ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, host_device: HOST_DEVICE, tap: TAP, dummy: DUMMY;
    (del_takes_the_nodes_namespace_for_one_that_is_gone del_takes_a_config_that_add_refuses)
}
