//! All or nothing, at every step: an ADD that fails or is asked to stop leaves the node as it was.
//!
//! Each test goes through all points of a call: first system call, second, ... until the call ends before its nth.
//! The pools hold one address each, so a leaked address makes the next ADD fail.

mod chained;
mod every_call;
mod kill;
mod plugins;
mod reference;
mod rollback;
mod runtime;

use crate::configs::{self, with};
use crate::interface_plugins::{self, InterfacePlugin, LinkPlace};
use serde_json::{Value, json};
use std::sync::OnceLock;
use testns::{Attachment, Call, Container, Node, Remains, Snapshot, Verb};

#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    place: LinkPlace,
    config: fn() -> Value,
}

const PLAIN: Scenario = Scenario {
    name: "plain",
    place: LinkPlace::Pair,
    config: || configs::bridge(json!({"cniVersion": "1.1.0", "ipam": one_v4()})),
};
const GATEWAY: Scenario = Scenario {
    name: "dual stack with default gateway",
    place: LinkPlace::Pair,
    config: || configs::bridge(json!({"cniVersion": "1.1.0", "isDefaultGateway": true, "ipam": one_each()})),
};
/// Everything that needs nft, in both families.
const FILTERED: Scenario = Scenario {
    name: "masquerade and spoof guard",
    place: LinkPlace::Pair,
    config: || {
        let own = json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "isGateway": true});
        with(configs::bridge(json!({"cniVersion": "1.1.0", "ipam": one_each()})), own)
    },
};
/// Elements of shared rules, in both families.
const SHARED: Scenario = Scenario {
    name: "shared rules",
    place: LinkPlace::Pair,
    config: || {
        let own = json!({"ipMasq": true, "rules": "shared", "isGateway": true});
        with(configs::bridge(json!({"cniVersion": "1.1.0", "ipam": one_each()})), own)
    },
};
/// A link of its own to the node, which routes; masqueraded.
const PTP: Scenario = of(interface_plugins::PTP, || routed(one_v4()));
/// The same with both families, which takes seconds: the container looks for duplicates of its address.
const PTP_DUAL: Scenario = Scenario { name: "ptp, dual stack", ..of(interface_plugins::PTP, || routed(one_each())) };
const MACVLAN: Scenario = of(interface_plugins::MACVLAN, || one_of(interface_plugins::MACVLAN, json!({"mtu": 1400})));
const IPVLAN: Scenario = of(interface_plugins::IPVLAN, || one_of(interface_plugins::IPVLAN, json!({"mtu": 1400})));
const VLAN: Scenario = of(interface_plugins::VLAN, || one_of(interface_plugins::VLAN, json!({"mtu": 1400})));
const HOST_DEVICE: Scenario = of(interface_plugins::HOST_DEVICE, || one_of(interface_plugins::HOST_DEVICE, json!({})));
const TAP: Scenario =
    of(interface_plugins::TAP, || one_of(interface_plugins::TAP, json!({"mtu": 1400, "multiQueue": true})));
const DUMMY: Scenario = of(interface_plugins::DUMMY, || one_of(interface_plugins::DUMMY, json!({})));
const ALL: [Scenario; 4] = [PLAIN, GATEWAY, FILTERED, SHARED];

const fn of(kind: InterfacePlugin, config: fn() -> Value) -> Scenario {
    Scenario { name: kind.name, place: kind.place, config }
}

/// An address of each family, of which the network has no other.
fn one_of(kind: InterfacePlugin, own: Value) -> Value {
    kind.config(0, with(json!({"ipam": one_each()}), own))
}

fn routed(ipam: Value) -> Value {
    let ipam = with(ipam, json!({"routes": [{"dst": "0.0.0.0/0"}]}));
    interface_plugins::PTP.config(0, json!({"ipMasqBackend": "nftables", "ipam": ipam}))
}

fn one_v4() -> Value {
    json!({"type": "host-local", "subnet": "10.7.0.0/30"})
}

fn one_each() -> Value {
    let v6 = json!({"subnet": "fd07::/64", "rangeStart": "fd07::2", "rangeEnd": "fd07::2"});
    json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/30"}], [v6]]})
}

