//! Routes with all that the kernel says of them, next hops, metrics and origin included: for moving them to another table and
//! back.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHopFlags, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use super::{MAIN_TABLE, Route, list_like, read};
use crate::addr::Family;
use crate::error::{OpError, Result};
use crate::netlink_connection::{Kernel, Request};

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    message: RouteMessage,
    hops: Vec<Route>,
    /// Other links have further next hops of it.
    is_shared: bool,
}

impl Whole {
    fn read(mut message: RouteMessage) -> Self {
        // Values that the kernel determines itself are not sent back, as the kernel refuses them.
        message.header.flags &= RouteFlags::Onlink;
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
        for attribute in &mut message.attributes {
            if let RouteAttribute::MultiPath(hops) = attribute {
                hops.iter_mut().for_each(|hop| hop.flags &= RouteNextHopFlags::Onlink);
            }
        }
        Self { hops: read(&message), message, is_shared: false }
    }

    /// The link's part of the route; `None` if no next hop is on the link. IPv6 makes one multipath route of two links'
    /// routes with one destination, table and metric, so the part of one link is a route, too.
    fn of_link(mut self, link: u32) -> Option<Self> {
        let is_own = |hop: &Route| hop.link == Some(link);
        if self.hops.iter().all(is_own) {
            return (!self.hops.is_empty()).then_some(self);
        }
        self.hops.retain(is_own);
        let mut own = Vec::new();
        for attribute in std::mem::take(&mut self.message.attributes) {
            match attribute {
                RouteAttribute::MultiPath(mut hops) => {
                    hops.retain(|hop| hop.interface_index == link);
                    own = hops;
                }
                other => self.message.attributes.push(other),
            }
        }
        match own.as_slice() {
            [] => return None,
            [hop] => {
                if hop.flags.contains(RouteNextHopFlags::Onlink) {
                    self.message.header.flags |= RouteFlags::Onlink;
                }
                self.message.attributes.extend(hop.attributes.iter().cloned());
                self.message.attributes.push(RouteAttribute::Oif(link));
            }
            _ => self.message.attributes.push(RouteAttribute::MultiPath(own)),
        }
        Some(Self { is_shared: true, ..self })
    }

    /// A plain route, with this protocol as its origin.
    #[must_use]
    pub fn of(route: &Route, protocol: u8) -> Self {
        let mut message = route.message();
        message.header.protocol = RouteProtocol::from(protocol);
        Self { hops: read(&message), message, is_shared: false }
    }

    /// The route's origin (`RTPROT_*`).
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.message.header.protocol.into()
    }

    /// The route's next hops: one for a plain route.
    #[must_use]
    pub fn hops(&self) -> &[Route] {
        &self.hops
    }

    /// The route's destination.
    #[must_use]
    pub fn dst(&self) -> Option<IpNetwork> {
        self.hops.first().map(|hop| hop.dst)
    }

    /// Whether the link's part of the route can be deleted alone: that of an IPv4 route that has next hops on other links, too,
    /// cannot.
    #[must_use]
    pub fn is_deletable(&self) -> bool {
        !self.is_shared || self.message.header.address_family != AddressFamily::Inet
    }

    /// The route's preferred source address.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.hops.first().and_then(|hop| hop.source)
    }

    /// Whether the route has no gateway.
    #[must_use]
    pub fn is_on_link(&self) -> bool {
        self.hops.iter().all(|hop| hop.gateway.is_none())
    }

    /// The same route in another table.
    #[must_use]
    pub fn in_table(&self, table: u32) -> Self {
        let mut message = self.message.clone();
        message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Table(_)));
        message.attributes.push(RouteAttribute::Table(table));
        Self { hops: read(&message), message, is_shared: false }
    }

    /// The route's metric: the lowest wins. 0 where the kernel shows none, as of most IPv4 routes.
    #[must_use]
    pub fn metric(&self) -> u32 {
        let metric = |attribute: &RouteAttribute| match attribute {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        };
        self.message.attributes.iter().find_map(metric).unwrap_or_default()
    }

    /// The same route with another metric.
    #[must_use]
    pub fn with_metric(&self, metric: u32) -> Self {
        let mut message = self.message.clone();
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Priority(_)));
        message.attributes.push(RouteAttribute::Priority(metric));
        Self { hops: read(&message), message, is_shared: false }
    }

    /// The same route with another preferred source address.
    #[must_use]
    pub fn with_source(&self, source: IpAddr) -> Self {
        let mut message = self.message.clone();
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::PrefSource(_)));
        message.attributes.push(RouteAttribute::PrefSource(source.into()));
        // As by `ip route replace`: the kernel's own routes have the source that it chose.
        message.header.protocol = RouteProtocol::Boot;
        Self { hops: read(&message), message, is_shared: self.is_shared }
    }

    fn request(&self, op: &'static str, wire: &str, message: RouteNetlinkMessage) -> Request {
        Request::new(op, format!("route {self}"), message).wire_name(format!("{wire} {self}"))
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hops.as_slice() {
            [] => f.write_str("of an unknown family"),
            [one] => one.fmt(f),
            [first, more @ ..] => write!(f, "{first} and by {} more", more.len()),
        }
    }
}

