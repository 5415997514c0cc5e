//! Ethernet addresses: whether links ask for those of their neighbours, and entries that an administrator has fixed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netops::link::{Kind, Link, Mac};
use netops::{Kernel, neighbour};

use super::container_routes::gateways;
use super::way_to_container::Carrier;
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// Whether a link that resolves addresses by its kind was told not to.
pub(super) fn is_mute(link: &Link) -> bool {
    let resolves = link.kind.is_bridge() || link.kind == Kind::Veth || link.parent_device.is_some();
    link.no_arp && resolves
}

impl Sight<'_> {
    /// The links that have the gateways: the bridge, or the container's veths.
    fn routers<'a>(&'a self, attachment: &'a Attachment, carrier: &'a Carrier) -> impl Iterator<Item = &'a Link> {
        let bridge = carrier.bridge().map(|bridge| bridge.router.as_str());
        let own = attachment.links.iter().map(|link| link.name.as_str()).filter(move |_| bridge.is_none());
        bridge.into_iter().chain(own).filter_map(|name| self.host.find(name))
    }

    /// The node's side, which has to find the container, and to tell it who has the gateways.
    pub(super) fn neighbours(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        for router in self.routers(attachment, carrier) {
            if is_mute(router) {
                let name = &router.name;
                let what = format!("link {name} neither asks nor answers for Ethernet addresses (NOARP)");
                let remedy = [format!("ip link set {} arp on", word(name))];
                findings.reasons.push(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy));
            }
            let (Some(mac), Some(kernel)) = (findings.mac, &self.host.kernel) else { continue };
            for address in &attachment.addresses {
                let found = neighbour::find(kernel, router, *address).ok().flatten();
                if let Some(found) = found.filter(|found| found.is_fixed && found.mac != mac) {
                    findings.reasons.push(fixed(*address, found.mac, router, mac));
                }
            }
        }
    }

    /// The container's side: its interface, and what it knows of its gateways.
    pub(super) fn neighbours_inside(
        &self,
        attachment: &Attachment,
        carrier: &Carrier,
        (kernel, link): (&Kernel, &Link),
        findings: &mut Findings,
    ) {
        let enter = format!("nsenter --net={} ip", word(&attachment.netns));
        let name = &link.name;
        if is_mute(link) {
            let why = format!("{name} in the container neither asks nor answers for Ethernet addresses (NOARP)");
            let remedy = [format!("{enter} link set {} arp on", word(name))];
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        }
        let routers: Vec<Mac> = self.routers(attachment, carrier).filter_map(|router| router.mac).collect();
        let own = [true, false].into_iter().flat_map(|is_ipv4| gateways(attachment, is_ipv4)).collect::<BTreeSet<_>>();
        let fixed = own.iter().filter_map(|own| Some((own, neighbour::find(kernel, link, *own).ok()??)));
        let fixed = fixed.filter(|(_, found)| found.is_fixed).map(|(own, found)| (own, found.mac));
        for (address, mac) in fixed.filter(|(_, mac)| !routers.is_empty() && !routers.contains(mac)) {
            let why = format!(
                "the container has {mac} as the fixed Ethernet address of its gateway {address}, which has another one"
            );
            let remedy = [format!("{enter} neigh del {address} dev {}", word(name))];
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        }
    }
}

fn fixed(address: IpAddr, found: Mac, router: &Link, mac: Mac) -> Reason {
    let name = &router.name;
    let why = format!("the node has {found} as the fixed Ethernet address of {address} on {name}, and it is {mac}");
    let remedy = [format!("ip neigh del {address} dev {}", word(name))];
    Reason::new(Cause::Route, Level::Error, why).mended_by(remedy)
}
