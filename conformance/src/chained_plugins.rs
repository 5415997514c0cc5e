//! A table of the chained plugins, by which each can be tested alike, and the bridge before them.

use crate::configs::{Attached, bridge, dual, with};
use serde_json::{Value, json};
use testns::{Attachment, Feature, Node};

/// A chained plugin with a config that has all it can set.
#[derive(Debug, Clone, Copy)]
pub struct ChainedPlugin {
    pub name: &'static str,
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

pub const CHAINED_PLUGINS: [ChainedPlugin; 7] = [
    plugin("tuning", tuning, None, |line| line.contains(" sysctl "), Peer::Same),
    plugin("bandwidth", bandwidth, Some(Feature::Ifb), NOTHING, Peer::Same),
    plugin("sbr", sbr, None, is_route, Peer::Same),
    plugin("vrf", vrf, Some(Feature::Vrf), is_of_a_vrf, Peer::Same),
    plugin("portmap", portmap, None, NOTHING, Peer::ByIptables),
    plugin("portmap", portmap_of_nft, None, NOTHING, Peer::None),
    plugin("firewall", firewall, None, NOTHING, Peer::ByIptables),
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
    settles || line.contains("/run/cni") || are_shared(line)
}

/// Whether a line of a snapshot is of an object that a plugin's DEL leaves on the node.
pub fn stays_on_node(line: &str) -> bool {
    comes_and_goes(line) || is_shaper(line)
}

pub fn tuning() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning",
        "mac": "c2:11:22:33:44:55", "mtu": 1400, "promisc": true, "allmulti": true,
        "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net.core.somaxconn": "500"}})
}

pub fn bandwidth() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "bandwidth",
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000})
}

/// Without keys: sbr takes what it needs from the result.
pub fn sbr() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "sbr"})
}

pub fn vrf() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "vrf", "vrfname": "blue"})
}

/// A shaper, which DEL without prevResult, or the reference's, leaves: it ends with the veth.
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
pub fn is_vrf_rule(line: &str) -> bool {
    line.contains(" rule 1000: ")
}

/// Rules that containers share: where their own rules are, and what leads there.
const SHARED: [&str; 9] = [
    "CNI-HOSTPORT-DNAT",
    "CNI-HOSTPORT-SETMARK",
    "CNI-HOSTPORT-MASQ",
    "CNI-FORWARD",
    "CNI-ADMIN",
    "CNI-ISOLATION-STAGE-1",
    "CNI-ISOLATION-STAGE-2",
    "FORWARD",
    "OUTPUT",
];

/// Ports of two protocols, in both families.
pub fn portmap() -> Value {
    let mapping = |host: u16, container: u16, protocol: &str| json!({"hostPort": host, "containerPort": container, "protocol": protocol});
    let mappings = [mapping(8080, 80, "tcp"), mapping(5353, 53, "udp"), mapping(8081, 81, "tcp")];
    json!({"cniVersion": "1.0.0", "name": "net", "type": "portmap", "snat": true, "backend": "iptables",
        "capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": mappings}})
}

pub fn portmap_of_nft() -> Value {
    with(portmap(), json!({"backend": "nftables"}))
}

/// With a policy, which has chains of its own.
pub fn firewall() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables",
        "ingressPolicy": "same-bridge"})
}

/// Rules of a policy stay after the reference's last container, and ours goes on without one only if it made all of them.
pub fn are_of_a_policy(line: &str) -> bool {
    line.contains("CNI-ISOLATION-STAGE-")
}

/// Whether a change is of what all containers share, which stays after the last one, as in the reference: not a rule with a
/// container's name, address or port.
pub fn are_shared(line: &str) -> bool {
    let Some(object) = line.trim_start_matches(['+', '-', ' ']).strip_prefix("nft ") else {
        return line.contains("/route_localnet");
    };
    let is_named = |attribute: &str| SHARED.iter().any(|name| object.contains(&format!(r#"{attribute}="{name}""#)));
    // A note, a comment, a port's chain, a bridge, or an address of a packet.
    let of_container = ["id: ", "CNI-DN-", "br0", "payload("].iter().any(|word| object.contains(word));
    let is_native = object.contains("\"cni_hostport\"");
    match object.split(' ').next() {
        Some("table") => true,
        Some("chain") => is_named("3") || is_native,
        Some("rule") => !of_container && (is_named("2") || object.contains("CNI-HOSTPORT-") || is_native),
        _ => false,
    }
}
