//! Links, addresses and routes that a test makes itself: the environment of the plugins.

use std::fmt::Display;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use netlink_packet_core::{DefaultNla, NLM_F_APPEND};
use netlink_packet_route::RouteNetlinkMessage::{
    DelAddress, DelLink, DelRoute, NewAddress, NewLink, NewLinkProp, NewNeighbour, NewRoute,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::Namespace;
use crate::link::links;
use crate::must::Must;
use crate::netlink::{NEW, Socket, text};
use crate::route::Route;

const IFLA_IFNAME: u16 = 3;
const IFLA_IFALIAS: u16 = 20;
const IFLA_ALT_IFNAME: u16 = 53;

impl Namespace {
    /// Makes a veth from `name` here to `peer` in `other`, both up and with their link-local addresses, where IPv6 is on.
    #[track_caller]
    pub fn add_veth(&self, name: &str, other: &Namespace, peer: &str) {
        let target = File::open(other.path()).must(format_args!("open {}", other.path().display()));
        let attributes = vec![LinkAttribute::IfName(peer.to_owned()), LinkAttribute::NetNsFd(target.as_raw_fd())];
        let peer_link = InfoData::Veth(InfoVeth::Peer(link_message(0, attributes)));
        self.step("ip", format_args!("link add {name} type veth peer name {peer} netns {}", other.as_target()));
        self.new_link(name, "veth", Some(peer_link));
        self.set_up(name);
        other.set_up(peer);
        // The kernel adds them when it notices the carrier, which a test would take for the plugin's doing.
        self.wait_for_link_local(name);
        other.wait_for_link_local(peer);
    }

    /// Makes a link of a kind that needs no options (`bridge`, `dummy`, `ifb`) and sets it up.
    #[track_caller]
    pub fn add_link(&self, name: &str, kind: &str) {
        self.step("ip", format_args!("link add {name} type {kind}"));
        self.new_link(name, kind, None);
        self.set_up(name);
    }

    #[track_caller]
    fn new_link(&self, name: &str, kind: &str, data: Option<InfoData>) {
        let message = NewLink(new_link(name, InfoKind::from(kind), data));
        self.request(NEW, &message, format_args!("create {kind} {name}"));
    }

    #[track_caller]
    pub fn set_up(&self, link: &str) {
        self.step("ip", format_args!("link set {link} up"));
        self.request(0, &NewLink(up_or_down(self.link(link).index, LinkFlags::Up)), format_args!("set {link} up"));
    }

    #[track_caller]
    pub fn set_master(&self, link: &str, master: &str) {
        self.step("ip", format_args!("link set {link} master {master}"));
        let port_of = LinkAttribute::Controller(self.link(master).index);
        self.change_link(link, port_of, format_args!("make {link} a port of {master}"));
    }

    #[track_caller]
    pub fn clear_master(&self, link: &str) {
        self.step("ip", format_args!("link set {link} nomaster"));
        self.change_link(link, LinkAttribute::Controller(0), format_args!("take {link} from its bridge"));
    }

    #[track_caller]
    pub fn set_mac(&self, link: &str, mac: &str) {
        self.step("ip", format_args!("link set {link} address {mac}"));
        let what = format!("set the hardware address of {link} to {mac}");
        self.change_link(link, LinkAttribute::Address(mac_bytes(mac)), what);
    }

    #[track_caller]
    pub fn set_down(&self, link: &str) {
        self.step("ip", format_args!("link set {link} down"));
        let message = NewLink(up_or_down(self.link(link).index, LinkFlags::empty()));
        self.request(0, &message, format_args!("set {link} down"));
    }

    /// Renames a link. It is down for a moment and loses its routes: older kernels require that.
    #[track_caller]
    pub fn rename(&self, link: &str, name: impl AsRef<[u8]>) {
        let index = self.link(link).index;
        self.set_down(link);
        let name = name.as_ref();
        let what = format!("rename {link} to {}", name.escape_ascii());
        self.step("ip", format_args!("link set {link} name {}", name.escape_ascii()));
        self.step("ip", format_args!("link set {} up", name.escape_ascii()));
        self.change_link(link, LinkAttribute::Other(text(IFLA_IFNAME, name)), what);
        self.request(0, &NewLink(up_or_down(index, LinkFlags::Up)), format_args!("set {link} up under its new name"));
    }

    #[track_caller]
    pub fn set_mtu(&self, link: &str, mtu_bytes: u32) {
        self.step("ip", format_args!("link set {link} mtu {mtu_bytes}"));
        self.change_link(link, LinkAttribute::Mtu(mtu_bytes), format_args!("set the MTU of {link}"));
    }

    #[track_caller]
    pub fn set_alias(&self, link: &str, alias: impl AsRef<[u8]>) {
        self.step("ip", format_args!("link set {link} alias '{}'", alias.as_ref().escape_ascii()));
        let alias = DefaultNla::new(IFLA_IFALIAS, alias.as_ref().to_vec());
        self.change_link(link, LinkAttribute::Other(alias), format_args!("set the alias of {link}"));
    }

    #[track_caller]
    pub fn add_alt_name(&self, link: &str, name: impl AsRef<[u8]>) {
        let names = LinkAttribute::PropList(vec![Prop::Other(text(IFLA_ALT_IFNAME, name))]);
        let message = NewLinkProp(link_message(self.link(link).index, vec![names]));
        self.request(NEW | NLM_F_APPEND, &message, format_args!("give {link} a further name"));
    }

    /// Moves a link to another namespace, where it is down and has no addresses.
    #[track_caller]
    pub fn move_link(&self, link: &str, other: &Self) {
        self.step("ip", format_args!("link set {link} netns {}", other.as_target()));
        let target = File::open(other.path()).must(format_args!("open {}", other.path().display()));
        let there = LinkAttribute::NetNsFd(target.as_raw_fd());
        self.change_link(link, there, format_args!("move {link} to another namespace"));
    }

    #[track_caller]
    fn change_link(&self, link: &str, attribute: LinkAttribute, what: impl Display) {
        self.request(0, &NewLink(link_message(self.link(link).index, vec![attribute])), what);
    }

    #[track_caller]
    pub fn delete_link(&self, link: &str) {
        self.step("ip", format_args!("link del {link}"));
        self.request(0, &DelLink(link_message(self.link(link).index, Vec::new())), format_args!("delete {link}"));
    }

    /// Gives a link an address, `10.1.0.5/24` or `fd01::5/64`, without duplicate detection.
    #[track_caller]
    pub fn add_address(&self, link: &str, address: &str) {
        self.step(
            "ip",
            format_args!("address add {address} dev {link}{}", if address.contains(':') { " nodad" } else { "" }),
        );
        let message = NewAddress(self.address_message(link, address));
        self.request(NEW, &message, format_args!("add {address} to {link}"));
    }

    /// Sets neighbours of a link for good, IPv4 addresses with their Ethernet addresses: the kernel does not ask for them, and its
    /// limit of neighbours does not count them.
    #[track_caller]
    pub fn add_neighbours(&self, link: &str, all: &[(Ipv4Addr, String)]) {
        let index = self.link(link).index;
        let message = |(ip, mac): &(Ipv4Addr, String)| {
            let mut message = NeighbourMessage::default();
            message.header.family = AddressFamily::Inet;
            message.header.ifindex = index;
            message.header.state = NeighbourState::Permanent;
            message.attributes = vec![
                NeighbourAttribute::Destination(NeighbourAddress::Inet(*ip)),
                NeighbourAttribute::LinkLayerAddress(mac_bytes(mac)),
            ];
            NewNeighbour(message)
        };
        let set_all = || {
            let mut socket = Socket::route();
            all.iter().try_for_each(|neighbour| socket.request(NEW, &message(neighbour)))
        };
        self.enter(set_all).must(format_args!("set neighbours of {link}"));
    }

    #[track_caller]
    pub fn delete_address(&self, link: &str, address: &str) {
        self.step("ip", format_args!("address del {address} dev {link}"));
        let message = DelAddress(self.address_message(link, address));
        self.request(0, &message, format_args!("delete {address} from {link}"));
    }

    #[track_caller]
    pub fn delete_addresses(&self, link: &str) {
        self.global_addresses(link).iter().for_each(|address| self.delete_address(link, address));
    }

    #[track_caller]
    fn address_message(&self, link: &str, address: &str) -> AddressMessage {
        let (ip, length) = prefix(address);
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = length;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = self.link(link).index;
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        message
    }

    /// Adds a route to `10.9.0.0/16`, `0.0.0.0/0`, `::/0`, ... through a gateway on a link.
    #[track_caller]
    pub fn add_route(&self, to: &str, via: &str, link: &str) {
        self.step("ip", format_args!("route add {to} via {via} dev {link}"));
        let gateway: IpAddr = via.parse().must(format_args!("read {via} as an address"));
        let mut message = static_route(to);
        let out = RouteAttribute::Oif(self.link(link).index);
        message.attributes.extend([RouteAttribute::Gateway(gateway.into()), out]);
        self.request(NEW, &NewRoute(message), format_args!("add a route to {to} via {via}"));
    }

    /// Adds a route with its table, metric, MTU and advertised segment size, by its first hop.
    #[track_caller]
    pub fn lay_route(&self, route: &Route) {
        let hop = route.hops.first().must(format_args!("find a hop of the route to {}", route.to));
        let via = hop.via.map(|via| format!(" via {via}")).unwrap_or_default();
        let Route { to, table, metric, mtu_bytes, advmss_bytes, .. } = route;
        self.step(
            "ip",
            format_args!(
                "route add {to}{via} dev {} table {table} metric {metric} mtu {mtu_bytes} advmss {advmss_bytes}",
                hop.link
            ),
        );
        let mut message = static_route(&route.to);
        // The table has an attribute, as the header has place for small numbers only.
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.header.scope = RouteScope::from(route.scope);
        let sizes = [RouteMetric::Mtu(route.mtu_bytes), RouteMetric::Advmss(route.advmss_bytes)];
        let is_set = |size: &RouteMetric| !matches!(size, RouteMetric::Mtu(0) | RouteMetric::Advmss(0));
        message.attributes.extend([
            RouteAttribute::Oif(self.link(&hop.link).index),
            RouteAttribute::Table(route.table),
            RouteAttribute::Priority(route.metric),
            RouteAttribute::Metrics(sizes.into_iter().filter(is_set).collect()),
        ]);
        message.attributes.extend(hop.via.map(|via| RouteAttribute::Gateway(via.into())));
        self.request(NEW, &NewRoute(message), format_args!("add {route}"));
    }

    #[track_caller]
    pub fn delete_route(&self, to: &str) {
        self.step("ip", format_args!("route del {to}"));
        let mut message = static_route(to);
        message.header.protocol = RouteProtocol::Unspec;
        message.header.scope = RouteScope::NoWhere;
        message.header.kind = RouteType::Unspec;
        if message.header.destination_prefix_length == 0 {
            message.attributes.clear();
        }
        self.request(0, &DelRoute(message), format_args!("delete the route to {to}"));
    }

    #[track_caller]
    fn request(&self, flags: u16, message: &RouteNetlinkMessage, what: impl Display) {
        let done = self.enter(|| Socket::route().request(flags, message));
        done.must(format_args!("{what} in {}", self.path().display()));
    }
}

pub(crate) fn set_lo_up() {
    let lo = links().into_iter().find(|link| link.name == "lo").must("find lo");
    Socket::route().request(0, &NewLink(up_or_down(lo.index, LinkFlags::Up))).must("set lo up");
}

/// Whether the kernel makes a link of that kind, with that data, in the thread's namespace.
pub(crate) fn try_link(kind: InfoKind, parent: Option<&str>, data: Option<InfoData>) -> bool {
    let parent = parent.and_then(|name| links().into_iter().find(|link| link.name == name));
    let mut message = new_link(&format!("t-{kind}"), kind, data);
    message.attributes.extend(parent.map(|parent| LinkAttribute::Link(parent.index)));
    Socket::route().request(NEW, &NewLink(message)).is_ok()
}

pub(crate) fn link_message(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

fn new_link(name: &str, kind: InfoKind, data: Option<InfoData>) -> LinkMessage {
    let info = [LinkInfo::Kind(kind)].into_iter().chain(data.map(LinkInfo::Data)).collect();
    link_message(0, vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)])
}

fn up_or_down(index: u32, flags: LinkFlags) -> LinkMessage {
    let mut message = link_message(index, Vec::new());
    message.header.flags = flags;
    message.header.change_mask = LinkFlags::Up;
    message
}

/// A unicast route of table main to a destination, as administrators add it.
#[track_caller]
fn static_route(to: &str) -> RouteMessage {
    let (ip, length) = prefix(to);
    let mut message = RouteMessage::default();
    message.header.address_family = family(ip);
    message.header.destination_prefix_length = length;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Destination(ip.into())];
    message
}

#[track_caller]
fn prefix(text: &str) -> (IpAddr, u8) {
    let (ip, length) = text.split_once('/').must(format_args!("find the / in {text}"));
    let ip = ip.parse().must(format_args!("read {text} as an address"));
    (ip, length.parse().must(format_args!("read the prefix length of {text}")))
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[track_caller]
fn mac_bytes(mac: &str) -> Vec<u8> {
    let bytes: Result<Vec<u8>, _> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.must(format_args!("read {mac} as an Ethernet address"))
}
