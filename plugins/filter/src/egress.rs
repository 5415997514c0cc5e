//! What containers may send, by tables of ours that judge packets before any other table accepts them.
//!
//! ```text
//! table inet cni_egress {                        # what the node routes, or gets itself
//!     map links { type ifname : verdict; elements = { "veth1" : jump source_KEY } }      # of a bridge's port it drops all
//!     map sources4 { type ipv4_addr : verdict; elements = { 10.1.0.5 comment "…" : jump policy_KEY } }
//!     chain prerouting {
//!         type filter hook prerouting priority filter - 10
//!         iifname vmap @links
//!         ct direction reply accept
//!         ip saddr vmap @sources4
//!         ip6 saddr vmap @sources6
//!     }
//!     chain policy_KEY { jump narrowed_KEY; …; ip daddr 10.0.0.53 udp dport 53 return; ip daddr 10.0.0.0/8 drop }
//! }
//! table bridge cni_egress {                      # frames of a bridge's port
//!     map links { type ifname : verdict }        # at prerouting
//!     map bridged { type ifname : verdict }      # at forward
//!     chain source_KEY { iifname "veth1" ip saddr 10.1.0.5 return; …; drop }
//!     chain bridged_KEY { ip daddr 10.1.0.0/24 jump policy_KEY; ip daddr 10.1.0.0/24 return; …; drop }
//! }
//! ```
//!
//! Packets are found by their source address, so a container must have no other: `source_KEY` drops what comes by its link from any
//! address but its own. Destinations are judged after destination NAT (priority -100) and long before `filter`, and what is
//! dropped here no later table accepts. To the neighbours on a bridge packets pass no routing: `bridged_KEY` lets pass what is for the
//! container's own subnets and permitted, frame by frame; all else has to go by the node.
//!
//! A container has elements and chains, so a packet's cost does not grow with the other containers. `source_KEY` is the index: DEL finds
//! the link and the addresses in it.

pub(crate) mod of_many;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::kernel_probe::once;
use netops::nft::{
    Base, BaseChain, Chain, Change, Cmp, Data, DataType, Element, Expr, Family, Hook, MapOf, Meta, Name, Nft, Register,
    Rule, Set, Side, Table, Transaction, Verdict, address_in, load_address, nfproto_is, normalised, octets,
};
use netops::{Errno, Kernel, OpError, link};

use crate::names_and_comments::{Names, Stale};
use crate::shared::{Layout, address_at, guarded};
use crate::spoof_guard::padded;
use crate::{Filter, base_chains, lacking, retry_when_changed};

/// The name of the tables.
pub const EGRESS_TABLE: &str = "cni_egress";
/// The table for packets that the node routes or gets.
const ROUTED: Table = Table::new(Family::Inet, EGRESS_TABLE);
/// The table for frames that enter by a port of a bridge.
const BRIDGED: Table = Table::new(Family::Bridge, EGRESS_TABLE);
const LINKS: Name = Name::Borrowed("links");
/// The ports of bridges whose frames to other ports are judged.
const PORTS: Name = Name::Borrowed("bridged");
/// Behind destination NAT, before iptables' and others' filters.
const PRIORITY: i32 = -10;
const PURPOSE: &str = "judge what containers send (egressPolicy)";
/// The parts of the kernel that the tables need.
const NEEDS: &str = "nf_tables with families inet and bridge, maps, nft_ct and nft_fib (Linux 4.16)";

// Protocol numbers of IANA, and linux/rtnetlink.h.
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// `RTN_LOCAL`, `RTN_BROADCAST`, `RTN_ANYCAST`, `RTN_MULTICAST`.
const FOR_NODE: [u32; 4] = [2, 3, 4, 5];
/// Hop-by-hop options, routing headers and destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// What an attachment may send: the first list that has a packet's destination decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Permitted destinations.
    pub allow: Vec<Destination>,
    /// Denied destinations.
    pub deny: Vec<Destination>,
    /// Whether all other destinations are denied.
    pub is_closed: bool,
}

/// Destinations of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The addresses.
    pub to: To,
    /// The transport protocol; `None` for any. ICMP stands for ICMPv6, too.
    pub protocol: Option<u8>,
    /// The ranges of ports, first and last; empty for any. They need a protocol that has ports.
    pub ports: Vec<(u16, u16)>,
}

