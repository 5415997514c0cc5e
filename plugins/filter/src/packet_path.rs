//! What the packet filter does with packets between networks and to the node itself: for programs that explain what becomes
//! of a packet.

use std::collections::BTreeMap;

use netops::error::Result;
use netops::nft::{self, ChainInfo, Family, Hook, Nft};

use crate::Filter;
use crate::iptables::{NativeTable, Rule, Table, TableName};

/// A base chain that packets pass, with all chains that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The table and chain in words: `chain FORWARD of iptables`, `nft chain inet filter forward`.
    pub place: String,
    /// The ruleset.
    pub maker: Maker,
    /// The family of its packets; `None`: IPv4 and IPv6.
    pub family: Option<netops::Family>,
    /// Where packets meet it.
    pub at: At,
    /// The chain's priority: chains with smaller numbers run earlier.
    pub priority: i32,
    /// Whether the hook sees frames of bridges.
    pub is_of_frames: bool,
    /// Whether only the process that has made the table can change it.
    pub is_owned: bool,
    /// Whether the base chain drops the packets that no rule decides on.
    pub drops: bool,
    /// The base chain's name.
    pub chain: String,
    /// The rules that decide on packets, by chain: of the base chain, and of all that it leads to.
    pub chains: BTreeMap<String, Vec<Step>>,
}

/// Where packets meet a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// A hook that packets of all links pass.
    Hook(Hook),
    /// The packets that one of these links receives.
    Ingress(Vec<String>),
    /// The packets that one of these links sends.
    Egress(Vec<String>),
}

/// The ruleset that a chain belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// iptables, in nf_tables: the table's name.
    Iptables(String),
    /// iptables, the legacy variant.
    LegacyIptables,
    /// A program that writes nf_tables itself: its table and chain as nft(8) names them.
    Nftables(String),
}

/// A rule that ends a packet's way, or leads to another chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rule, where a refusal is [`Target::Reject`](crate::iptables::rule::Target); `None`: it has conditions that this crate does not read.
    pub rule: Option<Rule>,
    /// The chain that it leads to.
    pub to: Option<String>,
    /// Whether packets do not come back from the chain that it leads to, but go on behind the jump to this one.
    pub is_goto: bool,
    /// Whether the rule may accept packets.
    pub may_accept: bool,
    /// Whether the rule may lead packets back to the chain before.
    pub may_return: bool,
    /// The number of the protocol whose packets the rule is for; `None`: more than one, or it is not read.
    pub protocol: Option<u8>,
    /// Whether the rule may drop packets, or has a program decide on them.
    pub may_refuse: bool,
}

const BUILT_IN: [(&str, Hook); 2] = [("FORWARD", Hook::Forward), ("INPUT", Hook::Input)];

/// Lists the gates of both variants of iptables' table `filter`, and those of all other tables of nf_tables. Changes nothing.
///
/// # Errors
/// The refusal of the kernel or iptables. A kernel without a packet filter is no error.
pub fn list(search_path: &str) -> Result<Vec<Gate>> {
    let Some(mut filter) = Filter::find(search_path)? else { return Ok(Vec::new()) };
    let mut gates = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let program = if family == Family::Ip6 { "ip6tables" } else { "iptables" };
        filter.each_iptables(family, TableName::Filter, &mut |table| {
            let is_legacy = table.is_of_legacy();
            for (chain, hook) in BUILT_IN {
                let variant = if is_legacy { " (legacy)" } else { "" };
                let gate = Gate {
                    place: format!("chain {chain} of {program}{variant}"),
                    maker: if is_legacy {
                        Maker::LegacyIptables
                    } else {
                        Maker::Iptables(TableName::Filter.as_str().to_owned())
                    },
                    family: of_packets(family),
                    at: At::Hook(hook),
                    priority: 0,
                    is_of_frames: false,
                    is_owned: false,
                    drops: table.drops_by_policy(chain)?,
                    chain: chain.to_owned(),
                    chains: chains(table, chain, true)?,
                };
                gates.push(gate);
            }
            Ok(())
        })?;
    }
    for family in [Family::Inet, Family::Ip, Family::Ip6, Family::Bridge, Family::Netdev] {
        of_others(&mut filter.nft, family, &mut gates)?;
    }
    Ok(gates)
}

