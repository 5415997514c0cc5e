//! The forwarding rules on the node, of all containers and of either side, for programs that show them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use chained::{Attached, failed};
pub use cni_filter::iptables::rule::Protocol;
use cni_filter::iptables::rule::{Is, Target};
use cni_filter::iptables::{FoundRule, Table, TableName};
use cni_filter::{Filter, Noted, OfNetwork, SharedPort};
use cni_spec::{Attachment, CniError, NetworkName};
use ipnetwork::IpNetwork;
use netops::error::Result;

use crate::conf::Backend;
use crate::iptables::{DNAT, Search, Traced, chain_names};
use crate::pod_ports::{FAMILIES, is_conditional, names, target};
use crate::{accept, each, iptables, nftables};

/// A port of the node that is forwarded to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub protocol: Protocol,
    /// The node's address; `None`: each of them, or those of the conditions.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub to: SocketAddr,
    /// Whether the forward is for some packets only, by the network's conditions.
    pub is_conditional: bool,
    /// Whether packets from other hosts get to the rule: chain PREROUTING jumps to those of `portmap`.
    pub is_entered: bool,
    /// The senders that do not get to the container by the port, and the rule that all ports share and that is gone.
    pub lost: Option<String>,
    /// What names the attachment that the rule was made for: its chain, its note or its comment; empty: nothing does.
    pub owner: String,
}

impl Forward {
    /// Whether the rule was made for the attachment.
    pub fn is_of(&self, attachment: &Attachment) -> bool {
        let names = names(attachment);
        let is_it = |word: &String| *word == self.owner;
        iptables::chain_names(names).iter().chain(&nftables::words(names)).chain([&names.comment()]).any(is_it)
    }

    /// The node's side in words: `port 8080/tcp of the node`.
    pub fn host_port(&self) -> String {
        let host = self.address.map_or("the node".to_owned(), |address| address.to_string());
        let conditions = if self.is_conditional { " (only packets that meet its conditions)" } else { "" };
        format!("port {}/{} of {host}{conditions}", self.port, self.protocol.name())
    }
}

/// The addresses that ports are forwarded to: the first of each family on the container's interface. One of the node's side alone
/// is none.
pub fn targets(attached: &Attached) -> impl Iterator<Item = IpNetwork> {
    let all = || attached.ips().map(|ip| ip.address);
    [all().find(IpNetwork::is_ipv4), all().find(IpNetwork::is_ipv6)].into_iter().flatten()
}

/// The rules of both backends and both variants of iptables, in the order in which the kernel tries them: of equal ports
/// the first one gets the packets. Changes nothing. Rules with conditions that only iptables knows are left out.
/// Errors: the refusal of the kernel or iptables. A kernel without a packet filter is no error.
pub fn list(search_path: &str) -> Result<Vec<Forward>> {
    let Some(mut filter) = Filter::find(search_path)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for family in FAMILIES {
        filter.each_iptables(family, TableName::Nat, &mut |table| {
            let before = found.len();
            let marking = read(table, &[iptables::DNAT], &mut found)?;
            // The chain of all packets is read only for a rule.
            if found.len() > before {
                let entries = table.list("PREROUTING")?.unwrap_or_default();
                let is_entered = entries.iter().any(|entry| entry.goes_to() == Some(iptables::DNAT));
                let (of_node, of_marked) = (lost_by_node(table)?, lost_by_marked(table)?);
                for forward in found.iter_mut().skip(before) {
                    forward.is_entered = is_entered;
                    let of_marked = of_marked.as_ref().filter(|_| marking.contains(&forward.owner));
                    forward.lost = of_node.as_ref().or(of_marked).cloned();
                }
            }
            Ok(())
        })?;
        let (mut table, before) = (filter.native(nftables::table(family)), found.len());
        read(&mut table, &nftables::FORWARDING, &mut found)?;
        if found.len() > before {
            let is_entered = nftables::missing_jump(&mut table, "prerouting")?.is_none();
            let lost = nftables::missing_jump(&mut table, "output")?.map(|missing| format!("{OF_NODE}: {missing}"));
            for forward in found.iter_mut().skip(before) {
                forward.is_entered = is_entered;
                forward.lost.clone_from(&lost);
            }
        }
    }
    found.extend(shared(&mut filter)?);
    Ok(found)
}

/// The ports of shared rules. A port of the node that leads to itself is none.
fn shared(filter: &mut Filter) -> Result<Vec<Forward>> {
    let forward = |(SharedPort { protocol, address, port, to }, owner)| {
        // CHECK looks at the rules.
        let (is_conditional, is_entered, lost) = (false, true, None);
        Forward { protocol, address, port, to, is_conditional, is_entered, lost, owner }
    };
    Ok(filter.list_ports()?.into_iter().filter(|(port, _)| port.address != Some(port.to.ip())).map(forward).collect())
}

