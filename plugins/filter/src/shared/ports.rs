//! Ports of the node by shared rules.
//!
//! ```text
//! map ports_of_any { type inet_proto . inet_service : ipv4_addr . inet_service; elements = { tcp . 8080 comment "…" : 10.1.0.5 . 80 } }
//! map ports_of_addresses { type inet_proto . ipv4_addr . inet_service : ipv4_addr . inet_service }
//! set ports_masq { type ipv4_addr . ipv4_addr; elements = { 127.0.0.1 . 10.1.0.5 comment "…" } }
//! set ports_masq_all { type ipv4_addr }
//! chain prerouting { type nat hook prerouting priority dstnat; fib daddr type local jump ports }
//! chain output { type nat hook output priority -100; fib daddr type local jump ports }
//! chain ports {
//!     dnat ip to meta l4proto . ip daddr . th dport map @ports_of_addresses
//!     dnat ip to meta l4proto . th dport map @ports_of_any
//! }
//! chain ports_postrouting {
//!     type nat hook postrouting priority srcnat
//!     ip saddr . ip daddr @ports_masq masquerade
//!     ip daddr @ports_masq_all masquerade
//! }
//! ```

use std::net::{IpAddr, SocketAddr};

use netops::error::Result;
use netops::nft::{
    Base, BaseChain, Chain, Cmp, Data, DataType, Element, Expr, Family, Hook, MapOf, Meta, Name, Register, Set, Side,
    Verdict, load_address, load_address_to, octets,
};

use super::{Entry, FAMILIES, Keys, Kind, Layout, Wanted, address_at, probe, table, unspecified};
use crate::iptables::rule::Protocol;
use crate::names_and_comments::{Names, Stale};
use crate::{Filter, lacking};

const OF_ADDRESSES: Name = Name::Borrowed("ports_of_addresses");
const OF_ANY: Name = Name::Borrowed("ports_of_any");
const MASQ: Name = Name::Borrowed("ports_masq");
const MASQ_ALL: Name = Name::Borrowed("ports_masq_all");
const PORTS: Name = Name::Borrowed("ports");
static FORWARDED: Kind = Kind {
    index: Name::Borrowed("ports_index"),
    is_attached: true,
    sets: &[OF_ADDRESSES, OF_ANY],
    keys,
    address: target,
    text,
};
static MASQUERADED: Kind = Kind {
    index: Name::Borrowed("ports_masq_index"),
    is_attached: true,
    sets: &[MASQ, MASQ_ALL],
    keys: masq_keys,
    address: masq_target,
    text: |element| {
        masq_target(element).map_or_else(String::new, |address| format!("masquerade of connections to {address}"))
    },
};
const PURPOSE: &str = "forward ports by shared rules";
/// The parts of the kernel that they need.
const NEEDS: &str = "nf_tables with sets, nft_chain_nat, nft_nat, nft_masq and nft_fib (Linux 4.18)";
/// `RTN_LOCAL` of linux/rtnetlink.h.
const LOCAL: u32 = 2;

/// A port of the node that is forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The node's address; `None`: each.
    pub address: Option<IpAddr>,
    /// The node's port.
    pub port: u16,
    /// The container's address and port. A port of the node that leads to itself keeps its packets.
    pub to: SocketAddr,
}

/// What an attachment has.
#[derive(Debug, Clone, Default)]
pub struct Ports {
    /// The ports.
    pub forwarded: Vec<Port>,
    /// Connections that get the node's address as their source, by source (`None`: any) and target.
    pub masqueraded: Vec<(Option<IpAddr>, IpAddr)>,
}

/// A field of a concatenation.
fn padded(field: &[u8]) -> Vec<u8> {
    let mut field = field.to_vec();
    field.resize(field.len().next_multiple_of(4), 0);
    field
}

/// Protocol, address and port; the unspecified address is any, for which there is a map without it.
fn keys(family: Family, entry: &[u8]) -> Keys {
    let any = octets(unspecified(family));
    match (entry.split_at_checked(4), entry.len().checked_sub(4)) {
        (Some((protocol, rest)), Some(port)) if rest.starts_with(&any) => {
            vec![(OF_ANY, [protocol, &entry[port..]].concat())]
        }
        _ => vec![(OF_ADDRESSES, entry.to_vec())],
    }
}

