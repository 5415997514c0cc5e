//! What all interface plugins but bridge have in common: a table of them, and each test by that table.

mod add;
mod at_once;
mod check;
mod del;
mod gateways;
mod limits;
mod living;
mod packets;
mod renamed;
mod service;

use crate::bridge;
use crate::configs::{dual, with};
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Feature, Namespace, Node};

/// The folder of the network's reservations.
const STORE: &str = "/var/lib/cni/networks/net";

/// An interface plugin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// What the kernel needs for it, if not all have that.
    feature: Option<Feature>,
    pub(crate) place: Place,
    /// The plugin's own keys, for the container of a number.
    own: fn(usize) -> Value,
}

/// Where the plugin's link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A pair: one end in the container, one on the node.
    Pair,
    /// In the container, on the node's link `uplink`.
    Upon,
    /// The node's link `devN`, which the container gets.
    Device,
    /// In the container alone.
    Inside,
}

pub(crate) const BRIDGE: Kind = Kind {
    name: "bridge",
    feature: None,
    place: Place::Pair,
    own: |_| json!({"bridge": "br0", "isGateway": true, "ipMasq": true}),
};
pub(crate) const PTP: Kind = Kind { name: "ptp", feature: None, place: Place::Pair, own: |_| json!({"ipMasq": true}) };
pub(crate) const MACVLAN: Kind =
    Kind { name: "macvlan", feature: Some(Feature::Macvlan), place: Place::Upon, own: |_| json!({"master": "uplink"}) };
pub(crate) const IPVLAN: Kind =
    Kind { name: "ipvlan", feature: Some(Feature::Ipvlan), place: Place::Upon, own: |_| json!({"master": "uplink"}) };
/// A VLAN of a master can be in one container only.
pub(crate) const VLAN: Kind = Kind {
    name: "vlan",
    feature: Some(Feature::Vlan),
    place: Place::Upon,
    own: |number| json!({"master": "uplink", "vlanId": 100 + number}),
};
pub(crate) const HOST_DEVICE: Kind = Kind {
    name: "host-device",
    feature: None,
    place: Place::Device,
    own: |number| json!({"device": format!("dev{number}")}),
};
pub(crate) const TAP: Kind =
    Kind { name: "tap", feature: Some(Feature::Tun), place: Place::Inside, own: |_| json!({}) };
pub(crate) const DUMMY: Kind =
    Kind { name: "dummy", feature: Some(Feature::Dummy), place: Place::Inside, own: |_| json!({}) };

impl Kind {
    /// Runs a test, unless the kernel lacks the kind.
    pub(crate) fn run(self, test: fn(Self)) {
        if self.is_known() {
            test(self);
        }
    }

    /// Whether the kernel has the kind; prints that the test skips it if not.
    pub(crate) fn is_known(self) -> bool {
        self.feature.is_none_or(Feature::or_skip)
    }

    /// Network `net` with an address of each family, for the container of a number; `own` adds keys or replaces them.
    pub(crate) fn config(self, number: usize, own: Value) -> Value {
        let base = json!({"cniVersion": "1.1.0", "name": "net", "type": self.name, "ipam": dual()});
        with(with(base, (self.own)(number)), own)
    }

    /// A node with what the configs of so many containers name, and the namespace that the containers' links lead to.
    pub(crate) fn node(self, containers: usize) -> (Node, Namespace) {
        let node = node();
        let outside = self.place.lay(&node, containers);
        (node, outside)
    }

    /// Whether a line of the node's changes may be there after DEL: what stays on purpose, and what the kernel does in its
    /// own time with the link that a container's is on.
    pub(crate) fn stays(self, line: &str) -> bool {
        bridge::stays(line) || self.place == Place::Upon && line.contains("link uplink ")
    }
}

impl Place {
    /// Makes on the node what so many containers' links need, and the namespace that they lead to; the node is remembered with
    /// it.
    pub(crate) fn lay(self, node: &Node, containers: usize) -> Namespace {
        let outside = node.remote("outside");
        // The kernel adds link-local addresses in its own time, which a test would take for the plugin's doing.
        let quiet = |link: &str| node.host().set_sysctl(&format!("net/ipv6/conf/{link}/disable_ipv6"), "1");
        match self {
            Self::Upon => {
                node.host().add_veth("uplink", &outside, "outside");
                quiet("uplink");
            }
            Self::Device => {
                quiet("default");
                outside.add_link("outside", "bridge");
                for number in 0..containers {
                    let (device, near) = (format!("dev{number}"), format!("near{number}"));
                    node.host().add_veth(&device, &outside, &near);
                    node.host().set_mtu(&device, 1450);
                    node.host().add_address(&device, &format!("192.0.{number}.1/24"));
                    outside.set_master(&near, "outside");
                }
            }
            Self::Pair | Self::Inside => {}
        }
        node.remember();
        outside
    }
}

/// The addresses that are reserved in the network.
fn held() -> Vec<String> {
    let entries = std::fs::read_dir(STORE).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// A module for each of the kinds, with the tests of these names.
macro_rules! each_kind {
    ($($module:ident: $kind:ident),*; $tests:tt) => { $(
        mod $module {
            crate::kinds::tests! { $kind $tests }
        }
    )* };
}

macro_rules! tests {
    ($kind:ident ($($test:ident)*)) => { $(
        #[test]
        fn $test() {
            crate::kinds::$kind.run(super::$test);
        }
    )* };
}

pub(crate) use {each_kind, tests};
