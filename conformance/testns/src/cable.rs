//! Links, addresses and routes that a test makes itself: the environment of the plugins.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::libc;

use crate::Namespace;
use crate::link::links;
use crate::must::Must;
use crate::netlink::{Body, Socket};
use crate::route::Route;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWLINKPROP: u16 = 108;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_PROP_LIST: u16 = 52 | 1 << 15; // NLA_F_NESTED
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

impl Namespace {
    /// Makes a veth from `name` here to `peer` in `other`, both up and with their link-local addresses, where IPv6 is on.
    ///
    /// # Panics
    /// When the kernel refuses: a name is taken, say.
    #[track_caller]
    pub fn add_veth(&self, name: &str, other: &Namespace, peer: &str) {
        let target = File::open(other.path()).must(format_args!("open {}", other.path().display()));
        let there = target.as_raw_fd().to_ne_bytes();
        let peer_link = |data: Body| {
            let link = Body(link_header(0, false)).string(IFLA_IFNAME, peer);
            data.attribute(VETH_INFO_PEER, &link.attribute(IFLA_NET_NS_FD, &there).0)
        };
        self.new_link(name, "veth", |info| info.nest(IFLA_INFO_DATA, peer_link));
        self.set_up(name);
        other.set_up(peer);
        // The kernel adds them when it notices the carrier, which a test would take for the plugin's doing.
        self.wait_for_link_local(name);
        other.wait_for_link_local(peer);
    }

    /// Makes a link of a kind that needs no options (`bridge`, `dummy`, `ifb`) and sets it up.
    ///
    /// # Panics
    /// When the kernel refuses: it lacks the kind, or the name is taken.
    #[track_caller]
    pub fn add_link(&self, name: &str, kind: &str) {
        self.new_link(name, kind, |info| info);
        self.set_up(name);
    }

    #[track_caller]
    fn new_link(&self, name: &str, kind: &str, data: impl FnOnce(Body) -> Body) {
        let body = Body(link_header(0, false)).string(IFLA_IFNAME, name);
        let body = body.nest(IFLA_LINKINFO, |info| data(info.string(IFLA_INFO_KIND, kind)));
        self.request(RTM_NEWLINK, NEW, &body, format_args!("create {kind} {name}"));
    }