impl Scenario {
    /// A node that has never had a container, with what the config names.
    fn node(self) -> Node {
        let node = crate::subjects::node();
        self.place.lay(&node, 1);
        node
    }

    fn add(self, pod: &Container) -> Call {
        Call::new(Verb::Add, (self.config)(), pod)
    }

    fn del(self, attachment: impl Into<Attachment>) -> Call {
        Call::new(Verb::Del, (self.config)(), attachment)
    }

    /// Attaches and detaches one container, and remembers the node as it is then for comparison: what stays for the
    /// next container (the bridge, the store's own files, empty tables) is there from now on.
    fn warm_up(self, node: &Node) {
        let pod = node.container_without_probes();
        let result = self.add(&pod).run(node).ok();
        self.del(&pod).prev_result(&result).run(node).ok();
        pod.leave(Remains::Gone);
        node.remember();
    }

    /// Checks that the pool's only addresses are free, by using them.
    #[track_caller]
    fn assert_addresses_are_free(self, node: &Node, point: &str) {
        let pod = node.container_without_probes();
        let reply = self.add(&pod).run(node);
        assert!(reply.output.code() == 0, "{point}: an address leaked: {reply}");
        let reply = self.del(&pod).prev_result(&reply.ok()).run(node);
        assert!(reply.output.code() == 0, "{point}: {reply}");
        pod.leave(Remains::Gone);
    }
}

#[track_caller]
fn assert_clean(node: &Node, point: &str) {
    let left = changes(node);
    assert!(left.is_empty(), "{point}: left on the node:\n{left}");
}

/// Changes of the node since it was remembered, except for host-local's own notes.
fn changes(node: &Node) -> String {
    let all = node.changes();
    let counts = |line: &&str| !is_bookkeeping(line) && !is_settling(line) && !is_forwarding(line);
    all.lines().filter(counts).map(|line| format!("{line}\n")).collect()
}

/// The kernel's own routes to the IPv6 addresses of a bridge or port come and go with its carrier. The addresses
/// themselves have lines of their own.
fn is_settling(line: &str) -> bool {
    line.contains(" route ") && line.contains("::") && line.contains(" table 255 ")
}

/// Forwarding is for the whole node and stays on, as documented; it turns redirects off.
fn is_forwarding(line: &str) -> bool {
    let key = line.get(2..).and_then(|line| line.strip_prefix("sysctl net/")).unwrap_or_default();
    ["/forwarding = ", "/ip_forward = ", "/accept_redirects = "].iter().any(|name| key.contains(name))
}

/// The store's folders and files that stay and are no reservations, and notes but a device's: that one ends with DEL.
fn is_bookkeeping(line: &str) -> bool {
    const FILES: [&str; 3] = ["lock", "last_reserved_ip.0", "last_reserved_ip.1"];
    let Some(path) = line.get(2..).and_then(|line| line.split(' ').nth(1)) else {
        return false;
    };
    match path.strip_prefix("/var/lib/cni/networks") {
        Some("" | "/net") => true,
        Some(below) => below.strip_prefix("/net/").is_some_and(|name| FILES.contains(&name)),
        None => path.starts_with("/run/cni") && !path.starts_with("/run/cni/host-device/"),
    }
}

/// Tests all points of a call until `at` reports that there is no point of that number; prints how many there were.
fn each_point(what: &str, mut at: impl FnMut(usize) -> bool) {
    let count = (1..).take_while(|n| at(*n)).count();
    // Two transactions of the packet filter and the reply are three points.
    assert!(count > 2, "{what}: only {count} points were found");
    testns::note(&format!("POINTS {what}: {count}"));
}

/// Checks that a container is like a new one. All new ones are alike, so one snapshot serves for all.
#[track_caller]
fn assert_new(node: &Node, pod: &Container, point: &str) {
    static NEW: OnceLock<Snapshot> = OnceLock::new();
    let new = NEW.get_or_init(|| node.container().namespace().snapshot());
    let left = testns::changes(new, &pod.namespace().snapshot());
    assert!(left.is_empty(), "{point}: left in the container:\n{left}");
}

fn inside_links(pod: &Container) -> Vec<String> {
    pod.namespace().links().into_iter().map(|link| link.name).collect()
}
