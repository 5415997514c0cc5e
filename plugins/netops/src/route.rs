//! Routes.

pub mod whole;

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::addr::{Family, family};
use crate::error::{OpError, Result};
use crate::link::{self, Link, Target};
use crate::netlink_connection::{Kernel, Request};

/// The main table.
pub const MAIN_TABLE: u32 = 254; // RT_TABLE_MAIN

/// A route to a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The destination; `0.0.0.0/0` and `::/0` are the default routes.
    pub dst: IpNetwork,
    /// The next hop; `None`: the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The outgoing link. `None`: the one that the gateway is on, or one that does not exist yet.
    pub link: Option<u32>,
    /// The table; `None` is the main one.
    pub table: Option<u32>,
    /// The scope: 0 universe, 253 link, 254 host. `None`: universe, with or without a gateway.
    pub scope: Option<u8>,
    /// The metric: the lowest wins. `None`: the kernel's default (0 for IPv4, 1024 for IPv6).
    pub metric: Option<u32>,
    /// The MTU of the route, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The advertised TCP segment size (advmss), in bytes.
    pub advmss_bytes: Option<u32>,
    /// The preferred source address.
    pub source: Option<IpAddr>,
}

impl Route {
    /// A route with the kernel's defaults for all but destination, next hop and link.
    #[must_use]
    pub fn new(dst: IpNetwork, gateway: Option<IpAddr>, link: Option<u32>) -> Self {
        Self {
            dst,
            gateway,
            link,
            table: None,
            scope: None,
            metric: None,
            mtu_bytes: None,
            advmss_bytes: None,
            source: None,
        }
    }

