//! The node's side of the gateways: the link that has their addresses, uses them, answers for them, and is known by its Ethernet
//! address.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netops::link::{Kind as LinkKind, Link, Mac};
use netops::{Kernel, neighbour, route};

use super::Sight;
use super::container_interface::Inside;
use super::mtu::IPV6_MIN_MTU;
use super::rows::{At, Evidence, given, name, of, rows};
use crate::node_networks::Attachment;
use crate::shell_words::word;

rows! {
    // Containers find the new one after a minute or so.
    GatewayAddress Warning with_other_mac: "bridge {0} has Ethernet address {1}, and containers know it by {2}"
        help "ip link set {0} address {2}";
    GatewayAddress Error silent: "{0} is 8: the node does not tell containers the gateway's Ethernet address"
        help "sysctl -w {0}=0";
    GatewayAddress Error unused_gateways: "link {0} does not use the gateway's address {1} (dadfailed): another on it had the address"
        help "ip address del {1} dev {0}; ip address add {1} dev {0} nodad";
    GatewayAddress Error not_local: "the node's routing does not take packets to the gateway's address {0} for its own"
        help "ip rule add pref 0 lookup local";
    GatewayAddress Warning without_link_local: "link {0} has no link-local address: other hosts do not reach containers by IPv6"
        help "ip address add {1}/64 dev {0}";
    // A bridge that lost its last port has none, and keeps none if one is set then.
    GatewayAddress Error without_mac: "link {0} has Ethernet address {1}, to which no container can send"
        help "ip link set {0} address {2}";
    GatewayAddress Error without_gateway: "link {0} does not have the gateway's address {1}{2}";
    GatewayAddress Error mute: "link {0} neither asks nor answers for Ethernet addresses (NOARP)"
        help "ip link set {0} arp on";
    RouteElsewhere Error fixed: "the node has {0} as the fixed Ethernet address of {1} on {2}, and it is {3}"
        help "ip neigh del {1} dev {2}";
}

/// Whether a link that resolves addresses by its kind was told not to.
pub(super) fn is_mute(link: &Link) -> bool {
    link.no_arp && (link.kind.is_bridge() || link.kind == LinkKind::Veth || link.parent_device.is_some())
}

impl Sight<'_> {
    /// The Ethernet address that a link of the node had when the latest attachment was added: CHECK compares it, and
    /// containers know it.
    pub(super) fn mac_at_add(&self, name: &str) -> Option<Mac> {
        let mut all: Vec<&Attachment> = self.attachments().collect();
        all.sort_by_key(|attachment| attachment.since);
        all.into_iter().rev().find_map(|attachment| mac_of_host(attachment, name))
    }

    /// Whether ADD named the address as gateway of an attachment.
    pub(super) fn is_gateway(&self, address: IpAddr) -> bool {
        self.attachments().flat_map(|attachment| &attachment.result.ips).any(|ip| ip.gateway == Some(address))
    }
}

