//! The rule or policy that the trace of a packet names: in words, and with the commands that open its chain for an attachment.

use std::fmt;
use std::net::IpAddr;

use cni_filter::rule_words;
use ipnetwork::IpNetwork;
use netops::Family;
use netops::nft::trace::Outcome;
use netops::nft::{Chain, Hook, Nft, Table};
use netops::probe::{self, Met};

use super::way_to_container::Bridge;
use crate::doctor::{Step, advice};
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// The priority behind which packets have the addresses of a masquerade (`NF_IP_PRI_NAT_SRC` of linux/netfilter_ipv4.h).
const TRANSLATED: i32 = 100;

/// A base chain of nf_tables.
pub(super) struct Gate {
    table: Table,
    chain: String,
    /// iptables' program with its table, if iptables shows the chain.
    program: Option<String>,
    /// The hook; `None`: where links receive or send.
    pub(super) hook: Option<Hook>,
    pub(super) priority: i32,
    pub(super) is_of_nat: bool,
    drops: bool,
    /// Whether only the process that has made the table can change it.
    is_owned: bool,
}

impl Gate {
    pub(super) fn of(nft: &mut Nft, met: &Met) -> Option<Self> {
        let table = Table { family: probe::family(met.family)?, name: met.table.clone().into() };
        let base = nft.find_chain(&table.chain(met.base.clone())).ok()??.base?;
        let is_of_links = table.family == netops::nft::Family::Netdev;
        let program = rule_words::is_of_iptables(&table, &met.base).then(|| {
            let program = if table.family == netops::nft::Family::Ip6 { "ip6tables" } else { "iptables" };
            if table.name == "filter" { program.to_owned() } else { format!("{program} -t {}", table.name) }
        });
        Some(Self {
            hook: Hook::of(base.hook).filter(|_| !is_of_links),
            priority: base.priority,
            is_of_nat: base.kind == "nat",
            drops: base.drops,
            is_owned: nft.find_table(&table).ok()?.is_some_and(|table| table.is_owned),
            chain: met.base.clone(),
            program,
            table,
        })
    }

    fn is_of_frames(&self) -> bool {
        self.table.family == netops::nft::Family::Bridge
    }

    /// The chain as nft names it.
    fn place(&self) -> String {
        format!("{} {}", self.table, self.chain)
    }

    /// A rule of the chain, or of one that it leads to, or its policy.
    pub(super) fn words(&self, nft: &mut Nft, search_path: &str, met: &Met) -> Words {
        let chain = Chain { table: self.table.clone(), name: met.chain.clone().into(), base: None };
        let Some(handle) = met.rule else {
            let sentence = match &self.program {
                Some(program) => format!("chain {} of {program} by its policy", self.chain),
                None => format!("nft chain {} by its policy", self.place()),
            };
            return Words { sentence, rule: None };
        };
        let rule = rule_words::find(search_path, nft, &chain, handle, self.program.is_some());
        let sentence = match (&self.program, &rule) {
            (Some(program), Some(rule)) => format!("{program} {rule}"),
            (None, Some(rule)) => format!("nft rule {} {} {rule}", self.table, met.chain),
            (_, None) => format!("the rule with handle {handle} of nft chain {} {}", self.table, met.chain),
        };
        Words { sentence, rule }
    }

    pub(super) fn show(&self) -> String {
        match &self.program {
            Some(program) => format!("{program} -S {}", self.chain),
            None => format!("nft list chain {}", self.place()),
        }
    }

    /// Commands that accept packets of the attachment's subnets at the beginning of the chain.
    pub(super) fn accept(&self, attachment: &Attachment, family: Family) -> Vec<Step> {
        let sides = if self.hook == Some(Hook::Output) { ["daddr"].as_slice() } else { &["saddr", "daddr"] };
        self.rules(attachment, family, sides, false)
    }

