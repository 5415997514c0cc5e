//! A table of the chained plugins, by which each can be tested alike, and the bridge before them.

pub mod packet_filter;

use crate::configs::{Attached, bridge, dual, with};
use serde_json::{Value, json};
use testns::{Attachment, Feature, Node};

/// A chained plugin with a config that has all it can set.
#[derive(Debug, Clone, Copy)]
pub struct ChainedPlugin {
    /// The name.
    pub name: &'static str,
    /// The plugin's config, without prevResult.
    pub config: fn() -> Value,
    needs: Option<Feature>,
    /// Lines of the container that DEL leaves, as in the reference.
    pub stays_inside: fn(&str) -> bool,
    /// The reference's plugin to compare it with, if there is one.
    pub peer: Peer,
}

/// The part of a chained that Debian 12's reference has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The reference makes the same objects.
    Same,
    /// The reference makes the same rules of iptables, but not the notes that iptables does not show. Tests of the plugin
    /// compare them.
    ByIptables,
    /// The reference is too old for this.
    None,
}

const NOTHING: fn(&str) -> bool = |_| false;

const fn plugin(
    name: &'static str,
    config: fn() -> Value,
    needs: Option<Feature>,
    stays_inside: fn(&str) -> bool,
    peer: Peer,
) -> ChainedPlugin {
    ChainedPlugin { name, config, needs, stays_inside, peer }
}

/// The chained plugins.
pub const CHAINED_PLUGINS: [ChainedPlugin; 7] = [
    plugin("tuning", tuning, None, |line| line.contains(" sysctl "), Peer::Same),
    plugin("bandwidth", bandwidth, Some(Feature::Ifb), NOTHING, Peer::Same),
    plugin("sbr", sbr, None, is_route, Peer::Same),
    plugin("vrf", vrf, Some(Feature::Vrf), is_of_a_vrf, Peer::Same),
    plugin("portmap", packet_filter::portmap, None, NOTHING, Peer::ByIptables),
    plugin("portmap", packet_filter::portmap_of_nft, None, NOTHING, Peer::None),
    plugin("firewall", packet_filter::firewall, None, NOTHING, Peer::ByIptables),
];

/// Returns the chained plugins that this kernel can serve.
pub fn chained_plugins() -> impl Iterator<Item = ChainedPlugin> {
    CHAINED_PLUGINS.into_iter().filter(|chained| chained.is_known())
}

impl ChainedPlugin {
    /// Whether the kernel has what the plugin needs; prints that the test skips it if not.
    pub fn is_known(self) -> bool {
        self.needs.is_none_or(Feature::or_skip)
    }
}

/// A container on a bridge, with an address of each family and default routes.
pub fn bridged<'a>(node: &'a Node, attachment: impl Into<Attachment>) -> Attached<'a> {
    let ipam = with(dual(), json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}));
    let attached = Attached::add(node, &bridge(json!({"isGateway": true, "ipam": ipam})), attachment);
    testns::Namespace::at(&attached.attachment.netns).wait_for_addresses();
    attached
}

/// A plugin's own config behind an earlier plugin.
pub fn behind(earlier: &Attached<'_>, own: Value) -> Value {
    with(own, json!({"prevResult": earlier.result}))
}

/// Lines of a snapshot that come and go with other calls than the tested one.
pub fn comes_and_goes(line: &str) -> bool {
    let settles = crate::shared_objects::stays(line) || line.contains(" fe80::") || line.contains(" route ff00::/8 ");
    settles || line.contains("/run/cni") || packet_filter::are_shared(line)
}

/// Whether a line of a snapshot is of an object that a plugin's DEL leaves on the node.
pub fn stays_on_node(line: &str) -> bool {
    comes_and_goes(line) || is_shaper(line)
}

/// All keys of tuning but `txQLen`.
#[must_use]
pub fn tuning() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning",
        "mac": "c2:11:22:33:44:55", "mtu": 1400, "promisc": true, "allmulti": true,
        "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net.core.somaxconn": "500"}})
}

/// A limit for each direction.
#[must_use]
pub fn bandwidth() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "bandwidth",
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000})
}

/// Without keys: sbr takes what it needs from the result.
#[must_use]
pub fn sbr() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "sbr"})
}

/// The VRF `blue`.
#[must_use]
pub fn vrf() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "vrf", "vrfname": "blue"})
}

/// A shaper, which DEL without prevResult, or the reference's, leaves: it ends with the veth.
#[must_use]
pub fn is_shaper(line: &str) -> bool {
    line.contains(" qdisc ") && line.contains(" on veth")
}

/// Routes of sbr, which DEL leaves, as in the reference: they end with the interface.
fn is_route(line: &str) -> bool {
    line.contains(" route ")
}

/// Changes that DEL of vrf leaves, as in the reference: the interface is about to go, with what it lost.
fn is_of_a_vrf(line: &str) -> bool {
    line.contains(" route ") || is_vrf_rule(line)
}

/// The rule that the kernel makes with a namespace's first VRF, and keeps.
#[must_use]
pub fn is_vrf_rule(line: &str) -> bool {
    line.contains(" rule 1000: ")
}
