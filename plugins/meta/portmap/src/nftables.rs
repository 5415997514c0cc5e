//! The rules of backend nftables: one table `cni_hostport` for each family, a rule for each mapping, as the reference.
//!
//! ```text
//! table ip cni_hostport {
//!     chain hostports { tcp dport 8080 dnat to 10.1.0.2:80 comment "CONTAINER" }
//!     chain hostip_hostports { }
//!     chain hostports_all { jump hostip_hostports; jump hostports }
//!     chain prerouting { type nat hook prerouting priority dstnat; fib daddr type local jump hostports_all }
//!     chain output { type nat hook output priority dstnat; fib daddr type local jump hostports_all }
//!     chain masquerading { type nat hook postrouting priority srcnat; ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade … }
//! }
//! ```
//!
//! The comment is the container's ID, by which the reference's DEL finds the rules of either side. It does not name the
//! network: a note in the rule's user data, which nft does not show, names the attachment. Conditions are part of the
//! mapping's own rule, as those of another network in `prerouting` would take its packets away.

use std::net::{IpAddr, Ipv4Addr};

use cni_filter::iptables::rule::{Rule, Target, is};
use cni_filter::iptables::{Before, Edit, FoundRule, NativeTable, NewRule, Table};
use cni_filter::{Names, Noted, OfNetwork, Stale};
use cni_spec::gc::Sweep;
use netops::error::Result;
use netops::nft::{self, BaseChain, Family, Hook};

use crate::conf::Backend;
use crate::iptables::each_once;
use crate::other_entries::{self, Changes};
use crate::pod_ports::{Forwarded, KnownAddresses, PodPorts, Whose, whose};
use crate::port_holder::{self, Contest, Holder};

const PORTS: &str = "hostports";
/// Older versions of the reference have rules with a host address here. It stays empty.
const ADDRESS_PORTS: &str = "hostip_hostports";
/// The chains with forwarding rules, in the order in which packets pass them.
pub(crate) const FORWARDING: [&str; 2] = [ADDRESS_PORTS, PORTS];
const ALL: &str = "hostports_all";
const MASQUERADING: &str = "masquerading";
/// The chains with rules that GC removes.
const OF_CONTAINERS: [&str; 2] = [PORTS, MASQUERADING];
const ENTRIES: [&str; 2] = ["prerouting", "output"];
const BASE_CHAINS: &[(&str, BaseChain)] = &[
    ("prerouting", BaseChain::dstnat(Hook::Prerouting)),
    ("output", BaseChain::dstnat(Hook::Output)),
    (MASQUERADING, BaseChain::srcnat(Hook::Postrouting)),
];
/// The longest comment that nft loads (`NFTNL_UDATA_COMMENT_MAXLEN`).
const COMMENT_MAX: usize = 128;
/// The space for comment and note together (`NFT_USERDATA_MAXLEN`, less type, length and NUL of each).
const COMMENT_AND_NOTE_MAX: usize = 250;
const RULES_AT_ONCE: usize = 400;

pub(crate) fn table(family: Family) -> NativeTable {
    NativeTable { table: nft::Table::new(family, "cni_hostport"), base_chains: BASE_CHAINS }
}

fn comment(names: Names<'_>) -> String {
    start_of(names.container, COMMENT_MAX)
}

/// The attachment's note, as much as there is space for beside the comment: its start identifies the attachment.
fn note(names: Names<'_>) -> String {
    start_of(&names.comment(), COMMENT_AND_NOTE_MAX - comment(names).len())
}

/// The note and the comment of an attachment's rules.
pub(crate) fn words(names: Names<'_>) -> [String; 2] {
    [note(names), comment(names)]
}

fn start_of(text: &str, length: usize) -> String {
    text.get(..text.floor_char_boundary(length)).unwrap_or_default().to_owned()
}