    /// Sets a link up.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn set_up(&self, link: &str) {
        let body = Body(link_header(self.link(link).index, true));
        self.request(RTM_NEWLINK, 0, &body, format_args!("set {link} up"));
    }

    /// Makes a link a port of a bridge.
    ///
    /// # Panics
    /// When either is missing.
    #[track_caller]
    pub fn set_master(&self, link: &str, master: &str) {
        let master_index = self.link(master).index.to_ne_bytes();
        let what = format!("make {link} a port of {master}");
        self.change_link(link, &what, |body| body.attribute(IFLA_MASTER, &master_index));
    }

    /// Removes a port from its bridge.
    ///
    /// # Panics
    /// When there is no such link.
    #[track_caller]
    pub fn clear_master(&self, link: &str) {
        let what = format!("take {link} from its bridge");
        self.change_link(link, &what, |body| body.attribute(IFLA_MASTER, &0_u32.to_ne_bytes()));
    }

    /// Sets a link's hardware address, `0a:00:00:00:00:05`.
    ///
    /// # Panics
    /// When there is no such link, or the text is no address.
    #[track_caller]
    pub fn set_mac(&self, link: &str, mac: &str) {
        let what = format!("set the hardware address of {link} to {mac}");
        let bytes: Result<Vec<u8>, _> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
        let bytes = bytes.must(&what);
        self.change_link(link, &what, |body| body.attribute(IFLA_ADDRESS, &bytes));
    }

    /// Sets a link down.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn set_down(&self, link: &str) {
        let mut header = link_header(self.link(link).index, true);
        header[8..12].fill(0); // flags, of which the mask behind them names the one to change
        self.request(RTM_NEWLINK, 0, &Body(header), format_args!("set {link} down"));
    }

    /// Renames a link. It is down for a moment and loses its routes: older kernels require that.
    ///
    /// # Panics
    /// When there is none, or the name is taken.
    #[track_caller]
    pub fn rename(&self, link: &str, name: impl AsRef<[u8]>) {
        let index = self.link(link).index;
        self.set_down(link);
        let name = name.as_ref();
        let what = format!("rename {link} to {}", name.escape_ascii());
        self.change_link(link, &what, |body| body.attribute(IFLA_IFNAME, &[name, &[0]].concat()));
        self.request(RTM_NEWLINK, 0, &Body(link_header(index, true)), format_args!("set {link} up under its new name"));
    }

    /// Sets a link's MTU.
    ///
    /// # Panics
    /// When there is none, or it does not take that MTU.
    #[track_caller]
    pub fn set_mtu(&self, link: &str, mtu_bytes: u32) {
        let what = format!("set the MTU of {link}");
        self.change_link(link, &what, |body| body.attribute(IFLA_MTU, &mtu_bytes.to_ne_bytes()));
    }

    /// Sets a link's alias.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn set_alias(&self, link: &str, alias: impl AsRef<[u8]>) {
        let what = format!("set the alias of {link}");
        self.change_link(link, &what, |body| body.attribute(IFLA_IFALIAS, alias.as_ref()));
    }

    /// Gives a link a further name.
    ///
    /// # Panics
    /// When there is none, or the name is taken.
    #[track_caller]
    pub fn add_alt_name(&self, link: &str, name: impl AsRef<[u8]>) {
        let names = |body: Body| body.attribute(IFLA_ALT_IFNAME, &[name.as_ref(), &[0]].concat());
        let body = Body(link_header(self.link(link).index, false)).nest(IFLA_PROP_LIST, names);
        self.request(RTM_NEWLINKPROP, NEW | libc::NLM_F_APPEND, &body, format_args!("give {link} a further name"));
    }

    /// Moves a link to another namespace, where it is down and has no addresses.
    ///
    /// # Panics
    /// When there is none, or its name is taken there.
    #[track_caller]
    pub fn move_link(&self, link: &str, other: &Self) {
        let target = File::open(other.path()).must(format_args!("open {}", other.path().display()));
        let what = format!("move {link} to another namespace");
        self.change_link(link, &what, |body| body.attribute(IFLA_NET_NS_FD, &target.as_raw_fd().to_ne_bytes()));
    }

    #[track_caller]
    fn change_link(&self, link: &str, what: &str, attributes: impl FnOnce(Body) -> Body) {
        let body = attributes(Body(link_header(self.link(link).index, false)));
        self.request(RTM_NEWLINK, 0, &body, what);
    }

    /// Deletes a link.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn delete_link(&self, link: &str) {
        let body = Body(link_header(self.link(link).index, false));
        self.request(RTM_DELLINK, 0, &body, format_args!("delete {link}"));
    }

    /// Gives a link an address, `10.1.0.5/24` or `fd01::5/64`, without duplicate detection.
    ///
    /// # Panics
    /// When the text is no such address, or the kernel refuses it.
    #[track_caller]
    pub fn add_address(&self, link: &str, address: &str) {
        let body = self.address_body(link, address);
        self.request(RTM_NEWADDR, NEW, &body, format_args!("add {address} to {link}"));
    }

    /// Removes an address from a link.
    ///
    /// # Panics
    /// When it is not there.
    #[track_caller]
    pub fn delete_address(&self, link: &str, address: &str) {
        let body = self.address_body(link, address);
        self.request(RTM_DELADDR, 0, &body, format_args!("delete {address} from {link}"));
    }

    /// Removes the global addresses of a link.
    ///
    /// # Panics
    /// When the namespace cannot be entered.
    #[track_caller]
    pub fn delete_addresses(&self, link: &str) {
        self.global_addresses(link).iter().for_each(|address| self.delete_address(link, address));
    }

    #[track_caller]
    fn address_body(&self, link: &str, address: &str) -> Body {
        const IFA_F_NODAD: u8 = 2;
        let (ip, length) = prefix(address);
        let mut header = vec![family(ip), length, IFA_F_NODAD, 0];
        header.extend(self.link(link).index.to_ne_bytes());
        Body(header).attribute(2, &bytes(ip)).attribute(1, &bytes(ip))
    }

    /// Adds a route to `10.9.0.0/16`, `0.0.0.0/0`, `::/0`, ... through a gateway on a link.
    ///
    /// # Panics
    /// When a text is no address, or the kernel refuses the route.
    #[track_caller]
    pub fn add_route(&self, to: &str, via: &str, link: &str) {
        let (ip, length) = prefix(to);
        let gateway: IpAddr = via.parse().must(format_args!("read {via} as an address"));
        let index = self.link(link).index.to_ne_bytes();
        // Table main, protocol static, scope universe, type unicast.
        let header = vec![family(ip), length, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        let body = Body(header).attribute(1, &bytes(ip));
        let body = body.attribute(5, &bytes(gateway)).attribute(4, &index);
        self.request(RTM_NEWROUTE, NEW, &body, format_args!("add a route to {to} via {via}"));
    }

    /// Adds a route with its table, metric, MTU and advertised segment size, by its first hop.
    ///
    /// # Panics
    /// When the destination is no prefix, there is no hop, or the kernel refuses the route.
    #[track_caller]
    pub fn lay_route(&self, route: &Route) {
        let (ip, length) = prefix(&route.to);
        let hop = route.hops.first().must(format_args!("find a hop of the route to {}", route.to));
        let number = |value: u32| value.to_ne_bytes();
        // The table in an attribute of its own, as the header has place for small numbers only; protocol static, type unicast.
        let header = vec![family(ip), length, 0, 0, 0, 4, route.scope, 1, 0, 0, 0, 0];
        let body = Body(header).attribute(1, &bytes(ip)).attribute(4, &number(self.link(&hop.link).index));
        let body = body.attribute(15, &number(route.table)).attribute(6, &number(route.metric));
        let body = body.nest(8, |metrics| {
            let sizes = [(2, route.mtu_bytes), (8, route.advmss_bytes)];
            sizes
                .into_iter()
                .filter(|(_, size)| *size > 0)
                .fold(metrics, |all, (kind, size)| all.attribute(kind, &number(size)))
        });
        let body = match hop.via {
            Some(via) => body.attribute(5, &bytes(via)),
            None => body,
        };
        self.request(RTM_NEWROUTE, NEW, &body, format_args!("add {route}"));
    }

    /// Removes a route to a destination from table main.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn delete_route(&self, to: &str) {
        let (ip, length) = prefix(to);
        // Table main, any protocol, scope (RT_SCOPE_NOWHERE) and type.
        let header = vec![family(ip), length, 0, 0, 254, 0, 255, 0, 0, 0, 0, 0];
        let body = if length == 0 { Body(header) } else { Body(header).attribute(1, &bytes(ip)) };
        self.request(RTM_DELROUTE, 0, &body, format_args!("delete the route to {to}"));
    }

    #[track_caller]
    fn request(&self, kind: u16, flags: i32, body: &Body, what: impl std::fmt::Display) {
        let done = self.enter(|| Socket::route().request(kind, flags, &body.0));
        done.must(format_args!("{what} in {}", self.path().display()));
    }
}

