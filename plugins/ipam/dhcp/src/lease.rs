//! A lease: what a server's acknowledgement gives, and the result of ADD made of it.

use std::net::{IpAddr, Ipv4Addr};

use cni_spec::{AddResult, Dns, Ip, Route};
use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use crate::message::{Incoming, MessageType};
use crate::options::code;

/// The lease time of a server that gives none, in seconds, as in the reference.
const LEASE_SECONDS: u32 = 60 * 60;

/// The shortest lease that is taken, in seconds: its T1 is after a second, so that no server causes more than one exchange a
/// second.
const LEASE_SECONDS_MIN: u32 = 2;

/// `RT_SCOPE_LINK` (linux/rtnetlink.h).
const SCOPE_LINK: u8 = 253;

/// A lease that never ends (RFC 2131, 3.3).
pub const INFINITE: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    pub address: Ipv4Network,
    /// The server that renews and releases it.
    pub server: Ipv4Addr,
    /// Routers, the preferred one first.
    pub routers: Vec<Ipv4Addr>,
    /// Routes with their routers; a router of 0.0.0.0 is the link itself. `None`: the server sent none of this kind.
    pub classless_routes: Option<Vec<(Ipv4Network, Ipv4Addr)>>,
    pub static_routes: Vec<(Ipv4Network, Ipv4Addr)>,
    pub name_servers: Vec<Ipv4Addr>,
    /// The domain; empty if there is none.
    pub domain: String,
    pub search: Vec<String>,
    /// The link's MTU, in bytes.
    pub mtu_bytes: Option<u16>,
    /// The duration, in seconds; [`INFINITE`] is for ever.
    pub seconds: u32,
    /// The time of renewal with its server, in seconds.
    pub renew_seconds: u32,
    /// The time of renewal with any server, in seconds.
    pub rebind_seconds: u32,
}

impl Lease {
    /// The lease of an offer or acknowledgement.
    pub fn of(message: &Incoming) -> Result<Self, String> {
        let address = message.yiaddr;
        let no_client = || format!("the server gives address {address}, which no client can have");
        if !is_a_hosts(address) {
            return Err(no_client());
        }
        let mask = match (message.address(code::SUBNET_MASK), message.kind) {
            (Some(mask), _) => mask,
            // RFC 2131, 4.3.1: what an offer has is the server's choice; only the acknowledgement is the lease.
            (None, MessageType::Offer) if message.find(code::SUBNET_MASK).is_none() => Ipv4Addr::BROADCAST,
            (None, _) => return Err("the server gives no subnet mask".to_owned()),
        };
        let prefix = u32::from(mask).leading_ones();
        if u32::from(mask).checked_shl(prefix).unwrap_or(0) != 0 || prefix == 0 {
            return Err(format!("the server gives subnet mask {mask}, which is none"));
        }
        let network = u8::try_from(prefix).ok().and_then(|prefix| Ipv4Network::new(address, prefix).ok());
        let network = network.ok_or_else(|| format!("the server gives subnet mask {mask}, which is none"))?;
        if network.prefix() < 31 && (address == network.network() || address == network.broadcast()) {
            return Err(no_client());
        }
        // The daemon sends to it, also from the node.
        let server = message.address(code::SERVER).ok_or("the server does not give its address")?;
        if !is_a_hosts(server) || server == address {
            return Err(format!("the server gives {server} as its own address, and {address} as the client's"));
        }
        let seconds = message.number(code::LEASE_SECONDS).unwrap_or(LEASE_SECONDS);
        if seconds < LEASE_SECONDS_MIN {
            return Err(format!("the server gives a lease of {seconds} s, which ends before it can be renewed"));
        }
        let (renew_seconds, rebind_seconds) =
            times(seconds, message.number(code::RENEW_SECONDS), message.number(code::REBIND_SECONDS));
        Ok(Self {
            address: network,
            server,
            routers: message.addresses(code::ROUTERS).into_iter().filter(|&router| is_a_hosts(router)).collect(),
            classless_routes: message.find(code::CLASSLESS_ROUTES).and_then(classless),
            static_routes: classful(&message.addresses(code::STATIC_ROUTES)),
            name_servers: message.addresses(code::NAME_SERVERS),
            domain: message.text(code::DOMAIN).unwrap_or_default(),
            search: message.search(),
            // The least that each host takes (RFC 791, 3.1).
            mtu_bytes: message
                .find(code::MTU)
                .and_then(|value| value.try_into().ok())
                .map(u16::from_be_bytes)
                .filter(|&mtu| mtu >= 576),
            seconds,
            renew_seconds,
            rebind_seconds,
        })
    }

    /// The result of ADD; `priority` is the metric of its routes.
    pub fn result(&self, priority: u32) -> AddResult {
        let route = |dst: Ipv4Network, gw: Option<Ipv4Addr>, scope| {
            let mut route = Route::new(dst.into(), gw.map(IpAddr::from));
            (route.priority, route.scope) = (priority, scope);
            route
        };
        // RFC 3442: a client that got classless routes ignores routers and classful ones.
        let routes = match &self.classless_routes {
            Some(routes) => routes
                .iter()
                .map(|&(dst, router)| match router.is_unspecified() {
                    true => route(dst, Some(router), Some(SCOPE_LINK)),
                    false => route(dst, Some(router), None),
                })
                .collect(),
            None => {
                let any = Ipv4Network::from(Ipv4Addr::UNSPECIFIED);
                let default = Ipv4Network::new(Ipv4Addr::UNSPECIFIED, 0).unwrap_or(any);
                let statics = self.static_routes.iter().map(|&(dst, router)| route(dst, Some(router), None));
                statics.chain(self.routers.first().map(|&router| route(default, Some(router), None))).collect()
            }
        };
        let gateway = self.routers.first().copied().map(IpAddr::from);
        let mut dns = Dns::default();
        dns.nameservers = self.name_servers.iter().map(Ipv4Addr::to_string).collect();
        dns.domain = self.domain.clone();
        dns.search = self.search.clone();
        AddResult::of_addresses(vec![Ip::new(self.address.into(), gateway)], routes, dns)
    }
}

