//! The command line as data; README.md shows it.

use std::net::IpAddr;

/// The command to carry out.
pub(crate) enum Command {
    /// `lo` of a namespace goes up or down.
    Loopback { netns: String, up: bool },
    /// A container is attached.
    Add(Plugin, Add),
    /// An attachment is removed.
    Del(Plugin, Del),
}

/// The plugin whose state is set up or removed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Plugin {
    Bridge,
    Ptp,
    Macvlan,
}

/// Everything an attachment is to have.
#[derive(Default)]
pub(crate) struct Add {
    pub(crate) netns: String,
    pub(crate) ifname: String,
    pub(crate) bridge: String,
    /// The host's link that a macvlan is on.
    pub(crate) master: String,
    pub(crate) veth: String,
    pub(crate) alias: String,
    pub(crate) addresses: Vec<Prefix>,
    pub(crate) gateways: Vec<Prefix>,
    pub(crate) routes: Vec<(Prefix, IpAddr)>,
    pub(crate) masquerade: Masquerade,
    /// Returns before the ends can carry packets.
    pub(crate) returns_early: bool,
}

/// Names and text of an attachment's iptables rules; there are none without a chain.
#[derive(Default)]
pub(crate) struct Masquerade {
    pub(crate) chain: String,
    pub(crate) comment: String,
    /// The user data that our plugins give the rules.
    pub(crate) note: String,
}

/// The parts of an attachment to remove.
#[derive(Default)]
pub(crate) struct Del {
    pub(crate) veth: String,
    /// Of a link that is in the container alone, namespace and name.
    pub(crate) netns: String,
    pub(crate) ifname: String,
    /// The chain of the addresses, if they are masqueraded.
    pub(crate) chain: String,
    pub(crate) addresses: Vec<Prefix>,
    /// Waits until the kernel has freed everything.
    pub(crate) waits: bool,
}

/// An address and the length of its prefix.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Prefix {
    pub(crate) ip: IpAddr,
    pub(crate) length: u8,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (plugin, verb) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    match (plugin.as_str(), verb.as_str()) {
        ("loopback", "add" | "del") => match arguments.next().as_deref().and_then(|word| word.strip_prefix("netns=")) {
            Some(netns) => Ok(Command::Loopback { netns: netns.to_owned(), up: verb == "add" }),
            None => Err("loopback wants netns=PATH".to_owned()),
        },
        ("bridge", "add") => add(Plugin::Bridge, arguments),
        ("bridge", "del") => del(Plugin::Bridge, arguments),
        ("ptp", "add") => add(Plugin::Ptp, arguments),
        ("ptp", "del") => del(Plugin::Ptp, arguments),
        ("macvlan", "add") => add(Plugin::Macvlan, arguments),
        ("macvlan", "del") => del(Plugin::Macvlan, arguments),
        _ => Err(format!("no such command: {plugin} {verb}; see README.md")),
    }
}

fn add(plugin: Plugin, arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut add = Add::default();
    for word in arguments {
        let (key, value) = word.split_once('=').ok_or_else(|| unknown(&word))?;
        match key {
            "netns" => add.netns = value.to_owned(),
            "ifname" => add.ifname = value.to_owned(),
            "bridge" => add.bridge = value.to_owned(),
            "master" => add.master = value.to_owned(),
            "veth" => add.veth = value.to_owned(),
            "alias" => add.alias = value.to_owned(),
            "address" => add.addresses.push(prefix(value)?),
            "gateway" => add.gateways.push(prefix(value)?),
            "route" => add.routes.push(route(value)?),
            "masquerade" => add.masquerade.chain = value.to_owned(),
            "comment" => add.masquerade.comment = value.to_owned(),
            "note" => add.masquerade.note = value.to_owned(),
            "return" if matches!(value, "up" | "made") => add.returns_early = value == "made",
            _ => return Err(unknown(&word)),
        }
    }
    let (own, words) = match plugin {
        Plugin::Bridge => ([&add.bridge, &add.veth], "bridge add wants netns, ifname, bridge, veth and alias"),
        Plugin::Ptp => ([&add.veth, &add.veth], "ptp add wants netns, ifname, veth and alias"),
        Plugin::Macvlan => ([&add.master, &add.master], "macvlan add wants netns, ifname, master and alias"),
    };
    let is_short = [&add.netns, &add.ifname, &add.alias].into_iter().chain(own).any(String::is_empty);
    match is_short {
        true => Err(words.to_owned()),
        false => Ok(Command::Add(plugin, add)),
    }
}