    /// The message by hand: rtnetlink's builder has no metrics (MTU, advmss), and errors that a [`Route`] cannot have.
    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let table = self.table.unwrap_or(MAIN_TABLE);
        message.header = RouteHeader {
            address_family: family(self.dst.ip()),
            destination_prefix_length: self.dst.prefix(),
            table: u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            // The protocol that `ip route add` and the reference set.
            protocol: RouteProtocol::Boot,
            scope: self.scope.map_or(RouteScope::Universe, RouteScope::from),
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let attributes = &mut message.attributes;
        if self.dst.prefix() > 0 {
            attributes.push(RouteAttribute::Destination(RouteAddress::from(self.dst.network())));
        }
        attributes.extend(self.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
        attributes.extend(self.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
        attributes.extend(self.link.map(RouteAttribute::Oif));
        attributes.push(RouteAttribute::Table(table));
        attributes.extend(self.metric.map(RouteAttribute::Priority));
        let metrics: Vec<RouteMetric> =
            [self.mtu_bytes.map(RouteMetric::Mtu), self.advmss_bytes.map(RouteMetric::Advmss)]
                .into_iter()
                .flatten()
                .collect();
        if !metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }

    fn oif(&self) -> String {
        self.link.map_or(String::new(), |link| format!(" oif={link}"))
    }
}

impl std::fmt::Display for Route {
    /// In the syntax of `ip route`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.dst.prefix() {
            0 if self.dst.is_ipv4() => f.write_str("default")?,
            0 => f.write_str("default (IPv6)")?,
            _ => write!(f, "{}", self.dst)?,
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        let numbers = [
            ("table", self.table),
            ("scope", self.scope.map(u32::from)),
            ("metric", self.metric),
            ("mtu", self.mtu_bytes),
            ("advmss", self.advmss_bytes),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write!(f, " {name} {number}")?;
            }
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        Ok(())
    }
}

/// Adds a route. Routes to the same destination by different next hops can coexist (in IPv6 as one multipath route).
///
/// # Errors
/// `EEXIST`: the same route exists. `ENETUNREACH`, `EHOSTUNREACH`: no link reaches the gateway.
/// `ENETDOWN`: the link is down.
pub fn add(route: &Route) -> Request {
    let message = RouteNetlinkMessage::NewRoute(route.message());
    Request::new("add", format!("route {route}"), message)
        .flags(NLM_F_CREATE)
        .wire_name(format!("RTM_NEWROUTE {route}{}", route.oif()))
}

/// Adds a route, which must be the only one with its destination, table and metric.
///
/// # Errors
/// As [`add`]; `EEXIST` also if any route to that destination exists.
pub fn add_only(route: &Route) -> Request {
    let mut request = add(route);
    request.flags = NLM_F_CREATE | NLM_F_EXCL;
    request
}

/// Deletes a route.
///
/// # Errors
/// `ESRCH`: no such route exists.
pub fn delete(route: &Route) -> Request {
    let mut message = route.message();
    // RT_SCOPE_NOWHERE matches any scope.
    message.header.scope = route.scope.map_or(RouteScope::NoWhere, RouteScope::from);
    message.header.protocol = RouteProtocol::Unspec;
    Request::new("delete", format!("route {route}"), RouteNetlinkMessage::DelRoute(message))
        .wire_name(format!("RTM_DELROUTE {route}{}", route.oif()))
}

/// Replaces routes by others: all of them or none.
///
/// The kernel's own replacement (`NLM_F_REPLACE`) matches destination and metric only, so it could replace another
/// link's route.
///
/// # Errors
/// As [`add`] and [`delete`], for the first request that the kernel refuses. The old routes are restored before this
/// returns. One that the kernel refuses to restore is logged.
pub fn replace(net: &Kernel, old: &[Route], new: &[Route]) -> Result<()> {
    let swap = |old: &[Route], new: &[Route]| net.call_all(old.iter().map(delete).chain(new.iter().map(add)).collect());
    let refused = match swap(old, new).into_iter().find_map(std::result::Result::err) {
        None => return Ok(()),
        Some(error) => error,
    };
    // Only some of the new routes exist, and some of the old ones may still exist.
    for error in swap(new, old).into_iter().filter_map(std::result::Result::err) {
        let is_so_already = matches!(error.os_errno(), Some(Errno::ESRCH | Errno::EEXIST));
        if !is_so_already {
            tracing::warn!(%error, "a route is lost");
        }
    }
    Err(refused)
}

/// The default routes of both families through the link of this name, in the main table.
///
/// # Errors
/// `ENODEV`: no such link exists.
pub fn list_default(net: &Kernel, link: &str) -> Result<Vec<Route>> {
    let link = link::get(net, &Target::named(link))?.index;
    let mut routes = list_both(net, Some(link), Some(MAIN_TABLE))?;
    routes.retain(|route| route.dst.prefix() == 0);
    Ok(routes)
}

/// The unicast routes of both families, those of IPv4 first.
///
/// # Errors
/// As [`list`].
pub fn list_both(net: &Kernel, link: Option<u32>, table: Option<u32>) -> Result<Vec<Route>> {
    let mut routes = list(net, link, table, Family::V4)?;
    routes.extend(list(net, link, table, Family::V6)?);
    Ok(routes)
}

/// The unicast routes of one family: through one link or (`None`) any, in one table or (`None`) all.
///
/// # Errors
/// As the kernel refuses.
pub fn list(net: &Kernel, link: Option<u32>, table: Option<u32>, family: Family) -> Result<Vec<Route>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.into();
    message.header.kind = RouteType::Unicast;
    message.attributes.extend(link.map(RouteAttribute::Oif));
    message.attributes.extend(table.map(RouteAttribute::Table));
    let is_wanted = |route: &Route| link.is_none() || route.link == link;
    Ok(list_like(net, message, table)?.iter().flat_map(read).filter(is_wanted).collect())
}

/// The IPv6 routes of all tables that the kernel made by router advertisements.
///
/// # Errors
/// As the kernel refuses.
pub fn list_advertised(net: &Kernel) -> Result<Vec<Route>> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.kind = RouteType::Unicast;
    message.header.protocol = RouteProtocol::Ra;
    let is_it = |message: &RouteMessage| message.header.protocol == RouteProtocol::Ra;
    Ok(list_like(net, message, None)?.iter().filter(|message| is_it(message)).flat_map(read).collect())
}

