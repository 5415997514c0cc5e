//! The rules in table `nat` of iptables: the reference's to the letter.
//!
//! ```text
//! -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT            (and OUTPUT)
//! -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"n\" id: \"c\"" -m multiport --dports 8080 -j CNI-DN-…
//! -A CNI-DN-… -s 10.1.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
//! -A CNI-DN-… -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80
//! ```
//!
//! The reference's name of a container's chain does not depend on the interface. The first attachment that maps ports has
//! that name; others have one of their own, so that neither side's DEL takes what another attachment needs.

mod collect;

pub(crate) use collect::{Search, Traced, gc};

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use cni_filter::Names;
use cni_filter::iptables::rule::{Protocol, Rule, Target, is};
use cni_filter::iptables::{Edit, FoundRule, NewRule, Table};
use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::nft::Family;
use netops::{Errno, OpError};

use crate::conf::{Backend, Mark};
use crate::other_entries::{self, Changes};
use crate::pod_ports::{Forwarded, KnownAddresses, PodPorts, Whose, is_conditional, whose};
use crate::port_holder::{self, Contest, Holder};
use crate::put_back;

pub(crate) const DNAT: &str = "CNI-HOSTPORT-DNAT";
pub(crate) const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
pub(crate) const MASQ: &str = "CNI-HOSTPORT-MASQ";
const POSTROUTING: &str = "POSTROUTING";
/// Older versions of the reference: a chain `CNI-SN-…` for each container, entered from this one.
const OLD_SNAT: &str = "CNI-HOSTPORT-SNAT";
pub(crate) const OWN: &str = "CNI-DN-";
/// The longest comment, in bytes: `struct xt_comment_info` has 256 with the final NUL.
const COMMENT_MAX: usize = 255;
/// `XT_MULTI_PORTS`.
const PORTS_MAX: usize = 15;
/// The number of rules in one transaction where a larger one is refused.
const PART: usize = 300;

/// The reference's chain, and the one of an attachment where that is another attachment's.
pub(crate) fn chain_names(names: Names<'_>) -> [String; 2] {
    // A container's ID has no slash.
    let container = format!("{}/{}", names.container, names.ifname);
    [names.iptables_chain_of("DN-"), Names { container: &container, ..names }.iptables_chain_of("DN-")]
}

/// A comment that is too long ends in two dots, as the reference's.
fn comment(names: Names<'_>) -> String {
    let whole = format!("dnat name: \"{}\" id: \"{}\"", names.network, names.container);
    if whole.len() <= COMMENT_MAX { whole } else { format!("{}..", start_of(&whole)) }
}

/// The start of a text, as much of it as a comment has room for.
fn start_of(text: &str) -> &str {
    text.get(..text.floor_char_boundary(COMMENT_MAX - 2)).unwrap_or_default()
}

impl PodPorts<'_> {
    /// The rules that lead from the shared chain to the container's. As in the reference, mappings of the other family are
    /// among them, which the container's chain does not have.
    fn entries(&self, chain: &str) -> Vec<Rule> {
        let mut entries = Vec::new();
        for protocol in [Protocol::Dccp, Protocol::Sctp, Protocol::Tcp, Protocol::Udp] {
            let own = self.conf.mappings.iter().filter(|mapping| mapping.protocol == protocol);
            let ports: Vec<u16> = own.map(|mapping| mapping.host_port).collect();
            entries.extend(ports.chunks(PORTS_MAX).map(|ports| self.entry(protocol, ports, chain)));
        }
        entries
    }

    fn entry(&self, protocol: Protocol, ports: &[u16], chain: &str) -> Rule {
        Rule {
            protocol: Some(protocol),
            comment: Some(comment(self.names)),
            ports: ports.to_vec(),
            target: Target::Jump(chain.to_owned()),
            ..self.conf.conditions(self.family).rule()
        }
    }

    /// The rules of the container's chain: marks first.
    fn rules(&self, mark: &Mark) -> Vec<Rule> {
        let set_mark = self.conf.snat.as_ref().map(|snat| match mark {
            Mark::Own(_) => (snat, SET_MARK),
            Mark::External(chain) => (snat, chain.as_str()),
        });
        let prefix = IpNetwork::new(self.address.network(), self.address.prefix()).unwrap_or(self.address);
        let mut rules = Vec::new();
        for mapping in self.mappings() {
            let port = Rule {
                protocol: Some(mapping.protocol),
                port: Some(mapping.host_port),
                destination: mapping.destination().and_then(|ip| is(ip.into())),
                ..Rule::default()
            };
            let spare = |ip: IpAddr| Rule { destination: is(ip.into()), target: Target::Return, ..port.clone() };
            rules.extend(self.spared(mapping).map(spare));
            if let Some((snat, chain)) = set_mark {
                let mark = |source| Rule { source, target: Target::Jump(chain.to_owned()), ..port.clone() };
                if snat.masq_all {
                    rules.push(mark(None));
                } else {
                    rules.push(mark(is(prefix)));
                    if self.family == Family::Ip {
                        rules.push(mark(is(IpAddr::from(Ipv4Addr::LOCALHOST).into())));
                    }
                }
            }
            let to = Target::Dnat((self.address.ip(), mapping.container_port).into());
            rules.push(Rule { target: to, ..port });
        }
        // As in the reference, mappings of one port share a rule where they would have the same.
        each_once(rules)
    }

    /// The rules of the container's chain as edits. The first has the attachment's note.
    fn additions(&self, chain: &str, rules: Vec<Rule>, is_first: bool) -> Vec<Edit> {
        let own = |(at, rule)| {
            let note = (is_first && at == 0).then(|| self.names.comment());
            Edit::Append(NewRule { chain: chain.to_owned(), rule, note })
        };
        rules.into_iter().enumerate().map(own).collect()
    }

    pub(crate) fn known<'a>(&self, address: &'a [IpAddr]) -> KnownAddresses<'a> {
        // Another attachment's rules forward to another address.
        KnownAddresses { addresses: address, held: &|| None }
    }
}

