//! Masquerade by shared rules.
//!
//! ```text
//! table ip cni_shared {
//!     map masq_addresses { type ipv4_addr : verdict; elements = { 10.1.0.5 comment "…" : goto masq_beyond_24 } }
//!     set masq_own_subnets { type ipv4_addr . ipv4_addr; elements = { 10.1.0.5 . 10.1.0.0 comment "…" } }
//!     map masq_index { type ifname . ifname . mark : ipv4_addr . ipv4_addr; … }
//!     chain postrouting {
//!         type nat hook postrouting priority srcnat; policy accept;
//!         ip daddr 224.0.0.0/4 return
//!         ip saddr vmap @masq_addresses
//!     }
//!     chain masq_beyond_24 {
//!         ip saddr . ip daddr & 255.255.255.0 @masq_own_subnets return
//!         masquerade
//!     }
//! }
//! ```
//!
//! A chain for each length of a prefix, usually one, is what lets each address have its own subnet without a set of intervals,
//! which the kernel copies whole for each change.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::nft::{
    BaseChain, Chain, Cmp, Data, DataType, Element, Expr, Family, Hook, MapOf, Name, Nft, Register, Set, Side, Verdict,
    address_in, load_address, load_address_to, octets,
};

use super::{Entry, FAMILIES, Keys, Kind, Layout, Wanted, address_at, probe as probe_layouts, table};
use crate::names_and_comments::{Names, Stale};
use crate::nftables_masquerade::MULTICAST;

const ADDRESSES: Name = Name::Borrowed("masq_addresses");
const OWN_SUBNETS: Name = Name::Borrowed("masq_own_subnets");
static KIND: Kind = Kind {
    index: Name::Borrowed("masq_index"),
    is_attached: false,
    sets: &[ADDRESSES, OWN_SUBNETS],
    keys,
    address: address_of,
    text: |element| address_of(element).map_or_else(String::new, |address| format!("masquerade of {address}")),
};

/// An entry is the address and its subnet, the key of `masq_own_subnets`; its first half is the key of `masq_addresses`.
fn keys(_family: Family, entry: &[u8]) -> Keys {
    let (address, _subnet) = entry.split_at(entry.len() / 2);
    vec![(ADDRESSES, address.to_vec()), (OWN_SUBNETS, entry.to_vec())]
}

fn entry(address: IpNetwork) -> Entry {
    let key = [octets(address.ip()), octets(address.network())].concat();
    let verdict = Verdict::Goto(beyond(address.prefix()));
    Entry { key, data: vec![Some(Data::Verdict(verdict)), None] }
}

/// The address in the key of either set.
fn address_of(element: &Element) -> Option<IpAddr> {
    address_at(element.table.family, &element.key)
}

/// The name of the chain for addresses with a prefix of this length.
fn beyond(prefix: u8) -> Name {
    Name::Owned(format!("masq_beyond_{prefix}"))
}

/// The base chain.
pub(crate) fn postrouting(family: Family) -> Chain {
    Chain { base: Some(BaseChain::srcnat(Hook::Postrouting)), ..table(family).chain("postrouting") }
}

/// All that these addresses, which are of one family, need.
fn layout(family: Family, addresses: &[IpNetwork]) -> Option<Layout> {
    let (first, table) = (addresses.first()?.ip(), table(family));
    let one = DataType::of(first);
    let set = |name, key: Vec<DataType>, map| Set { table: table.clone(), name, key, map };
    let sets = vec![
        set(ADDRESSES, vec![one], Some(MapOf::Verdicts)),
        set(OWN_SUBNETS, vec![one, one], None),
        KIND.index(&table, vec![one, one]),
    ];
    let mut lengths: Vec<u8> = addresses.iter().map(IpNetwork::prefix).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let masks = lengths.iter().filter_map(|length| IpNetwork::new(first, *length).ok());
    let mut chains: Vec<_> = masks.map(|mask| (table.chain(beyond(mask.prefix())), beyond_rules(mask))).collect();
    let multicast = MULTICAST.into_iter().filter(|prefix| prefix.is_ipv4() == first.is_ipv4()).map(|prefix| {
        let mut rule = address_in(Side::Destination, Cmp::Eq, prefix);
        rule.push(Expr::Verdict(Verdict::Return));
        rule
    });
    let looked_up = vec![load_address(Side::Source, first), Expr::VerdictMap(ADDRESSES, Register::R1)];
    chains.push((postrouting(family), multicast.chain([looked_up]).collect()));
    Some(Layout { table, sets, chains })
}

/// The rules for sources whose prefix is as long as this one's.
fn beyond_rules(mask: IpNetwork) -> Vec<Vec<Expr>> {
    let second = Register::word(if mask.is_ipv4() { 1 } else { 4 });
    let is_own = vec![
        load_address(Side::Source, mask.ip()),
        load_address_to(Side::Destination, mask.ip(), second),
        Expr::Mask(second, octets(mask.mask())),
        Expr::InSet(OWN_SUBNETS, Register::R1),
        Expr::Verdict(Verdict::Return),
    ];
    vec![is_own, vec![Expr::Masquerade]]
}

fn wanted(addresses: &[IpNetwork]) -> Wanted {
    let of = |family| addresses.iter().copied().filter(move |address| Family::of(address.ip()) == family);
    Wanted {
        layouts: FAMILIES.into_iter().filter_map(|family| layout(family, &of(family).collect::<Vec<_>>())).collect(),
        entries: FAMILIES.map(|family| (family, &KIND, of(family).map(entry).collect())).into(),
    }
}

/// Masquerades packets from these addresses, unless they are sent to their own prefix or to multicast.
///
/// Replaces the attachment's earlier elements.
pub(crate) fn add(nft: &mut Nft, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
    wanted(addresses).add(nft, attachment).map(drop)
}

/// Compares the ruleset with what [`add`] makes.
pub(crate) fn check(nft: &mut Nft, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
    wanted(addresses).check(nft, attachment)
}

/// Removes an attachment's elements from the table of this family. The rules stay.
pub(crate) fn remove(nft: &mut Nft, family: Family, attachment: Names<'_>) -> Result<()> {
    KIND.remove(nft, family, attachment).map(drop)
}

/// Removes the elements of a network's attachments that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, stale: &Stale) -> Result<()> {
    KIND.gc(nft, stale).map(drop)
}

/// Lists the elements of all attachments, each by comment and address.
pub(crate) fn list(nft: &mut Nft) -> Result<Vec<(String, Option<IpAddr>)>> {
    let elements = KIND.list(nft)?.into_iter().filter(|element| element.set == ADDRESSES);
    Ok(elements.filter_map(|element| Some((element.comment.clone()?, address_of(&element)))).collect())
}

/// Returns whether this kernel can have the rules and an element.
pub(crate) fn probe(nft: &mut Nft) -> Result<()> {
    let layouts = || MULTICAST.iter().filter_map(|prefix| layout(Family::of(prefix.ip()), &[*prefix])).collect();
    probe_layouts(nft, "shared-masquerade", &postrouting(Family::Ip), layouts)
}