/// The addresses of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The addresses with a prefix.
    Prefix(IpNetwork),
    /// The node: its own addresses, and broadcast, anycast and multicast, which it receives.
    Node,
}

/// The policy of one attachment.
#[derive(Debug, Clone, Copy)]
pub struct Egress<'a> {
    /// The attachment.
    pub attachment: Names<'a>,
    /// The host's end of its veth.
    pub link: &'a str,
    /// Whether that is a port of a bridge.
    pub is_port: bool,
    /// The container's addresses, each with the length of its subnet's prefix.
    pub addresses: &'a [IpNetwork],
    /// The addresses of its gateways.
    pub gateways: &'a [IpAddr],
    /// The policies: a packet has to pass each.
    pub policies: &'a [Policy],
}

/// The names of an attachment's chains.
struct Chains {
    source: Name,
    bridged: Name,
    policies: [Name; 2],
}

impl Chains {
    fn of(key: &str) -> Self {
        let name = |word| Name::Owned(format!("{word}_{key}"));
        Self { source: name("source"), bridged: name("bridged"), policies: ["policy", "narrowed"].map(name) }
    }

    /// All that there may be in either table.
    fn all(&self) -> [Chain; 7] {
        let [policy, narrowed] = &self.policies;
        [
            ROUTED.chain(self.source.clone()),
            BRIDGED.chain(self.source.clone()),
            BRIDGED.chain(self.bridged.clone()),
            ROUTED.chain(policy.clone()),
            ROUTED.chain(narrowed.clone()),
            BRIDGED.chain(policy.clone()),
            BRIDGED.chain(narrowed.clone()),
        ]
    }
}

fn sources(is_ipv4: bool) -> Name {
    Name::Borrowed(if is_ipv4 { "sources4" } else { "sources6" })
}