/// Whether a process, as `NAME (PID)`, listens only to keep the ports of its runtime's containers from other programs.
pub fn is_holder(process: &str) -> bool {
    // Of podman.
    const HOLDERS: [&str; 2] = ["conmon", "rootlessport"];
    process.rsplit_once(" (").is_some_and(|(name, _)| HOLDERS.contains(&name))
}

const OF_NODE: &str = "the node itself does not get to it";

const OF_MARKED: &str = "neither 127.0.0.1 nor the containers of its network get to it";

/// The jump that packets of the node itself to each port need, if it is gone.
fn lost_by_node(table: &mut Table<'_>) -> Result<Option<String>> {
    lost_jump(table, OF_NODE, ("OUTPUT", iptables::DNAT))
}

/// The rule that packets with the mark of the suite's own masquerade need, if it is gone.
fn lost_by_marked(table: &mut Table<'_>) -> Result<Option<String>> {
    let jump = lost_jump(table, OF_MARKED, ("POSTROUTING", iptables::MASQ))?;
    if jump.is_some() {
        return Ok(jump);
    }
    for chain in [iptables::SET_MARK, iptables::MASQ] {
        if table.list(chain)?.is_none_or(|rules| rules.is_empty()) {
            return Ok(Some(format!("{OF_MARKED}: chain {chain} has no rule")));
        }
    }
    Ok(None)
}

fn lost_jump(table: &mut Table<'_>, whom: &str, (chain, to): (&str, &str)) -> Result<Option<String>> {
    let rules = table.list(chain)?.unwrap_or_default();
    let is_there = rules.iter().any(|found| found.goes_to() == Some(to));
    Ok((!is_there).then(|| format!("{whom}: chain {chain} has no rule that jumps to {to}")))
}

