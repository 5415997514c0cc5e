//! A table of the interface plugins, by which each can be tested alike.

use crate::configs::{dual, with};
use crate::shared_objects;
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Feature, Namespace, Node};

#[derive(Debug, Clone, Copy)]
pub struct InterfacePlugin {
    pub name: &'static str,
    /// The kernel's feature that the kind needs, if not all kernels have it.
    pub feature: Option<Feature>,
    pub place: LinkPlace,
    /// The plugin's own keys, for the container of a number.
    own: fn(usize) -> Value,
}

/// Where the plugin's link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPlace {
    /// A pair: one end in the container, one on the node.
    Pair,
    /// In the container, on the node's link `uplink`.
    Upon,
    /// The node's link `devN`, which the container gets.
    Device,
    /// In the container alone.
    Inside,
}

const fn kind(
    name: &'static str,
    feature: Option<Feature>,
    place: LinkPlace,
    own: fn(usize) -> Value,
) -> InterfacePlugin {
    InterfacePlugin { name, feature, place, own }
}

pub const BRIDGE: InterfacePlugin =
    kind("bridge", None, LinkPlace::Pair, |_| json!({"bridge": "br0", "isGateway": true, "ipMasq": true}));
pub const PTP: InterfacePlugin = kind("ptp", None, LinkPlace::Pair, |_| json!({"ipMasq": true}));
/// On `uplink`.
pub const MACVLAN: InterfacePlugin =
    kind("macvlan", Some(Feature::Macvlan), LinkPlace::Upon, |_| json!({"master": "uplink"}));
/// On `uplink`.
pub const IPVLAN: InterfacePlugin =
    kind("ipvlan", Some(Feature::Ipvlan), LinkPlace::Upon, |_| json!({"master": "uplink"}));
/// A VLAN on `uplink`: a VLAN of a master can be in one container only.
pub const VLAN: InterfacePlugin =
    kind("vlan", Some(Feature::Vlan), LinkPlace::Upon, |number| json!({"master": "uplink", "vlanId": 100 + number}));
/// With device `devN`.
pub const HOST_DEVICE: InterfacePlugin =
    kind("host-device", None, LinkPlace::Device, |number| json!({"device": format!("dev{number}")}));
/// Without keys.
pub const TAP: InterfacePlugin = kind("tap", Some(Feature::Tun), LinkPlace::Inside, |_| json!({}));
/// Without keys.
pub const DUMMY: InterfacePlugin = kind("dummy", Some(Feature::Dummy), LinkPlace::Inside, |_| json!({}));

pub const ALL: [InterfacePlugin; 8] = [BRIDGE, PTP, MACVLAN, IPVLAN, VLAN, HOST_DEVICE, TAP, DUMMY];

impl InterfacePlugin {
    /// Runs a test, unless the kernel lacks the kind.
    pub fn run(self, test: fn(Self)) {
        if self.is_known() {
            test(self);
        }
    }

    pub fn is_known(self) -> bool {
        self.feature.is_none_or(Feature::or_skip)
    }

    /// Network `net` with an address of each family, for the container of a number; `own` adds keys or replaces them.
    pub fn config(self, number: usize, own: Value) -> Value {
        let base = json!({"cniVersion": "1.1.0", "name": "net", "type": self.name, "ipam": dual()});
        with(with(base, (self.own)(number)), own)
    }

    /// A node with what the configs of so many containers name, and the namespace that the containers' links lead to.
    pub fn node(self, containers: usize) -> (Node, Namespace) {
        let node = node();
        let outside = self.place.lay(&node, containers);
        (node, outside)
    }

    /// Whether a line of the node's changes may be there after DEL: what stays on purpose, and what the kernel does in its
    /// own time with the link that a container's is on.
    pub fn stays(self, line: &str) -> bool {
        shared_objects::stays(line) || self.place == LinkPlace::Upon && line.contains("link uplink ")
    }
}

impl LinkPlace {
    /// Makes on the node what so many containers' links need, and the namespace that they lead to; the node is remembered with
    /// it.
    pub fn lay(self, node: &Node, containers: usize) -> Namespace {
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
