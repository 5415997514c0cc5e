//! Addresses and permanent neighbours in the kernel.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Namespace;
use crate::link::Names;
use crate::must::Must;
use crate::netlink::{Attributes, Socket, u16_at, u32_at};

const RTM_GETADDR: u16 = 22;
const RTM_GETNEIGH: u16 = 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub link: String,
    pub ip: IpAddr,
    pub prefix: u8,
    /// Scope: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// `IFA_F_*` flags.
    pub flags: u32,
}

/// A neighbour entry that a process set, rather than the kernel learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    pub link: String,
    pub ip: IpAddr,
    /// The neighbour's hardware address in hex.
    pub mac: String,
}

impl Address {
    pub fn is_tentative(&self) -> bool {
        self.flags & 0x40 != 0
    }
}

impl Namespace {
    #[track_caller]
    pub fn addresses(&self) -> Vec<Address> {
        self.enter(|| addresses(&Names::now()))
    }

    /// Global addresses of one link as `10.1.0.5/24`, in the kernel's order.
    #[track_caller]
    pub fn global_addresses(&self, link: &str) -> Vec<String> {
        let all = self.addresses().into_iter();
        let of_link = all.filter(|address| address.link == link && address.scope == 0);
        of_link.map(|address| format!("{}/{}", address.ip, address.prefix)).collect()
    }
}

pub(crate) fn addresses(names: &Names) -> Vec<Address> {
    let dump = Socket::route().dump(RTM_GETADDR, &[0; 8]).must("list addresses");
    let parse = |body: &[u8]| {
        let all = Attributes::after(body, 8);
        // IFA_LOCAL (2) is the local address where IFA_ADDRESS (1) is the other end of a point-to-point link.
        let ip = ip(all.get(2).or(all.get(1))?)?;
        let flags = all.u32(8).unwrap_or_default();
        let link = names.get(u32_at(body, 4));
        Some(Address { link, ip, prefix: *body.get(1)?, scope: *body.get(3)?, flags })
    };
    dump.iter().filter_map(|message| parse(&message.body)).collect()
}

/// Neighbours of the thread's namespace that a process set.
pub(crate) fn neighbours(names: &Names) -> Vec<Neighbour> {
    const NUD_PERMANENT: u16 = 0x80;
    let dump = Socket::route().dump(RTM_GETNEIGH, &[0; 12]).must("list neighbours");
    let parse = |body: &[u8]| {
        let all = Attributes::after(body, 12);
        let mac = all.get(2).unwrap_or_default();
        let mac = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let link = names.get(u32_at(body, 4));
        Some(Neighbour { link, ip: ip(all.get(1)?)?, mac })
    };
    let fixed = dump.iter().filter(|message| u16_at(&message.body, 8) & NUD_PERMANENT != 0);
    fixed.filter_map(|message| parse(&message.body)).collect()
}

/// An address from its bytes.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into())
}

impl fmt::Display for Address {
    /// Writes one line, without the flags that the kernel changes by itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LASTING: u32 = 0x02 | 0x10 | 0x100 | 0x200; // nodad, home, managetempaddr, noprefixroute
        let Self { link, ip, prefix, scope, flags } = self;
        write!(f, "address {ip}/{prefix} on {link} scope {scope} flags {:#x}", flags & LASTING)
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour {} on {} mac {} permanent", self.ip, self.link, self.mac)
    }
}
