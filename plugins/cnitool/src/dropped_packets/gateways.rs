//! The node's side of the gateways: the link that has their addresses, uses them, answers for them, and is known by its Ethernet
//! address.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netops::link::{Link, Mac};
use netops::{neighbour, route};

use super::container_routes;
use super::{Cause, Findings, Level, Reason, Sight, container_interface};
use crate::node_networks::Attachment;
use crate::shell_words::{sysctl, word};

impl Sight<'_> {
    /// A bridge with another Ethernet address than it had at each ADD, and than a container sends to: it finds the new one after a
    /// minute or so.
    pub(super) fn other_mac(&self, bridge: &Link) -> Option<Reason> {
        let all = self.view.networks.iter().flat_map(|network| &network.attachments);
        let is_of_it =
            |attachment: &&Attachment| attachment.links.iter().any(|link| link.master.as_ref() == Some(&bridge.name));
        let known = |attachment: &Attachment| mac_of_host(attachment, &bridge.name);
        let of_it: Vec<&Attachment> = all.filter(is_of_it).collect();
        let has_other = of_it.iter().all(|attachment| known(attachment).is_some_and(|mac| Some(mac) != bridge.mac))
            && of_it.iter().any(|attachment| knows_other(attachment, bridge));
        let found = bridge.mac.filter(|mac| mac.is_of_one_link())?;
        let wanted = self.mac_at_add(&bridge.name).filter(|_| has_other)?;
        let name = &bridge.name;
        let what = format!("bridge {name} has Ethernet address {found}, and containers know it by {wanted}");
        let remedy = [format!("ip link set {} address {wanted}", word(name))];
        Some(Reason::new(Cause::Gateway, Level::Warning, what).mended_by(remedy))
    }

    /// The Ethernet address that a link of the node had when the latest attachment was added: CHECK compares it, and
    /// containers know it.
    pub(super) fn mac_at_add(&self, name: &str) -> Option<Mac> {
        let mut all: Vec<&Attachment> = self.view.networks.iter().flat_map(|network| &network.attachments).collect();
        all.sort_by_key(|attachment| attachment.since);
        all.into_iter().rev().find_map(|attachment| mac_of_host(attachment, name))
    }

    /// The link that has the gateways has each of them. The commands of `lost` make the routes that the kernel removes with one.
    pub(super) fn gateways(&self, gateways: &[IpNetwork], router: &str, lost: &[String], findings: &mut Findings) {
        self.answers_arp(gateways, router, findings);
        for gateway in gateways.iter().filter(|gateway| self.host.refuses(router, gateway.ip())) {
            let what = format!(
                "link {router} does not use the gateway's address {gateway} (dadfailed): another on it had the address"
            );
            let remedy = [
                format!("ip address del {gateway} dev {}", word(router)),
                format!("ip address add {gateway} dev {} nodad", word(router)),
            ];
            let reason = Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy);
            findings.reasons.push(reason.mended_by(lost.iter().cloned()));
        }
        findings.reasons.extend(gateways.iter().filter_map(|gateway| self.not_local(gateway.ip(), router)));
        findings.reasons.extend(self.without_link_local(gateways, router));
        findings.reasons.extend(self.without_mac(router));
        let has = |net: &IpNetwork| self.host.addresses_of(router).iter().any(|own| own.ip() == net.ip());
        for gateway in gateways.iter().filter(|gateway| !has(gateway)) {
            let others: Vec<String> = self
                .in_the_way(router, gateway.ip())
                .filter(|own| gateway.contains(own.ip()) || own.contains(gateway.ip()) || !self.leads_out(router))
                .map(ToString::to_string)
                .collect();
            let instead =
                if others.is_empty() { String::new() } else { format!(", and has {} instead", others.join(", ")) };
            let what = format!("link {router} does not have the gateway's address {gateway}{instead}");
            let replaced = others.iter().map(|other| format!("ip address del {other} dev {}", word(router)));
            let wider = self.host.find(router).filter(|link| gateway.is_ipv6() && link.mtu_bytes < 1280);
            // The kernel takes the addresses of IPv6 from a link that is narrower than `IPV6_MIN_MTU` (linux/ipv6.h).
            let wider = wider.map(|_| format!("ip link set {} mtu 1500", word(router)));
            let remedy = wider.into_iter().chain(replaced);
            let remedy =
                remedy.chain([format!("ip address add {gateway} dev {}", word(router))]).chain(lost.iter().cloned());
            findings.reasons.push(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy));
        }
    }

    /// A rule of routing comes before the table of the node's own addresses, so packets to the gateway are not for the node.
    fn not_local(&self, gateway: IpAddr, router: &str) -> Option<Reason> {
        let has = self.host.addresses_of(router).iter().any(|own| own.ip() == gateway);
        let is_up = self.host.find(router).is_some_and(|link| link.up);
        let leads_here = || route::leads_to_host(self.host.kernel.as_ref()?, gateway).ok();
        // An IPv6 address is the node's own only once duplicate address detection has ended.
        if gateway.is_ipv6() || !has || !is_up || self.host.refuses(router, gateway) || leads_here() != Some(false) {
            return None;
        }
        let what = format!("the node's routing does not take packets to the gateway's address {gateway} for its own");
        let remedy =
            [format!("Remove the rule that comes before table local: see ip rule, and ip route get {gateway}.")];
        Some(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy))
    }

    /// A bridge that lost its last port has no Ethernet address, and keeps none if one is set then.
    fn without_mac(&self, router: &str) -> Option<Reason> {
        let is_known = |link: &&Link| !link.loopback && link.mac.is_some_and(|mac| !mac.is_of_one_link());
        let found = self.host.find(router).filter(is_known)?.mac?;
        let what = format!("link {router} has Ethernet address {found}, to which no container can send");
        let mac = self.mac_at_add(router).filter(|mac| mac.is_of_one_link()).unwrap_or_else(Mac::random);
        let remedy = [format!("ip link set {} address {mac}", word(router))];
        Some(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy))
    }

    /// The node asks for the Ethernet addresses of those to whom it forwards packets of IPv6 from its link-local address alone.
    fn without_link_local(&self, gateways: &[IpNetwork], router: &str) -> Option<Reason> {
        let link = self.host.find(router).filter(|link| link.up && link.carrier)?;
        let is_link_local = |own: &IpNetwork| matches!(own.ip(), IpAddr::V6(own) if own.is_unicast_link_local());
        let is_off = self.setting(&["ipv6", "conf", router, "disable_ipv6"]).as_deref() != Some("0");
        // The kernel takes the addresses of IPv6 from a link that is narrower than `IPV6_MIN_MTU` (linux/ipv6.h).
        let is_narrow = link.mtu_bytes < 1280;
        let has = self.host.addresses_of(router).iter().any(is_link_local);
        if !gateways.iter().any(IpNetwork::is_ipv6) || is_off || is_narrow || has {
            return None;
        }
        let what = format!("link {router} has no link-local address: other hosts do not reach containers by IPv6");
        let address = link_local(link.mac?);
        let remedy = [format!("ip address add {address}/64 dev {}", word(router))];
        Some(Reason::new(Cause::Gateway, Level::Warning, what).mended_by(remedy))
    }

    /// The node answers when containers ask for the gateway's Ethernet address. 8 is the value that answers no request
    /// (Documentation/networking/ip-sysctl.rst), and the larger one of `all` and the link counts.
    fn answers_arp(&self, gateways: &[IpNetwork], router: &str, findings: &mut Findings) {
        let is_silent = |name: &str| self.setting(&["ipv4", "conf", name, "arp_ignore"]).as_deref() == Some("8");
        let has_gateway = gateways.iter().any(IpNetwork::is_ipv4);
        for name in ["all", router].into_iter().filter(|name| has_gateway && is_silent(name)) {
            let key = format!("net.ipv4.conf.{}.arp_ignore", name.replace('.', "/"));
            let what = format!("{key} is 8: the node does not tell containers the gateway's Ethernet address");
            let remedy = [sysctl(&key, "0")];
            findings.reasons.push(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy));
        }
    }

    /// Whether other networks are behind the link.
    fn leads_out(&self, name: &str) -> bool {
        let index = self.host.find(name).map(|link| link.index);
        self.routes.iter().any(|route| route.link == index && route.gateway.is_some())
    }

    /// The addresses of the gateways' link that are no gateway of an attachment, which a new ADD takes for a conflict.
    fn in_the_way(&self, router: &str, gateway: IpAddr) -> impl Iterator<Item = &IpNetwork> {
        let is_of_family = move |own: &&IpNetwork| own.is_ipv4() && gateway.is_ipv4();
        self.host.addresses_of(router).iter().filter(is_of_family).filter(move |own| !self.is_gateway(own.ip()))
    }

    /// Whether ADD named the address as gateway of an attachment.
    pub(super) fn is_gateway(&self, address: IpAddr) -> bool {
        let all = self.view.networks.iter().flat_map(|network| &network.attachments);
        all.flat_map(|attachment| &attachment.result.ips).any(|ip| ip.gateway == Some(address))
    }
}

/// The link-local address that a link has by its Ethernet address (RFC 4291, appendix A).
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The Ethernet address of a link of the node at the ADD of an attachment.
pub(super) fn mac_of_host(attachment: &Attachment, name: &str) -> Option<Mac> {
    let mut links = attachment.result.interfaces.iter();
    links.find(|link| link.name == name && link.sandbox.is_empty()).and_then(|link| link.mac.parse().ok())
}

/// Whether a living container sends packets for its gateway to another Ethernet address than the bridge has.
fn knows_other(attachment: &Attachment, bridge: &Link) -> bool {
    let all = [true, false].into_iter().flat_map(|is_ipv4| container_routes::gateways(attachment, is_ipv4));
    let Some((kernel, link)) = container_interface::end(attachment) else { return false };
    let known = |gateway| neighbour::find(&kernel, &link, gateway).ok().flatten();
    all.filter_map(known).any(|known| Some(known.mac) != bridge.mac)
}
