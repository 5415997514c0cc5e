//! An attachment's IPv6 address, which key `ipv6` asks for: a lease by DHCPv6 (RFC 8415, IA_NA), or the kernel's own by SLAAC
//! where the routers say that addresses are not managed.
//!
//! [`message`] has the bytes, [`client`] the client without clock, socket or kernel, and this module what they give.

pub mod client;
pub mod message;

use std::net::Ipv6Addr;

use cni_spec::{AddResult, Ip};
use ipnetwork::{IpNetwork, Ipv6Network};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::lease::INFINITE;
use crate::rpc::Names;

/// The shortest lease that is taken, in seconds, as for IPv4: no server causes more than one exchange a second.
const SECONDS_MIN: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    pub address: Ipv6Addr,
    /// The server's identifier (DUID).
    pub server: Vec<u8>,
    pub name_servers: Vec<Ipv6Addr>,
    pub search: Vec<String>,
    /// How long new connections may use the address, in seconds; [`INFINITE`] is for ever.
    pub preferred_seconds: u32,
    /// How long the address may be used, in seconds; [`INFINITE`] is for ever.
    pub seconds: u32,
    /// The time of renewal with its server, in seconds.
    pub renew_seconds: u32,
    /// The time of renewal with any server, in seconds.
    pub rebind_seconds: u32,
}

/// Where the link's address comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Given {
    Leased(Lease),
    /// The address is the kernel's, which makes it of a router's prefix, and keeps it.
    Slaac(Vec<Ipv6Network>),
}

impl Given {
    /// Adds a leased address and its server's DNS to the result of ADD. An address of the kernel's is on the link already: the
    /// reference's interface plugins add it a second time, and fail, so it is in the result only if that is asked for.
    pub fn extend(&self, result: &mut AddResult, reports_slaac: bool) {
        let lease = match self {
            Self::Leased(lease) => lease,
            Self::Slaac(own) => {
                let own = own.iter().filter(|_| reports_slaac);
                result.ips.extend(own.map(|net| Ip::new((*net).into(), None)));
                return;
            }
        };
        result.ips.push(Ip::new(lease.network(), None));
        let dns = &mut result.dns;
        dns.nameservers.extend(lease.name_servers.iter().map(Ipv6Addr::to_string));
        for domain in &lease.search {
            if !dns.search.contains(domain) {
                dns.search.push(domain.clone());
            }
        }
    }
}

impl Lease {
    /// The address as that of a link. DHCPv6 gives no prefix: routers advertise those that are on the link (RFC 5942).
    pub fn network(&self) -> IpNetwork {
        Ipv6Network::from(self.address).into()
    }
}

/// What the client is, to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The client identifier, a DUID-UUID (RFC 8415, 11.5).
    pub duid: Vec<u8>,
    /// The identifier of the one address that it asks for.
    pub iaid: u32,
}

impl Identity {
    /// The identity of an attachment: the same at each ADD, and no other attachment's. A container has many links, and
    /// each is a client, as for IPv4; so the three names make the DUID. The interface's makes the IAID.
    pub fn of(names: &Names) -> Self {
        let Names { network, container_id, ifname } = names;
        let hash = Sha256::digest(format!("{container_id}/{network}/{ifname}"));
        let mut duid = [&[0, 4], &hash[..16]].concat();
        // RFC 9562, 5.8: version 8, whose other bits have any meaning.
        duid[8] = duid[8] & 0x0f | 0x80;
        duid[10] = duid[10] & 0x3f | 0x80;
        let hash: [u8; 32] = Sha256::digest(ifname).into();
        let [a, b, c, d, ..] = hash;
        Self { duid, iaid: u32::from_be_bytes([a, b, c, d]) }
    }
}

/// Returns whether the address can be that of a host of a network.
fn is_a_hosts(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_unicast_link_local())
        && address.to_ipv4_mapped().is_none()
}

/// T1 and T2 (RFC 8415, 21.4). Those that a server leaves to the client, or that do not lie within the lease, are a half and
/// four fifths of the time for which the address is preferred.
fn times(preferred: u32, valid: u32, renew: u32, rebind: u32) -> (u32, u32) {
    let base = if preferred == 0 { valid } else { preferred };
    let own = |tenths: u64| match base {
        INFINITE => INFINITE,
        base => u32::try_from(u64::from(base) * tenths / 10).unwrap_or(base).max(1),
    };
    let rebind = if 0 < rebind && rebind < valid { rebind } else { own(8) };
    let renew = if 0 < renew && renew <= rebind { renew } else { own(5) };
    (renew.min(rebind), rebind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_stable_and_each_attachments_own() {
        let names =
            |id: &str, ifname: &str| Names { network: "net".into(), container_id: id.into(), ifname: ifname.into() };
        let first = Identity::of(&names("c1", "eth0"));
        assert_eq!(first, Identity::of(&names("c1", "eth0")));
        assert_eq!(first.duid[..2], [0, 4]);
        assert_eq!((first.duid.len(), first.duid[8] >> 4, first.duid[10] >> 6), (18, 8, 2));
        let (other, link) = (Identity::of(&names("c2", "eth0")), Identity::of(&names("c1", "eth1")));
        assert!(first.duid != other.duid && first.iaid == other.iaid);
        assert!(first.duid != link.duid && first.iaid != link.iaid);
    }

    #[test]
    fn times_that_a_server_leaves_open_follow_the_preferred_lifetime() {
        assert_eq!(times(100, 200, 0, 0), (50, 80));
        assert_eq!(times(100, 200, 10, 20), (10, 20));
        assert_eq!(times(100, 200, 90, 20), (20, 20));
        assert_eq!(times(100, 200, 10, 200), (10, 80));
        assert_eq!(times(0, 200, 0, 0), (100, 160));
        assert_eq!(times(INFINITE, INFINITE, 0, 0), (INFINITE, INFINITE));
        assert_eq!(times(INFINITE, INFINITE, 5, 9), (5, 9));
        assert_eq!(times(2, SECONDS_MIN, 0, 0), (1, 1));
        assert_eq!(times(1 << 31, 1 << 31, 0, 0).1, 1_717_986_918);
    }
}