/// The unicast routes of one table or (`None`) all, as a request for them gets: a kernel without strict checking lists those
/// of all tables and kinds, and some copies that it has made for single destinations.
fn list_like(net: &Kernel, message: RouteMessage, table: Option<u32>) -> Result<Vec<RouteMessage>> {
    Ok(dump(net, message)?.into_iter().filter(|message| is_unicast(message, table)).collect())
}

/// The kind and the destination of a route that refuses packets, as `ip route` writes them.
pub type Refusing = (&'static str, IpNetwork);

/// The unicast routes of one table and family, and those by which the kernel refuses packets, as `ip route` writes their kind
/// and destination: `blackhole 10.1.0.0/24`.
///
/// # Errors
/// As the kernel refuses.
pub fn list_table(net: &Kernel, table: u32, family: Family) -> Result<(Vec<Route>, Vec<Refusing>)> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.into();
    message.attributes.push(RouteAttribute::Table(table));
    let refusing = |message: &RouteMessage| {
        let kind = match message.header.kind {
            RouteType::BlackHole => "blackhole",
            RouteType::Unreachable => "unreachable",
            RouteType::Prohibit => "prohibit",
            _ => return None,
        };
        let route = read_common(message)?;
        (route.table == Some(table)).then_some((kind, route.dst))
    };
    let found = dump(net, message)?;
    let unicast = found.iter().filter(|message| is_unicast(message, Some(table))).flat_map(read).collect();
    Ok((unicast, found.iter().filter_map(refusing).collect()))
}

fn is_unicast(message: &RouteMessage, table: Option<u32>) -> bool {
    message.header.kind == RouteType::Unicast
        && !message.header.flags.contains(RouteFlags::Cloned)
        && (table.is_none() || read_common(message).and_then(|route| route.table) == table)
}

fn dump(net: &Kernel, message: RouteMessage) -> Result<Vec<RouteMessage>> {
    let request = Request::new("list", "routes", RouteNetlinkMessage::GetRoute(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETROUTE dump");
    let answers = match net.call(request) {
        // For a table that was never used.
        Err(error) if error.is_absent() => Vec::new(),
        answers => answers?,
    };
    let route = |answer| match answer {
        RouteNetlinkMessage::NewRoute(message) => Some(message),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(route).collect())
}

/// The route the kernel would use to reach `to`.
///
/// # Errors
/// `ENETUNREACH`: no route leads there.
pub fn lookup(net: &Kernel, to: IpAddr) -> Result<Route> {
    answered(net, lookup_request(to, RouteFlags::empty()))
}

/// The entry, with its table, by which the kernel would reach `to`.
///
/// # Errors
/// As [`lookup`].
pub fn lookup_entry(net: &Kernel, to: IpAddr) -> Result<Route> {
    answered(net, lookup_request(to, RouteFlags::FibMatch | RouteFlags::LookupTable))
}

/// The route in the answer to a look-up.
fn answered(net: &Kernel, request: Request) -> Result<Route> {
    let object = request.object.clone();
    let route = net.call(request)?.iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(message) => read(message).into_iter().next(),
        _ => None,
    });
    route.ok_or_else(|| OpError::state("look up", object, "the kernel answered without one").at(net.place()))
}

/// The route of packets that the host gets by a link from one address, and that it is to forward to another: rules of
/// routing, the filter of ways back and refusing routes count.
///
/// # Errors
/// `EXDEV`: the way back is another link. `EHOSTUNREACH`: the host forwards nothing from the link, or a route refuses it.
/// `EINVAL`, `EACCES`: a rule or a route refuses it. `ENETUNREACH`: no route leads there.
pub fn lookup_forwarded(net: &Kernel, from: IpAddr, link: &Link, to: IpAddr) -> Result<Route> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    let bits = if to.is_ipv4() { 32 } else { 128 };
    (message.header.source_prefix_length, message.header.destination_prefix_length) = (bits, bits);
    message.attributes.extend([
        RouteAttribute::Source(from.into()),
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Iif(link.index),
    ]);
    let object = format!("route from {from} by {} to {to}", link.name);
    let request = Request::new("look up", object, RouteNetlinkMessage::GetRoute(message))
        .wire_name(format!("RTM_GETROUTE {from} iif={} {to}", link.name));
    answered(net, request)
}

