//! An address as a number, so that ranges, gaps and the index can do arithmetic on both families alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use netops::Family;

/// An IP address: its family and its bits, low ones last.
///
/// `Display` is the name of its reservation file: the text that Go's `net.IP.String` gives, which for both
/// families is the standard library's too, as an IPv4 address mapped into IPv6 is never made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The address's family. Addresses of different families compare, but are never in one range.
    pub family: Family,
    pub bits: u128,
}

impl Address {
    /// Reads the name of a reservation file; `None` for any name that no canonical address has.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let address = Self::from(name.parse::<IpAddr>().ok()?);
        (address.to_string() == name).then_some(address)
    }

    /// The address after this one, `None` after the last of its family.
    pub fn next(self) -> Option<Self> {
        let max = match self.family {
            Family::V4 => u128::from(u32::MAX),
            Family::V6 => u128::MAX,
        };
        (self.bits < max).then(|| Self { bits: self.bits + 1, ..self })
    }

    pub fn ip(self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(self.bits).unwrap_or(u32::MAX))),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.bits)),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self { family: Family::V4, bits: ip.to_bits().into() },
            IpAddr::V6(ip) => Self { family: Family::V6, bits: ip.to_bits() },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_addresses() {
        for name in ["10.0.0.1", "fd00::1", "::", "::102:304", "2001:db8:0:1::"] {
            assert_eq!(Address::from_file_name(name).unwrap().to_string(), name);
        }
        for name in ["lock", "last_reserved_ip.0", "10.0.0.01", "FD00::1", "fd00:0::1", "::ffff:10.0.0.1", "10.0.0.1 "]
        {
            assert_eq!(Address::from_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_last_address_has_no_next() {
        for last in ["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            assert_eq!(Address::from_file_name(last).unwrap().next(), None);
        }
    }
}
