//! Routes and rules as the kernel shows them.

use std::fmt::{self, Write};
use std::net::IpAddr;

use crate::Namespace;
use crate::address::ip;
use crate::link::Names;
use crate::must::Must;
use crate::netlink::{Attributes, Socket, u16_at, u32_at};

const RTM_GETROUTE: u16 = 26;
const RTM_GETRULE: u16 = 34;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination, `10.1.0.0/24`; `0.0.0.0/0` and `::/0` are the default routes.
    pub to: String,
    /// Gateways, each with its link; one for a plain route.
    pub hops: Vec<Hop>,
    /// Table: 254 main, 255 local.
    pub table: u32,
    pub source: Option<IpAddr>,
    pub metric: u32,
    /// Scope: 0 universe, 253 link, 254 host.
    pub scope: u8,
    /// The route's origin: 2 kernel, 3 boot, 4 static, 9 router advertisement.
    pub protocol: u8,
    /// Type: 1 unicast, 2 local, 3 broadcast, 7 unreachable.
    pub kind: u8,
    /// Path MTU in bytes, 0 for the link's.
    pub mtu_bytes: u32,
    /// Advertised maximum segment size in bytes, 0 for the kernel's choice.
    pub advmss_bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Gateway, if the destination is not on the link itself.
    pub via: Option<IpAddr>,
    pub link: String,
}

impl Namespace {
    #[track_caller]
    pub fn routes(&self) -> Vec<Route> {
        self.enter(|| routes(&Names::now()))
    }

    #[track_caller]
    pub fn rules(&self) -> Vec<String> {
        self.enter(rules)
    }
}

pub(crate) fn routes(names: &Names) -> Vec<Route> {
    let mut routes = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut header = [0; 12];
        header[0] = family;
        let dump = Socket::route().dump(RTM_GETROUTE, &header).must("list routes");
        let parsed = dump.iter().filter_map(|message| Route::parse(&message.body, names));
        routes.extend(parsed);
    }
    routes
}

impl Route {
    fn parse(body: &[u8], names: &Names) -> Option<Self> {
        const RTM_F_CLONED: u32 = 0x200;
        const RTA_MULTIPATH: u16 = 9;
        if u32_at(body, 8) & RTM_F_CLONED != 0 {
            return None;
        }
        let all = Attributes::after(body, 12);
        let metrics = all.nested(8);
        let hops = match all.get(RTA_MULTIPATH) {
            Some(hops) => multipath(hops, names),
            None => vec![hop(all, all.u32(4).unwrap_or_default(), names)],
        };
        Some(Self {
            to: prefix(body, 1, all.get(1)),
            hops,
            table: all.u32(15).unwrap_or_else(|| u32::from(body[4])),
            source: all.get(7).and_then(ip),
            metric: all.u32(6).unwrap_or_default(),
            protocol: *body.get(5)?,
            scope: *body.get(6)?,
            kind: *body.get(7)?,
            mtu_bytes: metrics.u32(2).unwrap_or_default(),
            advmss_bytes: metrics.u32(8).unwrap_or_default(),
        })
    }
}

/// `struct rtnexthop`: u16 length, flags, hops, i32 index, then attributes.
fn multipath(mut bytes: &[u8], names: &Names) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some(one) = bytes.get(..usize::from(u16_at(bytes, 0))).filter(|one| one.len() >= 8) {
        hops.push(hop(Attributes::after(one, 8), u32_at(one, 4), names));
        bytes = bytes.get(one.len().next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn hop(attributes: Attributes<'_>, index: u32, names: &Names) -> Hop {
    // RTA_GATEWAY, or RTA_VIA of the other family: its number, then the address.
    let other_family = || attributes.get(18).and_then(|via| via.get(2..)).and_then(ip);
    Hop { via: attributes.get(5).and_then(ip).or_else(other_family), link: names.get(index) }
}

/// The prefix whose length is at `offset` of the header.
fn prefix(body: &[u8], offset: usize, address: Option<&[u8]>) -> String {
    let length = body.get(offset).copied().unwrap_or_default();
    match (address.and_then(ip), body.first()) {
        (Some(address), _) => format!("{address}/{length}"),
        (None, Some(&AF_INET)) => format!("0.0.0.0/{length}"),
        (None, _) => format!("::/{length}"),
    }
}

pub(crate) fn rules() -> Vec<String> {
    let mut rules = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut header = [0; 12];
        header[0] = family;
        // A kernel without policy routing says EOPNOTSUPP.
        let dump = Socket::route().dump(RTM_GETRULE, &header).unwrap_or_default();
        rules.extend(dump.iter().map(|message| rule(&message.body)));
    }
    rules
}

fn rule(body: &[u8]) -> String {
    let all = Attributes::after(body, 12);
    let priority = all.u32(6).unwrap_or_default();
    let from = prefix(body, 2, all.get(2));
    let to = prefix(body, 1, all.get(1));
    let table = all.u32(15).unwrap_or_default();
    let action = body.get(7).copied().unwrap_or_default();
    let mut line = format!("rule {priority}: from {from} to {to} table {table} action {action}");
    for (name, kind) in [("iif", 3), ("oif", 17)] {
        if let Some(link) = all.string(kind) {
            write!(line, " {name} {link}").must("write to a string");
        }
    }
    if let Some(mark) = all.u32(10) {
        write!(line, " fwmark {mark:#x}").must("write to a string");
    }
    line
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {} table {}", self.to, self.table)?;
        for Hop { via, link } in &self.hops {
            match via {
                Some(via) => write!(f, " via {via} dev {link}")?,
                None => write!(f, " dev {link}")?,
            }
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        let Self { metric, scope, protocol, kind, mtu_bytes, advmss_bytes, .. } = self;
        write!(f, " metric {metric} scope {scope} proto {protocol} type {kind}")?;
        if *mtu_bytes + *advmss_bytes > 0 {
            write!(f, " mtu {mtu_bytes} advmss {advmss_bytes}")?;
        }
        Ok(())
    }
}