    /// Commands that accept packets of the attachment alone: what is closed to others stays so.
    pub(super) fn accept_one(&self, attachment: &Attachment, family: Family) -> Vec<Step> {
        let mut alone = attachment.clone();
        alone.result.ips.clear();
        self.accept(&alone, family)
    }

    /// The command that accepts what containers on one bridge send each other.
    pub(super) fn accept_among(&self, bridge: &Bridge) -> String {
        let name = word(&bridge.name);
        match &self.program {
            _ if self.is_owned || self.is_of_frames() => self.show(),
            Some(program) => format!("{program} -I {} -i {name} -o {name} -j ACCEPT", self.chain),
            None => format!("nft insert rule {} iifname {name} oifname {name} accept", self.place()),
        }
    }

    /// Commands that accept answers of the attachment's subnets to the node.
    pub(super) fn accept_answers(&self, attachment: &Attachment, family: Family) -> Vec<Step> {
        self.rules(attachment, family, &["saddr"], true)
    }

    /// The command that accepts what finds addresses of IPv6.
    pub(super) fn accept_discovery(&self) -> Step {
        self.accept_kind("-p icmpv6", "meta l4proto ipv6-icmp", "ICMPv6")
    }

    /// The command that accepts connections to forwarded ports.
    pub(super) fn accept_translated(&self) -> Step {
        self.accept_kind("-m conntrack --ctstate DNAT", "ct status dnat", "packets with ct status dnat")
    }

    /// The command that accepts packets of a kind, by its condition in the words of iptables, of nft, and of a sentence.
    fn accept_kind(&self, iptables: &str, nft: &str, kind: &str) -> Step {
        match &self.program {
            Some(program) => format!("{program} -I {} {iptables} -j ACCEPT", self.chain).into(),
            None if self.is_owned => self.by_owner(kind),
            None => format!("nft insert rule {} {nft} accept", self.place()).into(),
        }
    }

    fn rules(&self, attachment: &Attachment, family: Family, sides: &[&str], of_answers: bool) -> Vec<Step> {
        // Neighbours have to be found, too, by frames without an address of IP; and an answer that arrives for the container has
        // the node's address until it is translated back.
        let is_before_addresses = self.hook.is_none() || self.is_of_frames();
        if is_before_addresses || self.hook == Some(Hook::Prerouting) && self.drops {
            let command = match &self.program {
                Some(program) if self.drops => format!("{program} -P {} ACCEPT", self.chain),
                None if self.drops && !self.is_owned => {
                    format!("nft 'add chain {} {{ policy accept; }}'", self.place())
                }
                _ => self.show(),
            };
            return vec![command.into()];
        }
        let of_result = attachment.result.ips.iter().map(|ip| ip.address);
        let single = attachment.addresses.iter().map(|address| IpNetwork::from(*address));
        let mut nets: Vec<IpNetwork> = of_result.filter(|net| Family::from(*net) == family).collect();
        if nets.is_empty() {
            nets = single.filter(|net| Family::from(*net) == family).collect();
        }
        let nets = nets.iter().map(|net| format!("{}/{}", net.network(), net.prefix()));
        // Only the owner's program can change such a table, and a rule that is added to firewalld's is lost at its next reload.
        if self.is_owned || self.table.name == "firewalld" {
            return nets.map(|net| self.opened_by_owner(&net)).collect();
        }
        let keyword = if family == Family::V6 { "ip6" } else { "ip" };
        let rule = |net: &str, side: &str| match &self.program {
            Some(program) => {
                let option = if side == "saddr" { "-s" } else { "-d" };
                let answers = if of_answers { " -m conntrack --ctstate RELATED,ESTABLISHED" } else { "" };
                format!("{program} -I {} {option} {net}{answers} -j ACCEPT", self.chain)
            }
            None => {
                let answers = if of_answers { " ct state established,related" } else { "" };
                format!("nft insert rule {} {keyword} {side} {net}{answers} accept", self.place())
            }
        };
        nets.flat_map(|net| sides.iter().map(|side| rule(&net, side).into()).collect::<Vec<_>>()).collect()
    }