/// The forwards of other programs that packets from other hosts meet before those of `portmap`, such as docker's. Changes
/// nothing.
/// Errors: as [`list`].
pub fn list_of_others(search_path: &str) -> Result<Vec<Forward>> {
    let Some(mut filter) = Filter::find(search_path)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for family in FAMILIES {
        filter.each_iptables(family, TableName::Nat, &mut |table| {
            for entry in table.list("PREROUTING")?.unwrap_or_default() {
                match entry.goes_to() {
                    Some(iptables::DNAT) => break,
                    Some(chain) => of_others(table, chain, 0, &mut found)?,
                    None => found.extend(other(&entry)),
                }
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Takes the rules of a chain, and of those that it jumps to: netavark has a chain for each container.
fn of_others(table: &mut Table<'_>, chain: &str, depth: usize, found: &mut Vec<Forward>) -> Result<()> {
    // Chains of kube-proxy and calico have a rule for each service of the cluster, and are for addresses of services.
    if depth > 1 || ["KUBE-", "cali-"].iter().any(|start| chain.starts_with(start)) {
        return Ok(());
    }
    for entry in table.list(chain)?.unwrap_or_default() {
        match entry.goes_to() {
            Some(next) => of_others(table, next, depth + 1, found)?,
            None => found.extend(other(&entry)),
        }
    }
    Ok(())
}

/// The forward of a rule for packets of all links, or of all but one.
fn other(found: &FoundRule) -> Option<Forward> {
    let rule = found.rule.as_ref()?;
    let is_of_all = rule.source.is_none() && rule.input.as_ref().is_none_or(|is| is.negated);
    forward(found, false).filter(|_| is_of_all)
}

/// Takes the rules of these chains, and of those that they jump to; returns those of the latter that mark packets for the suite's
/// own masquerade.
fn read(table: &mut Table<'_>, chains: &[&str], forwards: &mut Vec<Forward>) -> Result<BTreeSet<String>> {
    let (mut read, mut marking) = (BTreeSet::new(), BTreeSet::new());
    for chain in chains {
        for entry in table.list(chain)?.unwrap_or_default() {
            match entry.goes_to() {
                Some(chain) if chain.starts_with(iptables::OWN) && read.insert(chain.to_owned()) => {
                    let has_conditions =
                        entry.rule.as_ref().is_none_or(|rule| is_conditional(rule) || rule.destination.is_some());
                    let found = table.list(chain)?.unwrap_or_default();
                    if found.iter().any(|found| found.goes_to() == Some(iptables::SET_MARK)) {
                        marking.insert(chain.to_owned());
                    }
                    let own = found.iter().filter_map(|found| forward(found, has_conditions));
                    forwards.extend(own.map(|forward| Forward { owner: chain.to_owned(), ..forward }));
                }
                _ => forwards.extend(forward(&entry, false)),
            }
        }
    }
    Ok(marking)
}

fn forward(found: &FoundRule, has_conditions: bool) -> Option<Forward> {
    let rule = found.rule.as_ref()?;
    let Target::Dnat(to) = rule.target else { return None };
    let address = rule.destination.as_ref().and_then(Is::host);
    let is_conditional = has_conditions || is_conditional(rule);
    let owner = found.note.clone().or_else(|| rule.comment.clone()).unwrap_or_default();
    let (protocol, port) = (rule.protocol?, rule.port?);
    Some(Forward { protocol, address, port, to, is_conditional, is_entered: true, lost: None, owner })
}

/// What both backends and both variants of iptables have of the network. Changes nothing. The key of what says no more than
/// its chain is one of [`words`].
/// Errors: the refusal of the kernel or iptables.
pub fn inventory(network: &NetworkName, search_path: &str) -> std::result::Result<Vec<Noted>, CniError> {
    let (mut found, mut accepted) = (Vec::new(), Vec::new());
    let (search, of) = (Search::new(network.as_str()), OfNetwork::new(network.as_str()));
    let work = &mut |table: &mut Table<'_>, backend| {
        found.extend(match backend {
            Backend::Iptables => of_iptables(table, &search)?,
            Backend::Nftables => nftables::list(table, &of)?,
        });
        Ok(Vec::new())
    };
    let mut by_shared = Vec::new();
    let accepted_by = &mut |table: &mut Table<'_>| {
        accepted.extend(accept::list(table, &of)?);
        Ok(())
    };
    let errors = each(search_path, work, accepted_by, &mut |filter| {
        by_shared.extend(filter.list_ports()?.into_iter().filter_map(|(port, comment)| {
            let object = format!("forwarding of port {}/{} to {}", port.port, port.protocol.name(), port.to);
            Noted::of(&of, Some(&comment), Some(port.to.ip()), object)
        }));
        Ok(Vec::new())
    });
    found.extend(accepted);
    found.extend(by_shared);
    CniError::join(errors.into_iter().map(failed).collect()).map_or(Ok(found), Err)
}

/// The names of chains that an attachment may have.
pub fn words(attachment: &Attachment) -> Vec<String> {
    chain_names(names(attachment)).into()
}

/// The containers' chains, the whole table read at once.
fn of_iptables(table: &mut Table<'_>, search: &Search) -> netops::error::Result<Vec<Noted>> {
    if !table.has_chain(DNAT)? {
        return Ok(Vec::new());
    }
    let all = table.list_all()?;
    let entries = || all.get(DNAT).into_iter().flatten().cloned();
    let entered: BTreeSet<String> = entries().filter_map(|entry| entry.goes_to().map(str::to_owned)).collect();
    let loose = all.iter().filter(|(chain, _)| !entered.contains(*chain));
    let loose = loose.filter_map(|(chain, found)| search.by_first(chain.clone(), found.first()?.clone()));
    let mut noted = Vec::new();
    for Traced { chain, found } in entries().filter_map(|entry| search.by_entry(entry)).chain(loose) {
        let rules = all.get(&chain).map(Vec::as_slice).unwrap_or_default();
        let mut objects: Vec<_> = rules.iter().filter_map(|rule| Some((target(rule), text(rule)?))).collect();
        if objects.is_empty() {
            objects.push((None, format!("iptables chain {chain}")));
        }
        let comment = found.comment().unwrap_or_default();
        for (address, object) in objects {
            let by_note = Noted::of(search.network(), found.note.as_deref(), address, object.clone());
            let container = Some(search.container(&comment)).filter(|container| !container.is_empty());
            let (key, container) = (chain.clone(), container.map(str::to_owned));
            let unnamed = Noted { key, container, ifname: None, address, object, masquerades_by: None };
            noted.push(by_note.unwrap_or(unnamed));
        }
    }
    Ok(noted)
}

/// A rule of a container's as text for people; `None` for those that only go with others.
pub(crate) fn text(found: &FoundRule) -> Option<String> {
    let rule = found.rule.as_ref()?;
    match rule.target {
        Target::Dnat(to) => {
            let from =
                rule.port.zip(rule.protocol).map(|(port, protocol)| format!(" of port {port}/{}", protocol.name()));
            Some(format!("forwarding{} to {to}", from.unwrap_or_default()))
        }
        Target::Masquerade => target(found).map(|address| format!("masquerade of connections to {address}")),
        Target::None
        | Target::Jump(_)
        | Target::Accept
        | Target::Drop
        | Target::Reject
        | Target::Return
        | Target::SetMark(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_holder;

    #[test]
    fn processes_that_hold_the_ports_of_their_containers_take_none() {
        assert!(is_holder("conmon (37)") && is_holder("rootlessport (4)"));
        for other in ["docker-proxy (37)", "conmonitor (37)", "my conmon (1)", "conmon"] {
            assert!(!is_holder(other), "{other}");
        }
    }
}