/// Whether the rule spares an address that a program of the node listens on.
fn returns(found: &FoundRule) -> bool {
    found.rule.as_ref().is_some_and(|rule| rule.target == Target::Return)
}

/// The rules without those that equal an earlier one.
pub(crate) fn each_once(rules: Vec<Rule>) -> Vec<Rule> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    rules.into_iter().filter(|rule| seen.insert(rule.to_string())).collect()
}

/// How connections are marked: by the config's chain where there is one of the name, else as without the key. Since Kubernetes 1.27
/// kubelet does not make `KUBE-MARK-MASQ`, and kube-proxy makes it in one of its modes.
fn mark_of(pod: &PodPorts<'_>, table: &mut Table<'_>) -> Result<Mark> {
    match pod.conf.snat.as_ref().map(|snat| &snat.mark) {
        Some(Mark::External(chain)) if !table.has_chain(chain)? => {
            tracing::warn!(
                chain,
                family = %pod.family,
                "the chain of key externalSetMarkChain is not found: connections are marked by portmap's own chain"
            );
            Ok(Mark::usual())
        }
        Some(mark) => Ok(mark.clone()),
        None => Ok(Mark::usual()),
    }
}

/// The objects that all containers share: each is made by the first.
fn shared(pod: &PodPorts<'_>, mark: &Mark, table: &mut Table<'_>) -> Result<Vec<Edit>> {
    let rule = |chain: &str, rule: Rule| NewRule { chain: chain.to_owned(), rule, note: None };
    let text = |text: &str| Some(text.to_owned());
    let mut edits = Vec::new();
    match pod.conf.snat.as_ref().map(|_| mark) {
        None | Some(Mark::External(_)) => {}
        Some(Mark::Own(bits)) => {
            let mark = Rule {
                comment: text("CNI portfwd masquerade mark"),
                target: Target::SetMark(*bits),
                ..Rule::default()
            };
            edits.extend(table.create_filled_once(SET_MARK, vec![mark])?.0);
            let masquerade = Rule { mark: Some(*bits), target: Target::Masquerade, ..Rule::default() };
            let (made, rules) = table.create_filled_once(MASQ, vec![masquerade])?;
            edits.extend(made);
            // POSTROUTING may have a rule for each container. The jump is found without reading it.
            let jump = Rule { comment: text("CNI portfwd requiring masquerade"), ..Rule::jump(MASQ) };
            if !table.list_jumps(POSTROUTING, MASQ, &rules)?.iter().any(|found| found.rule.as_ref() == Some(&jump)) {
                edits.push(Edit::Prepend(rule(POSTROUTING, jump)));
            }
        }
    }
    edits.extend(table.create_chain_once(DNAT)?);
    for chain in ["PREROUTING", "OUTPUT"] {
        let jump = Rule { to_local: true, ..Rule::jump(DNAT) };
        edits.extend(table.append_once(rule(chain, jump))?);
    }
    Ok(edits)
}