fn any(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn equals(value: impl Into<Vec<u8>>) -> Expr {
    Expr::Cmp(Cmp::Eq, Register::R1, value.into())
}

/// Matches a protocol of frames by its number (linux/if_ether.h).
fn ether_type_is(number: u16) -> [Expr; 2] {
    [Expr::Payload { base: Base::Link, offset: 12, length: 2, to: Register::R1 }, equals(number.to_be_bytes())]
}

fn family_is(table: &Table, is_ipv4: bool) -> [Expr; 2] {
    match table.family {
        Family::Bridge => ether_type_is(if is_ipv4 { 0x0800 } else { 0x86dd }),
        _ => nfproto_is(any(is_ipv4)),
    }
}

fn in_prefix(table: &Table, side: Side, prefix: IpNetwork) -> Vec<Expr> {
    [family_is(table, prefix.is_ipv4()).to_vec(), address_in(side, Cmp::Eq, prefix)].concat()
}

fn protocol_is(number: u8) -> [Expr; 2] {
    [Expr::Meta(Meta::L4Proto, Register::R1), equals([number])]
}

fn network_byte(offset: u32) -> Expr {
    Expr::Payload { base: Base::Network, offset, length: 1, to: Register::R1 }
}

/// Matches a field of the transport header.
fn field_in(offset: u32, first: &[u8], last: &[u8]) -> Vec<Expr> {
    let length = u32::try_from(first.len()).unwrap_or(1);
    let load = Expr::Payload { base: Base::Transport, offset, length, to: Register::R1 };
    if first == last {
        return vec![load, equals(first)];
    }
    let [from, to] = [(Cmp::Gte, first), (Cmp::Lte, last)].map(|(cmp, end)| Expr::Cmp(cmp, Register::R1, end.to_vec()));
    vec![load, from, to]
}

fn to_ports(first: u16, last: u16) -> Vec<Expr> {
    field_in(2, &first.to_be_bytes(), &last.to_be_bytes())
}

fn then(mut matches: Vec<Expr>, verdict: Verdict) -> Vec<Expr> {
    matches.push(Expr::Verdict(verdict));
    matches
}

fn prefix(text: &str) -> Option<IpNetwork> {
    text.parse().ok()
}

impl Destination {
    /// The conditions under which a packet is for it: one of these has to hold.
    fn matches(&self, table: &Table) -> Vec<Vec<Expr>> {
        let to = |is_ipv4: bool| match self.to {
            To::Prefix(prefix) if prefix.is_ipv4() == is_ipv4 => vec![in_prefix(table, Side::Destination, prefix)],
            // A frame to another port is not for the node.
            To::Node if table.family != Family::Bridge => FOR_NODE
                .map(|kind| {
                    let is_kind = [Expr::DestinationType(Register::R1), equals(kind.to_ne_bytes())];
                    [family_is(table, is_ipv4), is_kind].concat()
                })
                .into(),
            To::Prefix(_) | To::Node => Vec::new(),
        };
        let mut matches = Vec::new();
        for is_ipv4 in [true, false] {
            let protocol = self.protocol.map(|number| if number == ICMP && !is_ipv4 { ICMPV6 } else { number });
            let protocol: Vec<Expr> = protocol.map(protocol_is).into_iter().flatten().collect();
            for to in to(is_ipv4).into_iter().map(|to| [to, protocol.clone()].concat()) {
                let with_ports = |(first, last): &(u16, u16)| [to.clone(), to_ports(*first, *last)].concat();
                matches.extend(self.ports.iter().map(with_ports));
                if self.ports.is_empty() {
                    matches.push(to);
                }
            }
        }
        matches
    }
}

impl Egress<'_> {
    fn chains(&self) -> Chains {
        Chains::of(&self.attachment.key())
    }

    /// The table with the rules about its link.
    fn link_table(&self) -> Table {
        if self.is_port { BRIDGED } else { ROUTED }
    }

    /// What an IPv6 host cannot do without: it asks for routers and neighbours, answers (RFC 4861), and tells its groups (RFC 2710
    /// and 3810), within the link. What connection tracking takes for a question is not among it: its answer would pass anywhere.
    fn discovery(&self, table: &Table) -> Vec<Vec<Expr>> {
        const NEIGHBOURS: ([(u8, u8); 2], u8) = ([(133, 133), (135, 136)], 255);
        const GROUPS: ([(u8, u8); 2], u8) = ([(131, 132), (143, 143)], 1);
        let own = self.addresses.iter().copied().chain(self.gateways.iter().copied().map(IpNetwork::from));
        let within = ["fe80::/10", "ff02::/16"].into_iter().filter_map(prefix).chain(own).filter(IpNetwork::is_ipv6);
        let of_groups = prefix("ff02::/16").map(|to| (to, GROUPS));
        let rules = |(to, (kinds, hop_limit)): (IpNetwork, ([(u8, u8); 2], u8))| {
            kinds.map(|(first, last)| {
                let hops = vec![network_byte(7), equals([hop_limit])];
                let is_it = [protocol_is(ICMPV6).to_vec(), hops, field_in(0, &[first], &[last])].concat();
                then([in_prefix(table, Side::Destination, to), is_it].concat(), Verdict::Return)
            })
        };
        within.map(|to| (to, NEIGHBOURS)).chain(of_groups).flat_map(rules).collect()
    }

    /// The same from addresses that no router forwards.
    fn unrouted_discovery(&self, table: &Table) -> Vec<Vec<Expr>> {
        let unrouted = ["fe80::/10", "::/128"].into_iter().filter_map(prefix);
        let discovery = unrouted.flat_map(|source| {
            let source = address_in(Side::Source, Cmp::Eq, source);
            self.discovery(table).into_iter().map(move |rule| [&rule[..2], &source, &rule[2..]].concat())
        });
        discovery.collect()
    }

    /// Rules that drop what takes another way than its destination's: packets with options of IPv4 or extension headers.
    fn detours(table: &Table) -> Vec<Vec<Expr>> {
        let with_options = (true, vec![network_byte(0), Expr::Cmp(Cmp::Neq, Register::R1, vec![0x45])]);
        let extended = EXTENSIONS.map(|header| (false, vec![network_byte(6), equals([header])]));
        let all = [with_options].into_iter().chain(extended);
        all.map(|(is_ipv4, it)| then([family_is(table, is_ipv4).to_vec(), it].concat(), Verdict::Drop)).collect()
    }

    /// Questions for an address (RFC 2131, RFC 9915), which a container without one sends to all of its link.
    fn dhcp(table: &Table) -> Vec<Vec<Expr>> {
        let asked = [("255.255.255.255/32", "0.0.0.0/32", 67), ("ff02::/16", "fe80::/10", 547)];
        let question = |(to, from, port): (&str, &str, u16)| {
            let to = in_prefix(table, Side::Destination, prefix(to)?);
            let from = address_in(Side::Source, Cmp::Eq, prefix(from)?);
            Some(then([to, from, protocol_is(UDP).to_vec(), to_ports(port, port)].concat(), Verdict::Return))
        };
        asked.into_iter().filter_map(question).collect()
    }

    fn arp(table: &Table) -> Option<Vec<Expr>> {
        (table.family == Family::Bridge).then(|| then(ether_type_is(0x0806).to_vec(), Verdict::Return))
    }

    /// The rules for what comes by its link.
    fn source_rules(&self) -> Vec<Vec<Expr>> {
        let table = &self.link_table();
        let by_link = [Expr::Meta(Meta::IifName, Register::R1), equals(padded(self.link))];
        let from = |address: &IpNetwork| {
            let source = in_prefix(table, Side::Source, IpNetwork::from(address.ip()));
            then([by_link.to_vec(), source].concat(), Verdict::Return)
        };
        let own = self.addresses.iter().map(from);
        let others = Self::arp(table).into_iter().chain(self.unrouted_discovery(table)).chain(Self::dhcp(table));
        own.chain(others).chain([vec![Expr::Verdict(Verdict::Drop)]]).collect()
    }

    /// The rules for frames from its port to others.
    fn bridged_rules(&self, chains: &Chains) -> Vec<Vec<Expr>> {
        let to_subnet = |address: &IpNetwork| {
            let is_own = in_prefix(&BRIDGED, Side::Destination, *address);
            let judged = Verdict::Jump(chains.policies[0].clone());
            [then(is_own.clone(), judged), then(is_own, Verdict::Return)]
        };
        let own = self.addresses.iter().flat_map(to_subnet);
        let others = Self::arp(&BRIDGED).into_iter().chain(self.discovery(&BRIDGED)).chain(Self::dhcp(&BRIDGED));
        others.chain(own).chain([vec![Expr::Verdict(Verdict::Drop)]]).collect()
    }

    /// The chains of its policies. The first goes to the second.
    fn policy_chains(&self, table: &Table, chains: &Chains) -> Vec<(Chain, Vec<Vec<Expr>>)> {
        let rules = |number: usize, policy: &Policy| {
            let mut rules = Vec::new();
            if number == 0 {
                rules.extend(Self::detours(table));
                rules.extend(self.discovery(table));
                let next = self.policies.get(1).and(chains.policies.get(1));
                rules.extend(next.map(|next| vec![Expr::Verdict(Verdict::Jump(next.clone()))]));
            }
            let judged = |list: &[Destination], verdict: Verdict| {
                let matches = list.iter().flat_map(|destination| destination.matches(table));
                matches.map(|matches| then(matches, verdict.clone())).collect::<Vec<_>>()
            };
            rules.extend(judged(&policy.allow, Verdict::Return));
            rules.extend(judged(&policy.deny, Verdict::Drop));
            rules.extend(policy.is_closed.then(|| vec![Expr::Verdict(Verdict::Drop)]));
            rules
        };
        let named = self.policies.iter().zip(&chains.policies).enumerate();
        named.map(|(number, (policy, name))| (table.chain(name.clone()), rules(number, policy))).collect()
    }

    /// Returns the attachment's chains with their rules.
    fn own_chains(&self) -> Vec<(Chain, Vec<Vec<Expr>>)> {
        let chains = self.chains();
        let mut own = self.policy_chains(&ROUTED, &chains);
        own.push((self.link_table().chain(chains.source.clone()), self.source_rules()));
        if self.is_port {
            // A bridge gives some frames to the port itself, such as those of protocols for bridges.
            own.push((ROUTED.chain(chains.source.clone()), vec![vec![Expr::Verdict(Verdict::Drop)]]));
            own.extend(self.policy_chains(&BRIDGED, &chains));
            own.push((BRIDGED.chain(chains.bridged.clone()), self.bridged_rules(&chains)));
        }
        own
    }

    fn element(&self, table: Table, set: Name, key: Vec<u8>, chain: Name) -> Element {
        let data = Some(Data::Verdict(Verdict::Jump(chain)));
        Element { table, set, key, data, comment: Some(self.attachment.comment()) }
    }

    /// The elements that lead packets from its addresses to its policy.
    fn source_elements(&self) -> Vec<Element> {
        let [policy, _] = self.chains().policies;
        let element = |address: &IpNetwork| {
            self.element(ROUTED, sources(address.is_ipv4()), octets(address.ip()), policy.clone())
        };
        self.addresses.iter().map(element).collect()
    }

    /// Returns the elements that lead packets to the chains.
    fn elements(&self) -> Vec<Element> {
        let (Chains { source, bridged, .. }, link) = (self.chains(), padded(self.link));
        let mut elements = self.source_elements();
        elements.push(self.element(ROUTED, LINKS, link.clone(), source.clone()));
        if self.is_port {
            elements.push(self.element(BRIDGED, LINKS, link.clone(), source));
            elements.push(self.element(BRIDGED, PORTS, link, bridged));
        }
        elements
    }
}