/// Whether packets to this address are for the host itself, as the type `LOCAL` of iptables' addrtype.
///
/// # Errors
/// As [`lookup`].
pub fn leads_to_host(net: &Kernel, to: IpAddr) -> Result<bool> {
    let is_local = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewRoute(message) => message.header.kind == RouteType::Local,
        _ => false,
    };
    Ok(net.call(lookup_request(to, RouteFlags::empty()))?.iter().any(is_local))
}

fn lookup_request(to: IpAddr, flags: RouteFlags) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.flags = flags;
    message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
    message.attributes.push(RouteAttribute::Destination(to.into()));
    Request::new("look up", format!("route to {to}"), RouteNetlinkMessage::GetRoute(message))
        .wire_name(format!("RTM_GETROUTE {to}"))
}

/// Whether the route to an IPv4 address is the local one that the kernel makes when a link gets the address.
pub(crate) fn is_local(net: &Kernel, link: &Link, ip: IpAddr) -> bool {
    let mut message = RouteMessage::default();
    message.header.address_family = family(ip);
    message.header.destination_prefix_length = 32;
    message.header.flags = RouteFlags::FibMatch;
    message.attributes.push(RouteAttribute::Destination(ip.into()));
    // Only of this link, also in the table of a VRF. The kernel refuses a link that is down, which keeps its local routes.
    message.attributes.extend(link.up.then_some(RouteAttribute::Oif(link.index)));
    let request = Request::new("look up", format!("local route to {ip}"), RouteNetlinkMessage::GetRoute(message))
        .wire_name(format!("RTM_GETROUTE fibmatch dev={} {ip}", link.name));
    let is_its = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewRoute(message) => {
            let route = read_common(message);
            message.header.kind == RouteType::Local
                && route.is_some_and(|route| route.link == Some(link.index) && route.dst == IpNetwork::from(ip))
        }
        _ => false,
    };
    net.call(request).is_ok_and(|answers| answers.iter().any(is_its))
}

/// The route, or one for each next hop of a multipath route.
pub(crate) fn read(message: &RouteMessage) -> Vec<Route> {
    let Some(mut route) = read_common(message) else {
        return Vec::new();
    };
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        if let RouteAttribute::MultiPath(next_hops) = attribute {
            for hop in next_hops {
                route.link = Some(hop.interface_index);
                route.gateway = hop.attributes.iter().find_map(gateway);
                hops.push(route.clone());
            }
        }
    }
    if hops.is_empty() {
        hops.push(route);
    }
    hops
}

fn read_common(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut dst = any;
    let mut route = Route::new(IpNetwork::new(any, 0).ok()?, None, None);
    route.table = Some(u32::from(header.table));
    route.scope = Some(header.scope.into());
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => dst = ip(to)?,
            RouteAttribute::Gateway(_) => route.gateway = gateway(attribute),
            RouteAttribute::PrefSource(from) => route.source = ip(from),
            RouteAttribute::Oif(index) => route.link = Some(*index),
            RouteAttribute::Table(table) => route.table = Some(*table),
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            RouteAttribute::Metrics(metrics) => {
                for metric in metrics {
                    match metric {
                        RouteMetric::Mtu(bytes) => route.mtu_bytes = Some(*bytes),
                        RouteMetric::Advmss(bytes) => route.advmss_bytes = Some(*bytes),
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
    route.dst = IpNetwork::new(dst, header.destination_prefix_length).ok()?;
    Some(route)
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