/// The unicast routes of one family in a table that leave by this link, of multipath routes what the link has of them; those without a gateway first: gateways are
/// reached by them, so this is an order in which the routes can be added, and the reverse one in which they can be deleted.
///
/// # Errors
/// As [`super::list`].
pub fn list(net: &Kernel, link: u32, table: u32, family: Family) -> Result<Vec<Whole>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.into();
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Oif(link));
    message.attributes.push(RouteAttribute::Table(table));
    let routes =
        list_like(net, message, Some(table))?.into_iter().filter_map(|message| Whole::read(message).of_link(link));
    let (mut routes, by_gateway): (Vec<_>, Vec<_>) = routes.partition(Whole::is_on_link);
    routes.extend(by_gateway);
    Ok(routes)
}

/// The unicast routes of one family in the main table that a program has added with this protocol, by all links.
///
/// # Errors
/// As [`super::list`].
pub fn list_of_protocol(net: &Kernel, protocol: u8, family: Family) -> Result<Vec<Whole>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.into();
    message.header.kind = RouteType::Unicast;
    message.header.protocol = RouteProtocol::from(protocol);
    message.attributes.push(RouteAttribute::Table(MAIN_TABLE));
    let routes = list_like(net, message, Some(MAIN_TABLE))?.into_iter().map(Whole::read);
    // A kernel without strict checking lists those of all protocols.
    Ok(routes.filter(|route| route.protocol() == protocol).collect())
}

/// Adds a route, in the place of one with its destination, table and metric.
///
/// # Errors
/// As [`super::add`], but for `EEXIST`.
pub fn put(route: &Whole) -> Request {
    route
        .request("put", "RTM_NEWROUTE", RouteNetlinkMessage::NewRoute(route.message.clone()))
        .flags(NLM_F_CREATE | NLM_F_REPLACE)
}

/// Adds a route beside those of other links with its destination, table and metric; in IPv4 behind them. In IPv6, one by a
/// gateway must be the only one, as the kernel would make both one multipath route, unless it was part of one.
///
/// # Errors
/// As [`super::add`]; `EEXIST` also for such a second one.
pub fn add(route: &Whole) -> Request {
    let is_ipv4 = route.message.header.address_family == AddressFamily::Inet;
    let flags = match (is_ipv4, route.is_on_link()) {
        (true, _) => NLM_F_CREATE | NLM_F_APPEND,
        (false, false) if route.is_shared => NLM_F_CREATE | NLM_F_APPEND,
        (false, true) => NLM_F_CREATE,
        (false, false) => NLM_F_CREATE | NLM_F_EXCL,
    };
    route.request("add", "RTM_NEWROUTE", RouteNetlinkMessage::NewRoute(route.message.clone())).flags(flags)
}

/// Adds routes that a link has lost, beside those of other links; one that is there stays.
///
/// # Errors
/// As [`add`], for the first route that the kernel refuses; all others are added.
pub fn restore(net: &Kernel, routes: impl IntoIterator<Item = Whole>) -> Result<()> {
    let added = net.run_each(routes.into_iter().map(|route| add(&route)).collect());
    first(added, |error| error.os_errno() == Some(Errno::EEXIST))
}

/// Deletes a link's routes, whose order is [`list`]'s, and of those that it shares with other links its part; what is gone is
/// deleted. IPv4 has no part of a route that could be deleted alone: such a route stays.
///
/// # Errors
/// As [`delete`], for the first route that the kernel refuses; all others are deleted.
pub fn remove(net: &Kernel, routes: &[Whole]) -> Result<()> {
    first(
        net.run_each(routes.iter().rev().filter(|route| route.is_deletable()).map(delete).collect()),
        OpError::is_absent,
    )
}

fn first(done: Vec<Result<()>>, is_fine: impl Fn(&OpError) -> bool) -> Result<()> {
    done.into_iter().filter_map(Result::err).find(|error| !is_fine(error)).map_or(Ok(()), Err)
}

/// Adds a route, which must be the only one with its destination, table and metric.
///
/// # Errors
/// As [`super::add_only`].
pub fn add_only(route: &Whole) -> Request {
    Request { flags: NLM_F_CREATE | NLM_F_EXCL, ..add(route) }
}

/// Deletes a route.
///
/// # Errors
/// `ESRCH`: no such route exists.
pub fn delete(route: &Whole) -> Request {
    route.request("delete", "RTM_DELROUTE", RouteNetlinkMessage::DelRoute(route.message.clone()))
}