/// Whether an edit adds what marks connections, or masquerades the marked ones.
pub(crate) fn is_of_marks(edit: &Edit) -> bool {
    match edit {
        Edit::CreateChain(chain) => [SET_MARK, MASQ].contains(&chain.as_str()),
        Edit::Append(new) | Edit::Prepend(new) => [SET_MARK, MASQ, POSTROUTING].contains(&new.chain.as_str()),
        Edit::PutBack(_) | Edit::Delete(_) | Edit::FlushChain(_) | Edit::DeleteChain(_) => false,
    }
}

/// The difference that an edit removes: a container's chain has other rules than ADD made, or has them in another order.
pub(crate) fn other_content(edit: &Edit) -> Option<String> {
    match edit {
        Edit::FlushChain(chain) => Some(format!("chain {chain} has other rules than ADD made")),
        _ => None,
    }
}

/// Makes the rules, unless a container that holds a port already is to be an error.
pub(crate) fn add(table: &mut Table<'_>, pod: &PodPorts<'_>, contest: &mut Contest<'_>) -> Result<()> {
    match table.change(|table| edits(table, pod, contest)) {
        Err(error) if error.os_errno() == Some(Errno::EMSGSIZE) => {
            // No packet reaches the chain before the last transaction.
            fill(table, pod)?;
            table.change(|table| edits(table, pod, contest))
        }
        done => done,
    }
}

/// The containers that hold a port, for the other backend.
pub(crate) fn holders(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Vec<Holder>> {
    if !table.has_chain(DNAT)? {
        return Ok(Vec::new());
    }
    let entries = table.list_ports(DNAT, "", &ports(pod))?;
    let contested: Vec<_> = entries.iter().filter(|found| contests(found, pod)).collect();
    Ok(port_holder::in_chains(table, &contested, pod)?.0)
}

fn ports(pod: &PodPorts<'_>) -> Vec<u16> {
    pod.conf.mappings.iter().map(|mapping| mapping.host_port).collect()
}

/// The edits of an ADD, and in `contest` the containers that hold a port already.
pub(crate) fn edits(table: &mut Table<'_>, pod: &PodPorts<'_>, contest: &mut Contest<'_>) -> Result<Vec<Edit>> {
    let (chain, mut found) = choose_chain(table, pod)?;
    if pod.spared.is_none() {
        found.iter_mut().for_each(|rules| rules.retain(|found| !returns(found)));
    }
    let entries = table.list_ports(DNAT, &chain, &ports(pod))?;
    let is_own = |found: &FoundRule| found.goes_to() == Some(chain.as_str());
    let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_own);
    contest.keep(|| put_back::of(table, &chain, found.as_deref(), &own))?;
    let contested: Vec<_> = others.iter().filter(|found| contests(found, pod)).collect();
    let (living, dead) = port_holder::in_chains(table, &contested, pod)?;
    if !contest.goes_on(living, table, Backend::Iptables, pod)? {
        return Ok(Vec::new());
    }
    let mark = mark_of(pod, table)?;
    let mut edits = shared(pod, &mark, table)?;
    let rules = all_rules(table, pod, found.as_deref(), &mark);
    let is_filled = found
        .as_ref()
        .is_some_and(|found| found.len() == rules.len() && missing(table, found, pod.rules(&mark)).is_none());
    match &found {
        None => edits.push(Edit::CreateChain(chain.clone())),
        Some(_) if !is_filled => edits.push(Edit::FlushChain(chain.clone())),
        Some(_) => {}
    }
    if !is_filled {
        edits.extend(pod.additions(&chain, rules, true));
    }
    edits.extend(entry_edits(table, pod, &chain, own, &dead));
    Ok(edits)
}

/// The rules that CHECK compares and that are there already, for programs that show what ADD would do.
pub(crate) fn present(table: &mut Table<'_>) -> Result<Vec<Edit>> {
    let mut present = Vec::new();
    for chain in ["PREROUTING", "OUTPUT"] {
        let jump = Rule { to_local: true, ..Rule::jump(DNAT) };
        if table.has(chain, &jump)? {
            present.push(Edit::Append(NewRule { chain: chain.to_owned(), rule: jump, note: None }));
        }
    }
    Ok(present)
}

/// The rules of the container's chain, those of another entry of the list among them.
fn all_rules(table: &Table<'_>, pod: &PodPorts<'_>, found: Option<&[FoundRule]>, mark: &Mark) -> Vec<Rule> {
    let rules = pod.rules(mark);
    match found {
        Some(found) if !is_same(table, Some(found), &rules) => other_entries::with_marks(table, pod, found, rules),
        _ => rules,
    }
}