impl At<'_> {
    pub(super) fn router_links(&self) -> impl Iterator<Item = &Link> {
        self.routers().into_iter().filter_map(|name| self.sight.host.find(name))
    }

    fn mute(&self) -> Vec<Evidence> {
        self.router_links().filter(|link| is_mute(link)).map(|link| of([&link.name]).on_link(&link.name)).collect()
    }

    /// Pairs of a router's link and a gateway for which something holds.
    fn pairs(&self, is_so: impl Fn(&str, &IpNetwork) -> bool) -> Vec<(&str, IpNetwork)> {
        let (routers, gateways) = (self.routers(), self.gateways());
        let all = routers.iter().flat_map(|router| gateways.iter().map(move |gateway| (*router, *gateway)));
        all.filter(|(router, gateway)| is_so(router, gateway)).collect()
    }

    fn with_other_mac(&self) -> Vec<Evidence> {
        let Some((bridge, link)) = self.bridge().filter(|_| !self.gateways().is_empty() && self.carrier.is_routed())
        else {
            return Vec::new();
        };
        let Some(found) = link.mac.filter(|mac| mac.is_of_one_link()) else { return Vec::new() };
        let is_new = |it: &Attachment| mac_of_host(it, &link.name).is_some_and(|mac| mac != found);
        if bridge.router != bridge.name || !is_new(self.attachment) {
            return Vec::new();
        }
        let mut of_it = self.sight.ports_of(link).map(|(it, _)| it);
        let is_it = of_it.clone().all(is_new) && of_it.any(|it| knows_other(it, found));
        let wanted = self.sight.mac_at_add(&link.name).filter(|_| is_it);
        wanted.map(|wanted| of([&link.name, &found, &wanted])).into_iter().collect()
    }

    /// 8 is the value that answers no request (Documentation/networking/ip-sysctl.rst), and the larger one of `all` and the
    /// link counts.
    fn silent(&self) -> Vec<Evidence> {
        let has_gateway = self.gateways().iter().any(IpNetwork::is_ipv4);
        let routers = self.routers();
        let names = ["all"].into_iter().filter(|_| !routers.is_empty()).chain(routers.iter().copied());
        let keys = names.filter(|_| has_gateway).map(|name| ["ipv4", "conf", name, "arp_ignore"]);
        keys.filter(|key| self.is(key, "8")).map(|key| of([&name(&key)])).collect()
    }

    fn unused_gateways(&self) -> Vec<Evidence> {
        let refused = self.pairs(|router, gateway| self.sight.host.refuses(router, gateway.ip()));
        refused
            .iter()
            .map(|(router, gateway)| of([router, gateway]).and(self.routes_lost_with(router)).on_link(router))
            .collect()
    }

    /// A rule of routing comes before the table of the node's own addresses, so packets to the gateway are not for the node.
    fn not_local(&self) -> Vec<Evidence> {
        let host = self.sight.host;
        let is_so = |router: &str, gateway: &IpNetwork| {
            // An IPv6 address is the node's own only once duplicate address detection has ended.
            let is_used = gateway.is_ipv4() && self.has_gateway(router, gateway) && !host.refuses(router, gateway.ip());
            let leads_here = || route::leads_to_host(host.kernel.as_ref()?, gateway.ip()).ok();
            is_used && host.find(router).is_some_and(|link| link.up) && leads_here() == Some(false)
        };
        self.pairs(is_so).iter().map(|(_, gateway)| of([&gateway.ip()])).collect()
    }

    fn has_gateway(&self, router: &str, gateway: &IpNetwork) -> bool {
        self.sight.host.addresses_of(router).iter().any(|own| own.ip() == gateway.ip())
    }

    /// The node asks for the Ethernet addresses of those to whom it forwards packets of IPv6 from its link-local address alone.
    fn without_link_local(&self) -> Vec<Evidence> {
        let is_link_local = |own: &IpNetwork| matches!(own.ip(), IpAddr::V6(own) if own.is_unicast_link_local());
        let has_ipv6 = self.gateways().iter().any(IpNetwork::is_ipv6);
        let links = self.router_links().filter(|link| has_ipv6 && link.up && link.carrier);
        // The kernel takes the addresses of IPv6 from a link that is narrower.
        let links = links.filter(|link| link.mtu_bytes >= IPV6_MIN_MTU);
        let links = links.filter(|link| self.is(&["ipv6", "conf", &link.name, "disable_ipv6"], "0"));
        let links = links.filter(|link| !self.sight.host.addresses_of(&link.name).iter().any(is_link_local));
        links.filter_map(|link| Some(of([&link.name, &link_local(link.mac?)]).on_link(&link.name))).collect()
    }

    fn without_mac(&self) -> Vec<Evidence> {
        let links = self.router_links().filter(|link| !link.loopback);
        let found = links.filter_map(|link| Some((link, link.mac.filter(|mac| !mac.is_of_one_link())?)));
        let evidence = |(link, mac): (&Link, Mac)| {
            let wanted = self.sight.mac_at_add(&link.name).filter(|mac| mac.is_of_one_link());
            of([&link.name, &mac, &wanted.unwrap_or_else(Mac::random)]).on_link(&link.name)
        };
        found.map(evidence).collect()
    }

    fn without_gateway(&self) -> Vec<Evidence> {
        let host = self.sight.host;
        // Addresses that a new ADD takes for a conflict, but where other networks are behind the link.
        let is_in_way = |router: &str, own: &IpNetwork, gateway: &IpNetwork| {
            let leads_out =
                |link: &Link| self.sight.routes.iter().any(|it| it.link == Some(link.index) && it.gateway.is_some());
            let is_v4 = own.is_ipv4() && gateway.is_ipv4() && !self.sight.is_gateway(own.ip());
            let meets = gateway.contains(own.ip()) || own.contains(gateway.ip());
            is_v4 && (meets || !host.find(router).is_some_and(leads_out))
        };
        let evidence = |(router, gateway): (&str, IpNetwork)| {
            let others = host.addresses_of(router).iter().filter(|own| is_in_way(router, own, &gateway));
            let others: Vec<String> = others.map(ToString::to_string).collect();
            let instead =
                if others.is_empty() { String::new() } else { format!(", and has {} instead", others.join(", ")) };
            let replaced = others.iter().map(|other| format!("ip address del {other} dev {}", word(router)));
            let is_narrow = |link: &&Link| gateway.is_ipv6() && link.mtu_bytes < IPV6_MIN_MTU;
            let wider = host.find(router).filter(is_narrow).map(|_| format!("ip link set {} mtu 1500", word(router)));
            let add = format!("ip address add {gateway} dev {}", word(router));
            let remedy = wider.into_iter().chain(replaced).chain([add]).chain(self.routes_lost_with(router));
            of([&router, &gateway, &instead]).and(remedy).on_link(router)
        };
        self.pairs(|router, gateway| !self.has_gateway(router, gateway)).into_iter().map(evidence).collect()
    }

    fn fixed(&self) -> Vec<Evidence> {
        let (Some(mac), Some(kernel)) = (self.looked.link().and_then(|link| link.mac), &self.sight.host.kernel) else {
            return Vec::new();
        };
        let all = self.router_links().flat_map(|link| self.attachment.addresses.iter().map(move |own| (link, *own)));
        let fixed =
            all.filter_map(|(link, own)| Some((link, own, fixed_mac(kernel, link, own).filter(|it| *it != mac)?)));
        fixed.map(|(link, own, found)| of([&found, &own, &link.name, &mac])).collect()
    }
}

/// The Ethernet address that an administrator has fixed for an address.
pub(super) fn fixed_mac(kernel: &Kernel, link: &Link, address: IpAddr) -> Option<Mac> {
    let found = neighbour::find(kernel, link, address).ok().flatten();
    found.filter(|found| found.is_fixed).map(|found| found.mac)
}

/// The link-local address that a link has by its Ethernet address (RFC 4291, appendix A).
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The Ethernet address of a link of the node at the ADD of an attachment.
pub(crate) fn mac_of_host(attachment: &Attachment, name: &str) -> Option<Mac> {
    let mut links = attachment.result.interfaces.iter();
    links.find(|link| link.name == name && link.sandbox.is_empty()).and_then(|link| link.mac.parse().ok())
}

/// Whether a living container sends packets for its gateway to another Ethernet address than this.
fn knows_other(attachment: &Attachment, mac: Mac) -> bool {
    let Some(Inside { kernel, link, .. }) = Inside::of(attachment) else { return false };
    given(attachment).filter_map(|it| neighbour::find(&kernel, &link, it).ok().flatten()).any(|it| it.mac != mac)
}