impl PodPorts<'_> {
    /// The rules of chain `hostports`. A mapping whose host address the conditions exclude has none: no packet is for both.
    fn forwarding(&self) -> Vec<Rule> {
        self.forwarding_under(&self.conf.conditions(self.family).rule())
    }

    fn forwarding_under(&self, conditions: &Rule) -> Vec<Rule> {
        let rule = |mapping: crate::conf::Mapping| {
            let destination = match (mapping.destination(), &conditions.destination) {
                (Some(ip), Some(condition)) if condition.value.contains(ip) == condition.negated => return None,
                (Some(ip), _) => is(ip.into()),
                (None, condition) => condition.clone(),
            };
            Some(Rule {
                protocol: Some(mapping.protocol),
                port: Some(mapping.host_port),
                destination,
                comment: Some(comment(self.names)),
                target: Target::Dnat((self.address.ip(), mapping.container_port).into()),
                ..conditions.clone()
            })
        };
        let spare = |mapping: crate::conf::Mapping| {
            self.spared(mapping).map(move |ip| Rule {
                protocol: Some(mapping.protocol),
                port: Some(mapping.host_port),
                destination: is(ip.into()),
                comment: Some(comment(self.names)),
                target: Target::Return,
                ..Rule::default()
            })
        };
        let spared = self.mappings().into_iter().flat_map(spare);
        each_once(spared.chain(self.mappings().into_iter().filter_map(rule)).collect())
    }

    fn masquerading(&self) -> Vec<Rule> {
        self.conf.snat.as_ref().map_or_else(Vec::new, |snat| self.masquerading_of(snat.masq_all))
    }

    /// The rules of a container's own and the node's loopback connections, or of all.
    fn masquerading_of(&self, all: bool) -> Vec<Rule> {
        let rule = |source| Rule {
            source,
            destination: is(self.address.ip().into()),
            comment: Some(comment(self.names)),
            target: Target::Masquerade,
            ..Rule::default()
        };
        let own = rule(is(self.address.ip().into()));
        let localhost = rule(is(IpAddr::from(Ipv4Addr::LOCALHOST).into()));
        match (all, self.family) {
            (true, _) => vec![rule(None)],
            (false, Family::Ip) => vec![own, localhost],
            (false, _) => vec![own],
        }
    }

    fn new_rule(&self, chain: &str, rule: Rule) -> NewRule {
        NewRule { chain: chain.to_owned(), rule, note: Some(note(self.names)) }
    }
}

fn entry() -> Rule {
    Rule { to_local: true, ..Rule::jump(ALL) }
}

fn shared(table: &mut Table<'_>) -> Result<Vec<Edit>> {
    let rule = |chain: &str, rule: Rule| NewRule { chain: chain.to_owned(), rule, note: None };
    let mut edits = Vec::new();
    for chain in [PORTS, ADDRESS_PORTS] {
        edits.extend(table.create_chain_once(chain)?);
    }
    edits.extend(table.create_filled_once(ALL, FORWARDING.map(Rule::jump).to_vec())?.0);
    for chain in ENTRIES {
        edits.extend(table.append_once(rule(chain, entry()))?);
    }
    Ok(edits)
}

/// Makes the rules, unless a container that holds a port already is to be an error.
pub(crate) fn add(table: &mut Table<'_>, pod: &PodPorts<'_>, contest: &mut Contest<'_>) -> Result<()> {
    table.change(|table| edits(table, pod, contest))
}

/// The containers that hold a port, for the other backend.
pub(crate) fn holders(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Vec<Holder>> {
    if !table.has_chain(PORTS)? {
        return Ok(Vec::new());
    }
    let found = table.list(PORTS)?.unwrap_or_default();
    Ok(port_holder::of_rules(found.iter().map(named), pod).0)
}

/// A rule, with what [`port_holder`] calls its container.
fn named(found: &FoundRule) -> (&FoundRule, String) {
    (found, format!("id: {}", found.comment().unwrap_or_default()))
}

/// The edits of an ADD, and in `contest` the containers that hold a port already.
pub(crate) fn edits(table: &mut Table<'_>, pod: &PodPorts<'_>, contest: &mut Contest<'_>) -> Result<Vec<Edit>> {
    let ports = table.list(PORTS)?.unwrap_or_default();
    let masquerading = table.list(MASQUERADING)?.unwrap_or_default();
    let owner = pod.names.owner();
    let address = [pod.address.ip()];
    // The reference's rules for this address and container are the attachment's.
    let is_own = |found: &FoundRule| match &found.note {
        Some(note) => owner.owns(Some(note)),
        None => is_of(found, pod.names) && crate::pod_ports::target(found) == Some(address[0]),
    };
    contest.keep(|| {
        let mut before = Before::default();
        before.keep(PORTS, &ports, is_own);
        before.keep(MASQUERADING, &masquerading, is_own);
        Ok(before)
    })?;
    let (own, others): (Vec<_>, Vec<_>) = ports.into_iter().partition(is_own);
    let own_masquerading: Vec<_> = masquerading.into_iter().filter(is_own).collect();
    let (living, dead) = port_holder::of_rules(others.iter().map(named), pod);
    if !contest.goes_on(living, table, Backend::Nftables, pod)? {
        return Ok(Vec::new());
    }
    let mut edits = shared(table)?;
    let is_contested = |rule: &Rule| {
        // What is spared comes before what forwards.
        rule.target == Target::Return
            || rule.protocol.zip(rule.port).is_some_and(|(protocol, port)| dead.contains(&(protocol as u8, port)))
    };
    let mappings = pod.mappings();
    let is_for_ports = |rule: &Rule| {
        mappings.iter().any(|mapping| {
            (Some(mapping.protocol), Some(mapping.host_port)) == (rule.protocol, rule.port)
                && rule.target == Target::Dnat((address[0], mapping.container_port).into())
                && mapping.destination().is_none_or(|ip| rule.destination == is(ip.into()))
        })
    };
    let Changes { gone, missing } = other_entries::changes(table, own, pod.forwarding(), is_for_ports);
    let (first, rest): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_contested);
    edits.extend(gone.into_iter().map(Edit::Delete));
    // Before those of containers that are gone, which their DEL or GC removes.
    let (spared, first): (Vec<_>, Vec<_>) = first.into_iter().partition(|rule| rule.target == Target::Return);
    edits.extend(first.into_iter().chain(spared).map(|rule| Edit::Prepend(pod.new_rule(PORTS, rule))));
    edits.extend(rest.into_iter().map(|rule| Edit::Append(pod.new_rule(PORTS, rule))));
    let is_to_pod = |rule: &Rule| rule.destination == is(address[0].into());
    let Changes { gone, missing } = other_entries::changes(table, own_masquerading, pod.masquerading(), is_to_pod);
    edits.extend(gone.into_iter().map(Edit::Delete));
    edits.extend(missing.into_iter().map(|rule| Edit::Append(pod.new_rule(MASQUERADING, rule))));
    Ok(edits)
}