/// Sets `lo` of the thread's namespace up.
pub(crate) fn set_lo_up() {
    let lo = links().into_iter().find(|link| link.name == "lo").must("find lo");
    let done = Socket::route().request(RTM_NEWLINK, 0, &link_header(lo.index, true));
    done.must("set lo up");
}

/// Whether the kernel makes a link of that kind, with that data, in the thread's namespace.
pub(crate) fn try_link(kind: &str, parent: Option<&str>, data: &[(u16, &[u8])]) -> bool {
    const IFLA_LINK: u16 = 5;
    let parent = parent.and_then(|name| links().into_iter().find(|link| link.name == name));
    let mut body = Body(link_header(0, false)).string(IFLA_IFNAME, &format!("t-{kind}"));
    if let Some(parent) = parent {
        body = body.attribute(IFLA_LINK, &parent.index.to_ne_bytes());
    }
    let options = |options: Body| data.iter().fold(options, |body, (kind, value)| body.attribute(*kind, value));
    let body = body.nest(IFLA_LINKINFO, |info| info.string(IFLA_INFO_KIND, kind).nest(IFLA_INFO_DATA, options));
    Socket::route().request(RTM_NEWLINK, NEW, &body.0).is_ok()
}

/// `struct ifinfomsg` for a link, setting it up if requested.
fn link_header(index: u32, up: bool) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(u32::from(up).to_ne_bytes());
    header.extend(u32::from(up).to_ne_bytes());
    header
}

#[track_caller]
fn prefix(text: &str) -> (IpAddr, u8) {
    let (ip, length) = text.split_once('/').must(format_args!("find the / in {text}"));
    let ip = ip.parse().must(format_args!("read {text} as an address"));
    (ip, length.parse().must(format_args!("read the prefix length of {text}")))
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 2 } else { 10 }
}

fn bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