fn base(table: &Table, name: &'static str, hook: Hook, priority: i32) -> Chain {
    Chain { base: Some(BaseChain { priority, ..BaseChain::filter(hook) }), ..table.chain(name) }
}

/// What stays when the last container is gone.
fn layouts() -> [Layout; 2] {
    let map = |table: &Table, name, key| Set { table: table.clone(), name, key: vec![key], map: Some(MapOf::Verdicts) };
    let by_link = |name| vec![Expr::Meta(Meta::IifName, Register::R1), Expr::VerdictMap(name, Register::R1)];
    let by_source = |is_ipv4| {
        let source = [load_address(Side::Source, any(is_ipv4)), Expr::VerdictMap(sources(is_ipv4), Register::R1)];
        [nfproto_is(any(is_ipv4)), source].concat()
    };
    let is_answer = vec![Expr::CtDirection(Register::R1), equals([1]), Expr::Verdict(Verdict::Accept)];
    let routed = Layout {
        table: ROUTED,
        sets: vec![
            map(&ROUTED, LINKS, DataType::LinkName),
            map(&ROUTED, sources(true), DataType::Ipv4),
            map(&ROUTED, sources(false), DataType::Ipv6),
        ],
        chains: vec![(
            base(&ROUTED, "prerouting", Hook::Prerouting, PRIORITY),
            vec![by_link(LINKS), is_answer, by_source(true), by_source(false)],
        )],
    };
    let bridged = Layout {
        table: BRIDGED,
        sets: [LINKS, PORTS].map(|name| map(&BRIDGED, name, DataType::LinkName)).into(),
        chains: vec![
            (base(&BRIDGED, "prerouting", Hook::Prerouting, PRIORITY), vec![by_link(LINKS)]),
            (base(&BRIDGED, "forward", Hook::Forward, PRIORITY), vec![by_link(PORTS)]),
        ],
    };
    [routed, bridged]
}