fn del(plugin: Plugin, arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut del = Del::default();
    for word in arguments {
        match word.split_once('=').unwrap_or((&word, "")) {
            ("veth", value) => del.veth = value.to_owned(),
            ("netns", value) => del.netns = value.to_owned(),
            ("ifname", value) => del.ifname = value.to_owned(),
            ("address", value) => del.addresses.push(prefix(value)?),
            ("masquerade", value) => del.chain = value.to_owned(),
            ("return", value @ ("announced" | "freed")) => del.waits = value == "freed",
            _ => return Err(unknown(&word)),
        }
    }
    let (needed, words) = match plugin {
        Plugin::Bridge | Plugin::Ptp => ([&del.veth, &del.veth], "del wants veth"),
        Plugin::Macvlan => ([&del.netns, &del.ifname], "macvlan del wants netns and ifname"),
    };
    let is_short = needed.into_iter().any(String::is_empty);
    match is_short {
        true => Err(words.to_owned()),
        false => Ok(Command::Del(plugin, del)),
    }
}

fn unknown(word: &str) -> String {
    format!("no such word: {word}; see README.md")
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let parts = text.split_once('/').and_then(|(ip, length)| Some((ip.parse().ok()?, length.parse().ok()?)));
    match parts {
        Some((ip, length)) if length <= bits(ip) => Ok(Prefix { ip, length }),
        Some(_) | None => Err(format!("no address with a prefix: {text}")),
    }
}

fn route(text: &str) -> Result<(Prefix, IpAddr), String> {
    let (dst, gateway) = text.split_once(',').ok_or_else(|| format!("no DST/PREFIX,GATEWAY: {text}"))?;
    let gateway = gateway.parse().map_err(|error| format!("no gateway: {gateway}: {error}"))?;
    Ok((prefix(dst)?, gateway))
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl Prefix {
    /// The prefix as a mask.
    pub(crate) fn mask(&self) -> Octets {
        let bits = bits(self.ip);
        let ones = u128::MAX.checked_shl(u32::from(bits - self.length)).unwrap_or(0);
        Octets::new(bits, ones)
    }

    /// The first address.
    pub(crate) fn network(&self) -> Octets {
        let (mut octets, mask) = (Octets::of(self.ip), self.mask());
        octets.bytes.iter_mut().zip(mask.bytes).for_each(|(octet, mask)| *octet &= mask);
        octets
    }

    /// The last address.
    pub(crate) fn broadcast(&self) -> Octets {
        let (mut octets, mask) = (Octets::of(self.ip), self.mask());
        octets.bytes.iter_mut().zip(mask.bytes).for_each(|(octet, mask)| *octet |= !mask);
        octets
    }
}

/// An address in network byte order.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Octets {
    bytes: [u8; 16],
    length: usize,
}

impl Octets {
    fn new(bits: u8, value: u128) -> Self {
        let length = usize::from(bits / 8);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(&value.to_be_bytes()[16 - length..]).for_each(|(to, from)| *to = *from);
        Self { bytes, length }
    }

    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::new(32, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => Self::new(128, u128::from(ip)),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(crate) fn to_ip(self) -> IpAddr {
        match self.bytes {
            [a, b, c, d, ..] if self.length == 4 => IpAddr::from([a, b, c, d]),
            bytes => IpAddr::from(bytes),
        }
    }
}