/// The base chains of a family that iptables' table `filter` does not have.
fn of_others(nft: &mut Nft, family: Family, gates: &mut Vec<Gate>) -> Result<()> {
    for chain in nft.list_base_chains(family)? {
        let Some(base) = &chain.base else { continue };
        let Some(at) = At::of(family, base.hook, &base.links) else { continue };
        let is_of_iptables = is_of_iptables(family, &chain);
        let is_read = is_of_iptables
            && chain.table == TableName::Filter.as_str()
            && BUILT_IN.iter().any(|(name, _)| *name == chain.name);
        let table = nft::Table { family, name: chain.table.clone().into() };
        // A chain of kind `nat` sees the first packet of a connection alone.
        if !["filter", "route"].contains(&base.kind.as_str()) || is_read {
            continue;
        }
        let found = nft.find_table(&table)?;
        if found.as_ref().is_some_and(|found| found.is_dormant) {
            continue;
        }
        let name = format!("{table} {}", chain.name);
        let program = if family == Family::Ip6 { "ip6tables" } else { "iptables" };
        let (place, maker) = match is_of_iptables {
            true => {
                (format!("chain {} of {program} -t {}", chain.name, chain.table), Maker::Iptables(chain.table.clone()))
            }
            false => (format!("nft chain {name}"), Maker::Nftables(name)),
        };
        let is_tracked = at.is_tracked(base.priority);
        let mut table = Table::native(nft, NativeTable { table, base_chains: &[] });
        gates.push(Gate {
            place,
            maker,
            family: of_packets(family),
            at,
            priority: base.priority,
            is_of_frames: family == Family::Bridge,
            is_owned: found.is_some_and(|found| found.is_owned),
            drops: base.drops,
            chains: chains(&mut table, &chain.name, is_tracked)?,
            chain: chain.name,
        });
    }
    Ok(())
}

impl At {
    /// Whether the kernel has found the connections of the packets by then.
    fn is_tracked(&self, priority: i32) -> bool {
        // NF_IP_PRI_CONNTRACK of linux/netfilter_ipv4.h.
        let is_behind = priority > -200;
        match self {
            Self::Hook(Hook::Prerouting | Hook::Output) => is_behind,
            Self::Hook(_) => true,
            Self::Ingress(_) | Self::Egress(_) => false,
        }
    }

    /// The place of a hook by its number in a family.
    fn of(family: Family, hook: u32, links: &[String]) -> Option<Self> {
        // enum nf_dev_hooks, and NF_INET_INGRESS, of linux/netfilter.h.
        match (family, hook) {
            (Family::Netdev, 0) | (Family::Inet, 5) => Some(Self::Ingress(links.to_vec())),
            (Family::Netdev, 1) => Some(Self::Egress(links.to_vec())),
            (Family::Netdev, _) => None,
            (_, hook) => Hook::of(hook).map(Self::Hook),
        }
    }
}

/// Whether iptables shows a chain, by the names of its tables.
fn is_of_iptables(family: Family, chain: &ChainInfo) -> bool {
    let built_in = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
    matches!(family, Family::Ip | Family::Ip6)
        && ["filter", "mangle", "raw", "security"].contains(&chain.table.as_str())
        && built_in.contains(&chain.name.as_str())
}

/// The family of the packets that a table of nf_tables sees, if it is one alone.
fn of_packets(family: Family) -> Option<netops::Family> {
    match family {
        Family::Ip => Some(netops::Family::V4),
        Family::Ip6 => Some(netops::Family::V6),
        Family::Inet | Family::Netdev | Family::Bridge => None,
    }
}

/// The rules of a chain and of those that it leads to. `is_tracked`: packets have a connection by then.
fn chains(table: &mut Table<'_>, start: &str, is_tracked: bool) -> Result<BTreeMap<String, Vec<Step>>> {
    let (mut read, mut next) = (BTreeMap::new(), vec![start.to_owned()]);
    // A chain is noted once: what is noted is not read yet.
    while let Some(chain) = next.pop() {
        let mut steps = Vec::new();
        let mut rules = Vec::new();
        for found in table.list(&chain)?.unwrap_or_default() {
            rules.extend(table.without_sets(found)?);
        }
        for found in rules {
            let to = match found.goes_to() {
                Some(to) if read.contains_key(to) || next.iter().any(|next| next == to) || *to == *chain => Some(to),
                // In the legacy variant a verdict has the form of a jump.
                Some(to) if table.has_chain(to)? => {
                    next.push(to.to_owned());
                    Some(to)
                }
                _ => None,
            };
            let may_return = found.may_return();
            if to.is_some() || found.may_decide() || may_return {
                let (may_accept, may_refuse) = (found.may_accept(), found.may_refuse());
                let (is_goto, protocol) = (found.is_goto(), found.protocol());
                let to = to.map(str::to_owned);
                let step = |rule| Step { rule, to: to.clone(), is_goto, may_accept, may_return, protocol, may_refuse };
                steps.extend(found.readings(is_tracked).into_iter().map(step));
            }
        }
        read.insert(chain, steps);
    }
    Ok(read)
}