/// The rules in the shared chain.
fn entry_edits(
    table: &Table<'_>,
    pod: &PodPorts<'_>,
    chain: &str,
    own: Vec<FoundRule>,
    dead: &BTreeSet<(u8, u16)>,
) -> Vec<Edit> {
    let wanted = pod.entries(chain);
    // Ports that only containers hold that are gone: their rules stay for their DEL and GC, and ours come first.
    let mut first: Vec<Rule> = Vec::new();
    for protocol in Protocol::ALL {
        let ports: Vec<u16> =
            dead.iter().filter(|(number, _)| *number == protocol as u8).map(|(_, port)| *port).collect();
        first.extend(ports.chunks(PORTS_MAX).map(|ports| pod.entry(protocol, ports, chain)));
    }
    let new = |rule| NewRule { chain: DNAT.to_owned(), rule, note: Some(pod.names.comment()) };
    let all: Vec<Rule> = first.iter().chain(&wanted).cloned().collect();
    let packets = |rule: &Rule| (rule.protocol, rule.ports.clone(), rule.target.clone());
    let ports: Vec<_> = all.iter().map(packets).collect();
    let is_for_ports = |rule: &Rule| ports.contains(&packets(rule));
    // Rules with conditions in other words are not decoded.
    let (own, unread): (Vec<_>, Vec<_>) = own.into_iter().partition(|found| found.rule.is_some());
    let Changes { gone, missing } = match pod.conf.conditions(pod.family).need_programs() {
        false => other_entries::changes(table, own, all, is_for_ports),
        true => {
            let mut gone = other_entries::changes(table, own, Vec::new(), is_for_ports).gone;
            match unread.len() == all.len() {
                true => Changes { gone, missing: Vec::new() },
                false => {
                    gone.extend(unread);
                    Changes { gone, missing: all }
                }
            }
        }
    };
    let (first, rest): (Vec<_>, Vec<_>) = missing.into_iter().partition(|rule| first.contains(rule));
    let mut edits: Vec<Edit> = gone.into_iter().map(Edit::Delete).collect();
    edits.extend(first.into_iter().map(|rule| Edit::Prepend(new(rule))));
    edits.extend(rest.into_iter().map(|rule| Edit::Append(new(rule))));
    edits
}