    fn opened_by_owner(&self, net: &str) -> Step {
        if self.table.name == "firewalld" {
            let add = format!("firewall-cmd --permanent --zone=trusted --add-source={net}");
            return format!("{add} && firewall-cmd --reload").into();
        }
        self.by_owner(&format!("packets of {net}"))
    }

    fn by_owner(&self, what: &str) -> Step {
        advice(format!("Have the program that owns the table of nft chain {} accept {what}.", self.place()))
    }

    /// Whether packets have other addresses than the container's there.
    pub(super) fn is_behind_masquerade(&self) -> bool {
        self.hook == Some(Hook::Postrouting) && self.priority > TRANSLATED
    }
}

pub(super) struct Words {
    sentence: String,
    /// The rule alone, as its program prints it.
    rule: Option<String>,
}

impl Words {
    fn has_any(&self, words: &[&str]) -> bool {
        self.rule.as_ref().is_some_and(|rule| words.iter().any(|word| rule.contains(word)))
    }

    /// Whether the rule is about packets that a link or an address tells from others. A policy is not.
    pub(super) fn names_none(&self) -> bool {
        self.rule.is_some() && !self.has_any(&[" -s ", " -d ", " -i ", " -o ", "addr ", "iif", "oif"])
    }

    /// Whether the rule names one of these addresses.
    pub(super) fn is_of_one(&self, addresses: &[IpAddr]) -> bool {
        let is_it = |word: &str| {
            let (address, length) = word.split_once('/').unwrap_or((word, ""));
            ["", "32", "128"].contains(&length) && addresses.iter().any(|it| address.parse() == Ok(*it))
        };
        self.rule.as_ref().is_some_and(|rule| rule.split(' ').any(is_it))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Why packets are not translated as they have to be.
pub(super) struct Culprit {
    pub(super) by: Words,
    /// Whether the rule takes packets out of the usual connection tracking; else it decides on them before the suite's rule does.
    pub(super) is_of_tracking: bool,
    /// The command that removes or shows it.
    pub(super) remedy: String,
}

/// The rule to which packets owe that they are not translated, of those that they have met; `hook`: where they have to be translated,
/// if that is known.
pub(super) fn culprit(search_path: &str, rules: &[Met], hook: Option<Hook>) -> Option<Culprit> {
    let mut nft = Nft::open("the host").ok()?;
    // A rule of a chain that has been called decides by accepting alone, but for those of the suite.
    let decides = |met: &&Met| {
        met.outcome == Outcome::Accept
            || met.outcome == Outcome::Leaves && (met.chain == met.base || met.chain.starts_with("CNI-"))
    };
    for met in rules.iter().rev().filter(decides).filter(|_| hook.is_some()) {
        let Some(gate) = Gate::of(&mut nft, met).filter(|gate| gate.is_of_nat && gate.hook == hook) else { continue };
        let by = gate.words(&mut nft, search_path, met);
        let is_own = met.chain.starts_with("CNI-");
        let own = gate.program.as_ref().zip(by.rule.as_ref()).filter(|_| is_own);
        let own = own.and_then(|(program, rule)| Some(format!("{program} -D{}", rule.strip_prefix("-A")?)));
        let remedy = own.unwrap_or_else(|| gate.show());
        return Some(Culprit { by, is_of_tracking: false, remedy });
    }
    rules.iter().find_map(|met| {
        // NF_IP_PRI_CONNTRACK of linux/netfilter_ipv4.h.
        let gate = Gate::of(&mut nft, met)?;
        let is_before = gate.hook == Some(Hook::Prerouting) && gate.priority < -200;
        let by = is_before.then(|| gate.words(&mut nft, search_path, met))?;
        by.has_any(&["notrack", "NOTRACK", "-j CT ", "ct zone set"]).then(|| Culprit {
            by,
            is_of_tracking: true,
            remedy: gate.show(),
        })
    })
}