/// Returns whether the address can be that of a host of a network.
fn is_a_hosts(address: Ipv4Addr) -> bool {
    address.octets()[0] != 0 && !address.is_loopback() && !address.is_multicast() && !address.is_broadcast()
}

/// T1 and T2 (RFC 2131, 4.4.5). Times of the server that do not lie within the lease are replaced by the reference's: a half,
/// and 85 hundredths.
fn times(seconds: u32, renew: Option<u32>, rebind: Option<u32>) -> (u32, u32) {
    if seconds == INFINITE {
        return (INFINITE, INFINITE);
    }
    let rebind = rebind.filter(|&rebind| 0 < rebind && rebind < seconds).unwrap_or(seconds - seconds / 20 * 3);
    let renew = renew.filter(|&renew| 0 < renew && renew < rebind).unwrap_or(rebind.min(seconds / 2));
    (renew, rebind)
}

/// Option 33: pairs of a destination, whose class says its prefix, and a router. The default route is not allowed there.
fn classful(addresses: &[Ipv4Addr]) -> Vec<(Ipv4Network, Ipv4Addr)> {
    let (pairs, _) = addresses.as_chunks::<2>();
    let prefix = |dst: Ipv4Addr| match dst.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        192..=255 => 24,
    };
    let routes = pairs.iter().filter(|[dst, _]| !dst.is_unspecified());
    routes.filter_map(|&[dst, router]| Some((network(dst, prefix(dst))?, router))).collect()
}

/// Option 121: each a prefix length, the significant octets of the destination, and a router. `None` if it is malformed
/// or empty, which the reference takes for absent, too.
fn classless(mut value: &[u8]) -> Option<Vec<(Ipv4Network, Ipv4Addr)>> {
    let mut routes = Vec::new();
    while let Some((&prefix, rest)) = value.split_first() {
        let significant = usize::from(prefix).div_ceil(8);
        let (dst, rest) = rest.split_at_checked(significant)?;
        let (&router, rest) = rest.split_first_chunk::<4>()?;
        let mut octets = [0; 4];
        octets.get_mut(..significant)?.copy_from_slice(dst);
        routes.push((network(octets.into(), prefix)?, router.into()));
        value = rest;
    }
    Some(routes).filter(|routes| !routes.is_empty())
}

fn network(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Network> {
    let net = Ipv4Network::new(address, prefix).ok()?;
    Ipv4Network::new(net.network(), prefix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Network {
        text.parse().unwrap()
    }

    fn lease() -> Lease {
        Lease {
            address: net("10.0.0.9/24"),
            server: Ipv4Addr::new(10, 0, 0, 1),
            routers: vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)],
            classless_routes: None,
            static_routes: vec![(net("172.16.0.0/16"), Ipv4Addr::new(10, 0, 0, 3))],
            name_servers: vec![Ipv4Addr::new(10, 0, 0, 4)],
            domain: "example.org".into(),
            search: vec!["a.example.org".into()],
            mtu_bytes: None,
            seconds: 3600,
            renew_seconds: 1800,
            rebind_seconds: 3060,
        }
    }

    #[test]
    fn classless_routes_replace_all_others() {
        let routes = classless(&[0, 10, 0, 0, 7, 16, 172, 16, 0, 0, 0, 0, 32, 10, 9, 8, 7, 10, 0, 0, 8]).unwrap();
        let result = Lease { classless_routes: Some(routes), ..lease() }.result(0);
        let routes: Vec<String> =
            result.routes.iter().map(|route| format!("{} {:?} {:?}", route.dst, route.gw, route.scope)).collect();
        assert_eq!(
            routes,
            [
                "0.0.0.0/0 Some(10.0.0.7) None",
                "172.16.0.0/16 Some(0.0.0.0) Some(253)",
                "10.9.8.7/32 Some(10.0.0.8) None"
            ]
        );
    }

    #[test]
    fn malformed_classless_routes_are_none() {
        for bad in [&[33, 1, 2, 3, 4, 5, 6, 7, 8, 9][..], &[24, 10, 0], &[0, 10, 0, 0], &[255]] {
            assert_eq!(classless(bad), None, "{bad:?}");
        }
        assert_eq!(classless(&[]), None);
    }

    #[test]
    fn times_that_contradict_the_lease_are_replaced() {
        assert_eq!(times(100, None, None), (50, 85));
        assert_eq!(times(100, Some(10), Some(20)), (10, 20));
        assert_eq!(times(100, Some(90), Some(20)), (20, 20));
        assert_eq!(times(100, Some(0), Some(200)), (50, 85));
        assert_eq!(times(INFINITE, Some(1), Some(2)), (INFINITE, INFINITE));
        assert_eq!(times(LEASE_SECONDS_MIN, None, None), (1, 2));
    }
}
