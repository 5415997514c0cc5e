//! The bridge that is the node's way out, and has lost its port to other networks.

use netops::link::{Kind, Link, PortFault};
use netops::{Family, neighbour, route};

use super::host_routes::outside;
use super::{Cause, Level, Reason, Sight};
use crate::shell_words::word;

impl Sight<'_> {
    /// No port of the bridge leads to other networks. Where virtual machines or containers of others are on it, one of them may be
    /// the router: then the node has to have asked for the next hop in vain.
    pub(super) fn without_uplink(&self, family: Family, bridge: &Link) -> Option<Reason> {
        if !bridge.kind.is_bridge() || !bridge.up || !bridge.carrier {
            return None;
        }
        let ports = || self.host.links.iter().filter(|link| link.master == Some(bridge.index));
        let others = || ports().filter(|port| !self.own_links.contains(&*port.name));
        let passes = |port: &&Link| {
            let is_shut = matches!(port.port_fault, Some(PortFault::Blocks | PortFault::Waits));
            port.up && port.carrier && !is_shut
        };
        let may_be_guest = |port: &Link| matches!(port.kind, Kind::Veth | Kind::Tun(_));
        let mut living = others().filter(passes).peekable();
        let has_guest = living.peek().is_some();
        if !living.all(may_be_guest) || has_guest && !self.is_hop_unresolved(family, bridge) {
            return None;
        }
        let name = &bridge.name;
        let lost = others().find(|port| !passes(port));
        if lost.is_none() && ports().next().is_none() {
            return None;
        }
        let (why, remedy) = lost.map_or_else(
            || {
                let why = "none of its ports leads to other networks, or the next hop does not answer there";
                (
                    why.to_owned(),
                    format!("Give {name} its port to other networks again: ip link set LINK master {name}"),
                )
            },
            why_lost,
        );
        let what = format!("bridge {name}, the {family} way out, has lost its port to other networks: {why}");
        Some(Reason::new(Cause::LinkDown, Level::Warning, what).mended_by([remedy]))
    }

    /// Whether the node has asked for the next hop of its way out by the link, and none has answered.
    fn is_hop_unresolved(&self, family: Family, link: &Link) -> bool {
        let Some(kernel) = &self.host.kernel else { return false };
        let hop = route::lookup(kernel, outside(family)).ok().and_then(|found| found.gateway);
        hop.is_some_and(|hop| neighbour::is_unresolved(kernel, link, hop).unwrap_or_default())
    }
}

/// Why a port passes on nothing, with the remedy.
fn why_lost(port: &Link) -> (String, String) {
    let name = word(&port.name);
    match () {
        () if !port.up => (format!("{} is down", port.name), format!("ip link set {name} up")),
        () if !port.carrier => (
            format!("{} has no carrier, as its other end is down, or no cable is in it", port.name),
            "Connect it, or set its other end up.".to_owned(),
        ),
        () => (
            format!("{} is a port that passes on nothing", port.name),
            format!("ip link set {name} type bridge_slave state 3"),
        ),
    }
}