fn spelled(table: &Table<'_>, rule: &Rule) -> Option<Rule> {
    table.spelled(rule).ok()?.into_iter().next()
}

fn is_of(found: &FoundRule, names: Names<'_>) -> bool {
    found.comment().as_deref() == Some(&*comment(names))
}

/// The difference from the rules that [`add`] makes, if there is one. The reference's rules are accepted, also where it has no chain
/// `hostports_all`.
pub(crate) fn check(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Option<String>> {
    let owner = pod.names.owner();
    let is_own = |found: &FoundRule| match &found.note {
        Some(note) => owner.owns(Some(note)),
        None => is_of(found, pod.names),
    };
    for chains in [&[PORTS, ADDRESS_PORTS][..], &[MASQUERADING]] {
        let mut found: Vec<FoundRule> = Vec::new();
        for chain in chains {
            found.extend(table.list(chain)?.unwrap_or_default().into_iter().filter(is_own));
        }
        // The reference has no rule for masqAll in this backend, and conditions at the jump to the rules of all containers.
        let wanted = match (found.iter().any(|found| found.note.is_none()), chains) {
            (true, [MASQUERADING]) if pod.conf.snat.is_some() => pod.masquerading_of(false),
            (false, [MASQUERADING]) | (true, [MASQUERADING]) => pod.masquerading(),
            (true, _) => pod.forwarding_under(&Rule::default()),
            (false, _) => pod.forwarding(),
        };
        for rule in wanted {
            let wanted = spelled(table, &rule);
            let covers =
                |found: &FoundRule| found.rule.as_ref().zip(wanted.as_ref()).is_some_and(|(it, rule)| covers(it, rule));
            if !found.iter().any(covers) {
                return Ok(Some(format!("chain {} of nft table {table} lacks the rule{rule}", chains[0])));
            }
        }
    }
    for chain in ENTRIES {
        if let Some(missing) = missing_jump(table, chain)? {
            return Ok(Some(missing));
        }
        table.expect_packets(chain)?;
    }
    Ok(None)
}

/// Whether a rule is another one, or masquerades all packets that the other one does. The reference writes `ip saddr 0.0.0.0/0` for
/// those of all sources.
fn covers(rule: &Rule, other: &Rule) -> bool {
    if rule.target != Target::Masquerade {
        return rule == other;
    }
    let has_sources = match (&rule.source, &other.source) {
        (None, _) => true,
        (Some(these), None) => !these.negated && these.value.prefix() == 0,
        (Some(these), Some(those)) => {
            let is_within = those.value.prefix() >= these.value.prefix() && these.value.contains(those.value.ip());
            these == those || !these.negated && !those.negated && is_within
        }
    };
    has_sources && Rule { source: other.source.clone(), ..rule.clone() } == *other
}

/// The jump that packets lack on their way from a base chain to the rules of ports, if they do.
pub(crate) fn missing_jump(table: &mut Table<'_>, entry: &str) -> Result<Option<String>> {
    let mut leads = |chain: &str, to: &[&str]| {
        let rules = table.list(chain)?.unwrap_or_default();
        Ok(rules.iter().any(|found| found.goes_to().is_some_and(|goes| to.contains(&goes))))
    };
    let missing = match (leads(entry, &[PORTS])?, leads(entry, &[ALL])?) {
        (true, _) => None,
        (false, true) => (!leads(ALL, &[PORTS])?).then_some((ALL, PORTS)),
        (false, false) => Some((entry, ALL)),
    };
    Ok(missing.map(|(chain, to)| format!("chain {chain} of nft table {table} has no rule that jumps to {to}")))
}

/// Removes an attachment's rules, whichever program made them; returns the UDP ports that they forwarded.
pub(crate) fn remove(table: &mut Table<'_>, names: Names<'_>, known: &KnownAddresses<'_>) -> Result<Vec<Forwarded>> {
    let owner = names.owner();
    let mut forwarded = Vec::new();
    table.change(|table| {
        forwarded.clear();
        let mut edits = Vec::new();
        for chain in [PORTS, ADDRESS_PORTS, MASQUERADING] {
            if !table.has_chain(chain)? {
                continue;
            }
            for found in table.list(chain)?.unwrap_or_default() {
                let is_ours = match &found.note {
                    Some(note) => owner.owns(Some(note)),
                    None => is_of(&found, names) && whose(std::slice::from_ref(&found), &owner, known) == Whose::Ours,
                };
                if is_ours {
                    forwarded.extend(Forwarded::of_rule(&found));
                    edits.push(Edit::Delete(found));
                }
            }
        }
        Ok(edits)
    })?;
    Ok(forwarded)
}

/// Removes the rules of a failed ADD, and puts those back in their places that it replaced.
pub(crate) fn put_back(table: &mut Table<'_>, pod: &PodPorts<'_>, before: &Before) -> Result<Vec<Forwarded>> {
    let owner = pod.names.owner();
    crate::put_back::put_back(table, before, |_, found| owner.owns(found.note.as_deref()))
}

/// Removes the rules of a network's attachments that GC removes; returns the UDP ports that they forwarded. The reference's rules name no network, so they stay.
pub(crate) fn gc(table: &mut Table<'_>, network: &str, sweep: &Sweep<Names<'_>>) -> Result<Vec<Forwarded>> {
    let stale = Stale::new(network, sweep);
    let mut forwarded = Vec::new();
    let of = OfNetwork::new(network);
    for chain in OF_CONTAINERS {
        let mut is_over = false;
        while !is_over {
            let mut now = Vec::new();
            table.sweep(|table| {
                let gone = of_network(table, chain, &of)?.into_iter();
                let gone: Vec<FoundRule> =
                    gone.filter(|found| stale.has(found.note.as_deref())).take(RULES_AT_ONCE).collect();
                is_over = gone.len() < RULES_AT_ONCE;
                now = gone.iter().filter_map(Forwarded::of_rule).collect();
                Ok(gone.into_iter().map(Edit::Delete).collect())
            })?;
            forwarded.extend(now);
        }
    }
    Ok(forwarded)
}

/// The rules of a chain that name an attachment to the network.
fn of_network(table: &mut Table<'_>, chain: &str, network: &OfNetwork) -> Result<Vec<FoundRule>> {
    let found = table.list(chain)?.unwrap_or_default().into_iter();
    Ok(found.filter(|found| network.has(found.note.as_deref())).collect())
}

/// What GC of the network would remove if no attachment were valid.
pub(crate) fn list(table: &mut Table<'_>, network: &OfNetwork) -> Result<Vec<Noted>> {
    let mut noted = Vec::new();
    for chain in OF_CONTAINERS {
        let found = of_network(table, chain, network)?;
        noted.extend(found.iter().filter_map(|found| {
            let object = crate::forwards::text(found).unwrap_or_else(|| "forwarding rule".to_owned());
            Noted::of(network, found.note.as_deref(), crate::pod_ports::target(found), object)
        }));
    }
    Ok(noted)
}

/// Whether packets reach the chains that the rules need.
/// Errors: the error that keeps packets from the chain.
pub(crate) fn probe(table: &mut Table<'_>) -> Result<()> {
    BASE_CHAINS.iter().try_for_each(|(chain, _)| table.expect_packets(chain))
}