/// Source and target.
fn masq_keys(family: Family, entry: &[u8]) -> Keys {
    let (source, target) = entry.split_at(entry.len() / 2);
    let is_any = source == octets(unspecified(family));
    vec![if is_any { (MASQ_ALL, target.to_vec()) } else { (MASQ, entry.to_vec()) }]
}

fn masq_target(element: &Element) -> Option<IpAddr> {
    let at = element.key.len().checked_sub(octets(unspecified(element.table.family)).len())?;
    address_at(element.table.family, element.key.get(at..)?)
}

fn target(element: &Element) -> Option<IpAddr> {
    port_of(element).map(|port| port.to.ip())
}

fn text(element: &Element) -> String {
    port_of(element).map_or_else(String::new, |Port { protocol, port, to, .. }| {
        format!("forwarding of port {port}/{} to {to}", protocol.name())
    })
}

/// The port that an element forwards.
fn port_of(element: &Element) -> Option<Port> {
    let number = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?));
    let (family, length) = (element.table.family, octets(unspecified(element.table.family)).len());
    let (protocol, rest) = element.key.split_at_checked(4)?;
    let address = if element.set == OF_ADDRESSES { address_at(family, rest) } else { None };
    let Some(Data::Value(to)) = &element.data else { return None };
    Some(Port {
        protocol: Protocol::ALL.into_iter().find(|known| *known as u8 == protocol[0])?,
        address,
        port: number(rest.get(if address.is_some() { length } else { 0 }..)?)?,
        to: SocketAddr::new(address_at(family, to)?, number(to.get(length..)?)?),
    })
}

impl Port {
    fn entry(&self, family: Family) -> Entry {
        let address = octets(self.address.unwrap_or_else(|| unspecified(family)));
        let key = [padded(&[self.protocol as u8]), address, padded(&self.port.to_be_bytes())].concat();
        let data = [octets(self.to.ip()), padded(&self.to.port().to_be_bytes())].concat();
        Entry { key, data: vec![Some(Data::Value(data))] }
    }
}

impl Ports {
    fn wanted(&self) -> Wanted {
        let of = |address: IpAddr, family| Family::of(address) == family;
        let is_used = |family| self.forwarded.iter().any(|port| of(port.to.ip(), family));
        let forwarded = |family| {
            let ports = self.forwarded.iter().filter(|port| of(port.to.ip(), family));
            (family, &FORWARDED, ports.map(|port| port.entry(family)).collect())
        };
        let masqueraded = |family| {
            let pairs = self.masqueraded.iter().filter(|(_, to)| of(*to, family));
            let key = |(from, to): &(Option<IpAddr>, _)| {
                [octets(from.unwrap_or_else(|| unspecified(family))), octets(*to)].concat()
            };
            (family, &MASQUERADED, pairs.map(|pair| Entry { key: key(pair), data: vec![None] }).collect())
        };
        Wanted {
            layouts: FAMILIES.into_iter().filter(|family| is_used(*family)).map(layout).collect(),
            entries: FAMILIES.into_iter().flat_map(|family| [forwarded(family), masqueraded(family)]).collect(),
        }
    }
}

/// The base chain that shows whether the table has been made.
fn prerouting(family: Family) -> Chain {
    Chain { base: Some(BaseChain::dstnat(Hook::Prerouting)), ..table(family).chain("prerouting") }
}