/// The key of the attachment whose chain an element leads to.
fn key_of(element: &Element) -> Option<&str> {
    let Some(Data::Verdict(verdict)) = &element.data else { return None };
    Some(verdict.chain()?.split_once('_')?.1)
}

/// The link and the address that a rule of `source_KEY` lets pass.
fn link_and_address(rule: &Rule) -> Option<(&[u8], IpAddr)> {
    let mut values = rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Cmp(Cmp::Eq, _, value) => Some(value),
        _ => None,
    });
    let (link, _family, address) = (values.next()?, values.next()?, values.next()?);
    if !matches!(rule.exprs.first(), Some(Expr::Meta(Meta::IifName, _))) {
        return None;
    }
    let family = if address.len() == 4 { Family::Ip } else { Family::Ip6 };
    Some((link, address_at(family, address)?))
}

/// The changes that remove all of an attachment; none if there is nothing. `is_thorough`: looks through the elements of all attachments,
/// as the index has lost some.
fn removal(nft: &mut Nft, key: &str, is_thorough: bool) -> Result<Vec<Change>> {
    let (chains, mut changes) = (Chains::of(key), Vec::new());
    let all = chains.all();
    let found = nft.find_chains(all.each_ref())?;
    let found: Vec<_> = all.iter().zip(found).filter_map(|(chain, found)| found.map(|_| chain)).collect();
    if found.is_empty() {
        return Ok(changes);
    }
    let mut elements = if is_thorough { all_elements(nft)? } else { indexed(nft, &chains.source)? };
    elements.retain(|element| key_of(element) == Some(key));
    changes.extend(elements.into_iter().map(Change::DeleteElement));
    changes.extend(found.iter().map(|chain| Change::FlushChain((*chain).clone())));
    changes.extend(found.into_iter().map(|chain| Change::DeleteChain(chain.clone())));
    Ok(changes)
}