/// Fills the container's chain in parts.
fn fill(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<()> {
    let mark = mark_of(pod, table)?;
    let found = choose_chain(table, pod)?.1;
    let rules = all_rules(table, pod, found.as_deref(), &mark);
    for (at, part) in rules.chunks(PART).enumerate() {
        table.change(|table| {
            let (chain, found) = choose_chain(table, pod)?;
            let mut edits = shared(pod, &mark, table)?;
            match (at, found) {
                (0, None) => edits.push(Edit::CreateChain(chain.clone())),
                (0, Some(_)) => edits.push(Edit::FlushChain(chain.clone())),
                (_, Some(_)) => {}
                (_, None) => {
                    let why = "another process deleted it meanwhile";
                    return Err(OpError::state("fill", format!("iptables chain {chain}"), why));
                }
            }
            edits.extend(pod.additions(&chain, part.to_vec(), at == 0));
            Ok(edits)
        })?;
    }
    Ok(())
}

/// The attachment's chain, with its rules if it exists.
fn choose_chain(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<(String, Option<Vec<FoundRule>>)> {
    let [plain, own] = chain_names(pod.names);
    if let Some(rules) = table.list(&own)? {
        return Ok((own, Some(rules)));
    }
    let Some(rules) = table.list(&plain)? else { return Ok((plain, None)) };
    let address = [pod.address.ip()];
    let is_ours = match whose(&rules, &pod.names.owner(), &pod.known(&address)) {
        Whose::Ours | Whose::Unclear => true,
        Whose::Others => false,
    };
    Ok(if is_ours { (plain, Some(rules)) } else { (own, None) })
}

/// True if the chain has these rules, in this order, and no others.
fn is_same(table: &Table<'_>, found: Option<&[FoundRule]>, wanted: &[Rule]) -> bool {
    let Some(found) = found else { return false };
    let spelled = |rule: &Rule| table.spelled(rule).ok().and_then(|rules| rules.into_iter().next());
    found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| found.rule.is_some() && found.rule == spelled(wanted))
}

/// Whether packets to a host port of the container may go to another one first.
fn contests(found: &FoundRule, pod: &PodPorts<'_>) -> bool {
    let Some(rule) = &found.rule else { return false };
    // A rule with conditions takes only some packets, and was made for them.
    let is_conditional = is_conditional(rule) || rule.destination.is_some();
    let is_it = |port: &u16| {
        let mut own = pod.conf.mappings.iter().filter(|mapping| mapping.is_for(pod.family));
        own.any(|mapping| Some(mapping.protocol) == rule.protocol && mapping.host_port == *port)
    };
    !is_conditional && rule.ports.iter().any(is_it)
}

/// The first of these rules that a chain lacks, in their order.
fn missing(table: &Table<'_>, found: &[FoundRule], rules: Vec<Rule>) -> Option<Rule> {
    let spelled = |rule: &Rule| table.spelled(rule).ok().and_then(|rules| rules.into_iter().next());
    let mut wanted = rules.into_iter().peekable();
    for found in found {
        wanted.next_if(|wanted| found.rule == spelled(wanted));
    }
    wanted.next()
}

/// The difference from the rules that [`add`] makes, if there is one. The reference's rules are accepted.
pub(crate) fn check(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Option<String>> {
    let (chain, found) = choose_chain(table, pod)?;
    let Some(found) = found else { return Ok(Some(format!("iptables chain {chain} of table nat is not found"))) };
    // The config's own chain for marks may have come, or gone, since ADD.
    let configured = pod.conf.snat.as_ref().map_or_else(Mark::usual, |snat| snat.mark.clone());
    let missing = missing(table, &found, pod.rules(&configured));
    let missing = match configured {
        Mark::External(_) if missing.is_some() => self::missing(table, &found, pod.rules(&Mark::usual())),
        Mark::External(_) | Mark::Own(_) => missing,
    };
    if let Some(missing) = missing {
        return Ok(Some(format!("iptables chain {chain} lacks its rule{missing}")));
    }
    let entries = table.list_jumps(DNAT, &chain, &found)?;
    for wanted in pod.entries(&chain) {
        let is_it = |entry: &FoundRule| match pod.conf.conditions(pod.family).need_programs() {
            true => entry.rule.is_none(), // with other words than rules of ours
            false => entry.rule.as_ref() == Some(&wanted),
        };
        if !entries.iter().any(is_it) {
            return Ok(Some(format!("iptables chain {DNAT} lacks the rule{wanted}")));
        }
    }
    for chain in ["PREROUTING", "OUTPUT"] {
        let jump = Rule { to_local: true, ..Rule::jump(DNAT) };
        if !table.has(chain, &jump)? {
            return Ok(Some(format!("iptables chain {chain} of table nat lacks the rule{jump}")));
        }
    }
    Ok(None)
}

/// Removes an attachment's rules, whichever program made them; returns the UDP ports that they forwarded.
pub(crate) fn remove(table: &mut Table<'_>, names: Names<'_>, known: &KnownAddresses<'_>) -> Result<Vec<Forwarded>> {
    let mut forwarded = Vec::new();
    let mut stays = false;
    let mut removals = |table: &mut Table<'_>, stays: bool| {
        forwarded.clear();
        let mut edits = Vec::new();
        for chain in chain_names(names) {
            let Some(rules) = table.list(&chain)? else { continue };
            if whose(&rules, &names.owner(), known) == Whose::Others {
                continue;
            }
            forwarded.extend(rules.iter().filter_map(Forwarded::of_rule));
            edits.extend(table.list_jumps(DNAT, &chain, &rules)?.into_iter().map(Edit::Delete));
            edits.push(if stays { Edit::FlushChain(chain) } else { Edit::DeleteChain(chain) });
        }
        let old = names.iptables_chain_of("SN-");
        if table.has_chain(&old)? {
            edits.extend(table.delete_where(OLD_SNAT, |found| found.goes_to() == Some(&old))?);
            edits.push(Edit::DeleteChain(old));
        }
        Ok(edits)
    };
    if let Err(error) = table.change(|table| removals(table, stays)) {
        if error.os_errno() != Some(Errno::EBUSY) {
            return Err(error);
        }
        stays = true;
        tracing::warn!(
            ?names,
            "a rule of another program jumps to the container's chain, so the chain stays, without rules"
        );
        table.change(|table| removals(table, stays))?;
    }
    Ok(forwarded)
}

/// Whether packets reach the chains that the rules need.
/// Errors: the error that keeps packets from the chain.
pub(crate) fn probe(table: &mut Table<'_>) -> Result<()> {
    ["PREROUTING", "OUTPUT", "POSTROUTING"].into_iter().try_for_each(|chain| table.expect_packets(chain))
}