fn layout(family: Family) -> Layout {
    let (table, any) = (table(family), unspecified(family));
    let (one, words) = (DataType::of(any), if family == Family::Ip { 1 } else { 4 });
    let set = |name, key: Vec<DataType>, map| Set { table: table.clone(), name, key, map };
    let to = Some(MapOf::Values(vec![one, DataType::Port]));
    let sets = vec![
        set(OF_ADDRESSES, vec![DataType::Protocol, one, DataType::Port], to.clone()),
        set(OF_ANY, vec![DataType::Protocol, DataType::Port], to),
        FORWARDED.index(&table, vec![DataType::Protocol, one, DataType::Port]),
        set(MASQ, vec![one, one], None),
        set(MASQ_ALL, vec![one], None),
        MASQUERADED.index(&table, vec![one, one]),
    ];
    let protocol = Expr::Meta(Meta::L4Proto, Register::R1);
    let port = |word| Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: Register::word(word) };
    let dnat = |map| {
        let (address, port) = (Register::R1, Some(Register::word(words)));
        [Expr::Map(map, Register::R1, address), Expr::Dnat { family, address, port }]
    };
    let daddr = load_address_to(Side::Destination, any, Register::word(1));
    let of_address = [vec![protocol.clone(), daddr, port(1 + words)], dnat(OF_ADDRESSES).into()].concat();
    let of_any = [vec![protocol, port(1)], dnat(OF_ANY).into()].concat();
    let to_local = vec![
        Expr::DestinationType(Register::R1),
        Expr::Cmp(Cmp::Eq, Register::R1, LOCAL.to_ne_bytes().into()),
        Expr::Verdict(Verdict::Jump(PORTS)),
    ];
    let second = load_address_to(Side::Destination, any, Register::word(words));
    let masq = vec![load_address(Side::Source, any), second, Expr::InSet(MASQ, Register::R1), Expr::Masquerade];
    let all = vec![load_address(Side::Destination, any), Expr::InSet(MASQ_ALL, Register::R1), Expr::Masquerade];
    let base = |name: &'static str, base| Chain { base: Some(base), ..table.chain(name) };
    let chains = vec![
        (table.chain(PORTS), vec![of_address, of_any]),
        (prerouting(family), vec![to_local.clone()]),
        (base("output", BaseChain::dstnat(Hook::Output)), vec![to_local]),
        (base("ports_postrouting", BaseChain::srcnat(Hook::Postrouting)), vec![masq, all]),
    ];
    Layout { table, sets, chains }
}

impl Filter {
    /// Forwards these ports and no others to the attachment, by shared rules. Returns whether it had none before.
    ///
    /// # Errors
    /// The kernel's refusal; a port that another attachment has.
    pub fn add_ports(&mut self, attachment: Names<'_>, ports: &Ports) -> Result<bool> {
        let added = ports.wanted().add(&mut self.nft, attachment);
        added.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }

    /// Compares the ruleset with what [`Filter::add_ports`] makes.
    ///
    /// # Errors
    /// The first element or rule that is missing or different.
    pub fn check_ports(&mut self, attachment: Names<'_>, ports: &Ports) -> Result<()> {
        ports.wanted().check(&mut self.nft, attachment)
    }

    /// Removes an attachment's ports; returns them.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn remove_ports(&mut self, attachment: Names<'_>) -> Result<Vec<Port>> {
        let found = self.nft.find_chains(FAMILIES.map(prerouting).each_ref())?;
        let mut gone = Vec::new();
        for (family, _) in FAMILIES.into_iter().zip(found).filter(|(_, found)| found.is_some()) {
            gone.extend(FORWARDED.remove(&mut self.nft, family, attachment)?);
            MASQUERADED.remove(&mut self.nft, family, attachment)?;
        }
        Ok(gone.iter().filter_map(port_of).collect())
    }

    /// Removes the ports of a network's attachments that are no longer valid; returns them.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn gc_ports(&mut self, stale: &Stale) -> Result<Vec<Port>> {
        let gone = FORWARDED.gc(&mut self.nft, stale)?;
        MASQUERADED.gc(&mut self.nft, stale)?;
        Ok(gone.iter().filter_map(port_of).collect())
    }

    /// Lists the ports of all attachments, each with its comment.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn list_ports(&mut self) -> Result<Vec<(Port, String)>> {
        let elements = FORWARDED.list(&mut self.nft)?.into_iter();
        Ok(elements.filter_map(|element| Some((port_of(&element)?, element.comment?))).collect())
    }

    /// Returns whether this node can forward ports by shared rules, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature or a privilege.
    pub fn probe_ports(&mut self) -> Result<()> {
        let tried = probe(&mut self.nft, "shared-ports", &prerouting(Family::Ip), || FAMILIES.map(layout).into());
        tried.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }
}