/// The elements with the link and the addresses that the rules of an attachment's `source_KEY` have.
fn indexed(nft: &mut Nft, source: &Name) -> Result<Vec<Element>> {
    let element = |table: Table, set, key: &[u8]| Element { table, set, key: key.to_vec(), data: None, comment: None };
    let mut rules = nft.list_rules(&ROUTED.chain(source.clone()))?;
    rules.extend(nft.list_rules(&BRIDGED.chain(source.clone()))?);
    let mut asked = Vec::new();
    for (number, (link, address)) in rules.iter().filter_map(link_and_address).enumerate() {
        asked.push(element(ROUTED, sources(address.is_ipv4()), &octets(address)));
        if number == 0 {
            asked.extend([(ROUTED, LINKS), (BRIDGED, LINKS), (BRIDGED, PORTS)].map(|(it, set)| element(it, set, link)));
        }
    }
    Ok(nft.find_elements(&asked)?.into_iter().flatten().collect())
}

fn all_elements(nft: &mut Nft) -> Result<Vec<Element>> {
    let mut elements = Vec::new();
    for set in layouts().iter().flat_map(|layout| &layout.sets) {
        elements.extend(nft.list_elements(&set.table, &set.name)?);
    }
    Ok(elements)
}

/// Whether a chain could not be deleted, as an element leads there that is not in the index.
fn is_in_use(done: &Result<()>) -> bool {
    done.as_ref().is_err_and(|error| error.os_errno() == Some(Errno::EBUSY))
}

/// The changes by which a base chain has these rules and no others: an accept before them would open all.
fn only(nft: &mut Nft, chain: &Chain, rules: &[Vec<Expr>]) -> Result<Vec<Change>> {
    if is_exact(nft, chain, rules)? {
        return Ok(Vec::new());
    }
    let append = rules.iter().cloned().map(|exprs| Change::AppendRule(chain.rule(exprs)));
    Ok([Change::FlushChain(chain.clone())].into_iter().chain(append).collect())
}

fn is_exact(nft: &mut Nft, chain: &Chain, rules: &[Vec<Expr>]) -> Result<bool> {
    Ok(nft.list_rules(chain)?.iter().map(|rule| normalised(&rule.exprs)).eq(rules.iter().cloned()))
}

/// Errors: a chain has other rules.
fn expect_chains(nft: &mut Nft, chains: impl IntoIterator<Item = (Chain, Vec<Vec<Expr>>)>) -> Result<()> {
    for (chain, rules) in chains {
        if !is_exact(nft, &chain, &rules)? {
            let object = format!("nft chain {} {}", chain.table, chain.name);
            return Err(OpError::state("find", object, "its rules are not what they were"));
        }
    }
    Ok(())
}

/// Errors: an element is missing or different.
fn expect_elements(nft: &mut Nft, wanted: &[Element]) -> Result<()> {
    let found = nft.find_elements(wanted)?;
    match wanted.iter().zip(&found).find(|(wanted, found)| found.as_ref() != Some(*wanted)) {
        Some((lost, _)) => Err(OpError::state("find", text(lost), "it is not there, or another attachment's")),
        None => Ok(()),
    }
}

