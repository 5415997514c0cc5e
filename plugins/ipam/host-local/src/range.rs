//! Ranges and sets of ranges: every rule about them.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::address::{Address, Family};

/// The keys of one range as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawRange {
    pub subnet: Option<IpNetwork>,
    pub start: Option<IpAddr>,
    pub end: Option<IpAddr>,
    pub gateway: Option<IpAddr>,
}

/// Addresses `first` to `last` of `subnet`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The network; its prefix length goes into the result.
    pub subnet: IpNetwork,
    pub first: Address,
    pub last: Address,
    /// The gateway, which is never given and may be outside.
    pub gateway: Address,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRange {
    /// The key that it is about; `None`: no single one.
    pub key: Option<&'static str>,
    /// A sentence that names key and value, with the reference's text where it has one.
    pub text: String,
}

impl<T: Into<String>> From<T> for BadRange {
    fn from(text: T) -> Self {
        Self { key: None, text: text.into() }
    }
}

/// Ranges of one family without overlap. A container gets one address of each set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// Addresses `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: Address,
    pub last: Address,
}

impl Span {
    pub fn contains(&self, address: Address) -> bool {
        self.first.family == address.family && self.first <= address && address <= self.last
    }
}

impl Range {
    /// Checks the keys and fills in the defaults: gateway and start are the first address, the end is the last
    /// but one of an IPv4 and the last of an IPv6 network. A network of two addresses gives both (RFC 3021, RFC 6164), one of
    /// a single address that, unless it is the gateway.
    pub fn new(raw: &RawRange) -> Result<Self, BadRange> {
        let subnet = raw.subnet.ok_or("key subnet is missing")?;
        if subnet.ip() != subnet.ip().to_canonical() {
            return Err(format!("subnet {subnet} is an IPv4 network written as IPv6: write it as IPv4").into());
        }
        let max = if subnet.is_ipv4() { 32 } else { 128 };
        let is_single = subnet.prefix() == max;
        if is_single && raw.gateway.is_none_or(|gateway| gateway == subnet.ip()) {
            return Err(format!(
                "Network {subnet} too small to allocate from: its only address is the gateway, unless key gateway names another"
            )
            .into());
        }
        if subnet.ip() != subnet.network() {
            return Err(format!(
                "Network has host bits set. For a subnet mask of length {} the network address is {}",
                subnet.prefix(),
                subnet.network()
            )
            .into());
        }
        let whole = Span { first: subnet.network().into(), last: subnet.broadcast().into() };
        let (lowest, highest) = match whole.last.family {
            _ if subnet.prefix() + 1 >= max => (whole.first, whole.last),
            Family::V4 => (
                Address { bits: whole.first.bits + 1, ..whole.first },
                Address { bits: whole.last.bits - 1, ..whole.last },
            ),
            Family::V6 => (Address { bits: whole.first.bits + 1, ..whole.first }, whole.last),
        };
        let range = Self {
            subnet,
            first: raw.start.map_or(lowest, Address::from),
            last: raw.end.map_or(highest, Address::from),
            gateway: raw.gateway.map_or(lowest, Address::from),
        };
        range.check_bounds(raw, whole)?.within(lowest, highest)
    }

    /// The range without the network's own and its broadcast address, which a bound may name: no interface can use them
    /// (RFC 1122, 3.2.1.3).
    fn within(self, lowest: Address, highest: Address) -> Result<Self, BadRange> {
        let (first, last) = (self.first.max(lowest), self.last.min(highest));
        if first > last {
            let only = self.first;
            let text =
                format!("RangeStart {only} is the network's own or its broadcast address, and the range has no other");
            return Err(BadRange { key: Some("rangeStart"), text });
        }
        Ok(Self { first, last, ..self })
    }

    fn check_bounds(self, raw: &RawRange, whole: Span) -> Result<Self, BadRange> {
        let (subnet, first, last) = (self.subnet, self.first, self.last);
        let bad_start = |text: String| Err(BadRange { key: Some("rangeStart"), text });
        let bad_end = |text: String| Err(BadRange { key: Some("rangeEnd"), text });
        if !whole.contains(first) {
            return bad_start(format!("RangeStart {first} not in network {subnet}"));
        }
        if !whole.contains(last) {
            return bad_end(format!("RangeEnd {last} not in network {subnet}"));
        }
        if first <= last {
            return Ok(self);
        }
        // The reference reports one of the two that were given, and misses a start behind the default end, from which
        // it would leave the network.
        match (raw.start, raw.end) {
            (Some(_), Some(_)) => {
                bad_start(format!("RangeStart {first} not in network {subnet}: rangeStart is above rangeEnd {last}"))
            }
            (Some(_), None) => bad_start(format!("RangeStart {first} is above the last address to hand out, {last}")),
            (None, _) => bad_end(format!("RangeEnd {last} not in network {subnet} from rangeStart {first}")),
        }
    }

    pub fn span(&self) -> Span {
        Span { first: self.first, last: self.last }
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.first.family == other.first.family && self.first <= other.last && other.first <= self.last
    }
}

impl RangeSet {
    /// Checks that there are ranges, of one family, without overlap.
    pub fn new(ranges: Vec<Range>) -> Result<Self, String> {
        let first = ranges.first().ok_or("empty range set")?;
        if ranges.iter().any(|range| range.first.family != first.first.family) {
            return Err("mixed address families".to_owned());
        }
        for (index, one) in ranges.iter().enumerate() {
            if let Some(other) = ranges.iter().skip(index + 1).find(|other| one.overlaps(other)) {
                return Err(format!("subnets {one} and {other} overlap"));
            }
        }
        Ok(Self(ranges))
    }

    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    pub fn family(&self) -> Family {
        self.0.first().map_or(Family::V4, |range| range.first.family)
    }

    pub fn find(&self, address: Address) -> Option<&Range> {
        self.0.iter().find(|range| range.span().contains(address))
    }

    /// Whether the two sets share an address.
    pub fn overlaps(&self, other: &RangeSet) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|two| one.overlaps(two)))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Range::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