/// Errors: the chain is on another place than its rules need.
fn expect_place(nft: &mut Nft, chain: &Chain) -> Result<()> {
    let Some(found) = base_chains::find(nft, chain)? else { return Ok(()) };
    let Some((found, wanted)) = found.base.zip(chain.base) else { return Ok(()) };
    if found.priority == wanted.priority && !found.drops {
        return Ok(());
    }
    let (object, table) = (format!("nft chain {} {}", chain.table, chain.name), &chain.table);
    let sentence = format!(
        "its priority is not {} or its policy not accept: `nft delete table {table}`, and then repair its containers",
        wanted.priority
    );
    Err(OpError::state("use", object, sentence))
}

fn text(element: &Element) -> String {
    format!("the egressPolicy's element {element}")
}

/// The address that an element of `sources4` or `sources6` is for.
fn address_of(element: &Element) -> Option<IpAddr> {
    let family = [true, false].into_iter().find(|is_ipv4| sources(*is_ipv4) == element.set)?;
    address_at(if family { Family::Ip } else { Family::Ip6 }, &element.key)
}

/// Whether the link that an attachment's packets come by exists, so that its container can send. `all`: the elements of all
/// attachments. Where none tells the link, it may.
fn may_send(host: &Kernel, all: &[Element], key: &str) -> Result<bool> {
    let is_its_link = |element: &&Element| element.set == LINKS && key_of(element) == Some(key);
    let Some(element) = all.iter().find(is_its_link) else { return Ok(true) };
    let name = element.key.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(name).map_or(Ok(true), |name| Ok(link::find(host, name)?.is_some()))
}

impl Filter {
    /// Judges what an attachment sends, in place of its earlier policy. Returns whether it had none.
    ///
    /// # Errors
    /// The kernel's refusal; an address of which another attachment that may live has a policy.
    pub fn add_egress(&mut self, wanted: Egress<'_>) -> Result<bool> {
        let (nft, key) = (&mut self.nft, wanted.attachment.key());
        let (mut is_thorough, mut had_none) = (false, true);
        let added = retry_when_changed::retry(|| {
            let generation = nft.generation()?;
            let mut changes = removal(nft, &key, is_thorough)?;
            had_none = changes.is_empty();
            let elements = wanted.elements();
            let mut others = BTreeSet::new();
            for found in nft.find_elements(&elements)?.into_iter().flatten() {
                let Some(other) = key_of(&found).filter(|other| *other != key) else { continue };
                // The link itself is proved to be this container's.
                if address_of(&found).is_some() && may_send(&Kernel::host()?, &all_elements(nft)?, other)? {
                    let whose = found.comment.as_deref().unwrap_or_default();
                    let why = format!("it is of another attachment, {whose:?}: run DEL of that, or GC of its network");
                    return Err(OpError::state("create", text(&found), why));
                }
                others.insert(other.to_owned());
            }
            // A DEL of the reference leaves all of them.
            for other in others {
                changes.extend(removal(nft, &other, is_thorough)?);
            }
            for layout in layouts() {
                base_chains::wake(nft, &layout.table)?;
                changes.extend(layout.objects());
                for (chain, rules) in &layout.chains {
                    expect_place(nft, chain)?;
                    changes.extend(only(nft, chain, rules)?);
                }
            }
            let own = wanted.own_chains();
            changes.extend(own.iter().map(|(chain, _)| Change::EnsureChain(chain.clone())));
            let comment = wanted.attachment.comment();
            for (chain, rules) in own {
                let rule = |exprs| Change::AppendRule(chain.rule(exprs).comment(comment.clone()));
                changes.extend(rules.into_iter().map(rule));
            }
            changes.extend(elements.into_iter().map(Change::AddElement));
            let done = nft.commit(&guarded(changes, generation));
            is_thorough |= is_in_use(&done);
            done
        });
        added.map(|()| had_none).map_err(|error| lacking(error, PURPOSE, NEEDS))
    }

    /// Compares the ruleset with what [`Filter::add_egress`] makes.
    ///
    /// # Errors
    /// The first element, chain or rule that is missing or different.
    pub fn check_egress(&mut self, wanted: Egress<'_>) -> Result<()> {
        let mut chains = wanted.own_chains();
        for layout in layouts().into_iter().take(if wanted.is_port { 2 } else { 1 }) {
            base_chains::expect_awake(&mut self.nft, &layout.table)?;
            layout.chains.iter().try_for_each(|(chain, _)| expect_place(&mut self.nft, chain))?;
            chains.extend(layout.chains);
        }
        expect_chains(&mut self.nft, chains)?;
        expect_elements(&mut self.nft, &wanted.elements())
    }

    /// Returns the commands of nft(8) that lead packets from these addresses to the attachment's policy, each with whether it is so already.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn preview_egress(&mut self, attachment: Names<'_>, addresses: &[IpAddr]) -> Result<Vec<(String, bool)>> {
        let addresses: Vec<_> = addresses.iter().copied().map(IpNetwork::from).collect();
        let wanted =
            Egress { attachment, link: "", is_port: false, addresses: &addresses, gateways: &[], policies: &[] };
        let (elements, [policy, _]) = (wanted.source_elements(), wanted.chains().policies);
        let found = self.nft.find_elements(&elements)?;
        let command = |(address, (wanted, found)): (&IpNetwork, (&Element, &Option<Element>))| {
            let (table, set) = (&wanted.table, &wanted.set);
            let command = format!("nft add element {table} {set} {{ {} : jump {policy} }}", address.ip());
            (command, found.as_ref() == Some(wanted))
        };
        Ok(addresses.iter().zip(elements.iter().zip(&found)).map(command).collect())
    }

    /// Removes an attachment's policy.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn remove_egress(&mut self, attachment: Names<'_>) -> Result<()> {
        self.remove_egress_of(&attachment.key())
    }

    fn remove_egress_of(&mut self, key: &str) -> Result<()> {
        if !self.has_egress_table()? {
            return Ok(());
        }
        let mut is_thorough = false;
        retry_when_changed::retry(|| {
            let generation = self.nft.generation()?;
            let changes = removal(&mut self.nft, key, is_thorough)?;
            if changes.is_empty() {
                return Ok(());
            }
            let done = self.nft.commit(&guarded(changes, generation));
            is_thorough |= is_in_use(&done);
            done
        })
    }

    /// Removes the policies of a network's attachments that are no longer valid, and whose links are gone: as long as a container can
    /// send, it is judged.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn gc_egress(&mut self, stale: &Stale) -> Result<()> {
        let (host, all) = (Kernel::host()?, self.list_egress_elements()?);
        let gone = all.iter().filter(|element| stale.has(element.comment.as_deref()));
        for key in gone.filter_map(key_of).collect::<BTreeSet<_>>() {
            if may_send(&host, &all, key)? {
                tracing::debug!(key, "the egressPolicy stays as long as its link");
            } else {
                self.remove_egress_of(key)?;
            }
        }
        Ok(())
    }

    /// Lists the attachments with a policy: each address, and the comment of its attachment. One without an address has `None`.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn list_egress(&mut self) -> Result<Vec<(Option<IpAddr>, String)>> {
        let elements = self.list_egress_elements()?.into_iter().filter(|element| element.set != PORTS);
        Ok(elements.filter_map(|element| Some((address_of(&element), element.comment?))).collect())
    }

    /// Asks once, so that calls without a policy cost no more on a node that has never had one.
    fn has_egress_table(&mut self) -> Result<bool> {
        let chains = [ROUTED, BRIDGED].map(|table| base(&table, "prerouting", Hook::Prerouting, PRIORITY));
        Ok(self.nft.find_chains(chains.each_ref())?.iter().any(Option::is_some))
    }

    fn list_egress_elements(&mut self) -> Result<Vec<Element>> {
        if self.has_egress_table()? { all_elements(&mut self.nft) } else { Ok(Vec::new()) }
    }

    /// Returns whether this node can have policies, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature or a privilege.
    pub fn probe_egress(&mut self) -> Result<()> {
        if self.has_egress_table()? {
            return Ok(());
        }
        let mut changes: Vec<_> = layouts().iter().flat_map(Layout::trial).collect();
        let node = Destination { to: To::Node, protocol: None, ports: Vec::new() };
        let chain = ROUTED.chain("trial");
        changes.push(Change::EnsureChain(chain.clone()));
        changes.extend(node.matches(&ROUTED).into_iter().map(|exprs| Change::AppendRule(chain.rule(exprs))));
        let tried = once("egress", || self.nft.try_out(&Transaction::new(changes)));
        tried.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }
}
