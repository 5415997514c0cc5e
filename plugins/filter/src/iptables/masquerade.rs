//! Masquerade as in the reference's iptables backend: a chain for each container on a network.
//!
//! All attachments of the container to the network share the chain, and the rules as iptables shows them do not name
//! the attachment. A jump identifies it by its address and, in nf_tables, by a note that iptables ignores.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use cni_spec::gc::{Sweep, SweptKeys};
use ipnetwork::IpNetwork;
use netops::OpError;
use netops::error::Result;
use netops::nft::{self, Chain, Family, Nft};

use super::rule::{self, Is, Rule, Target, is, is_not};
use super::table::at_once::{self, Chains};
use super::table::{Edit, FoundRule, NewRule, Table, TableName};
use super::variant::{self, Asked, FAMILIES};
use crate::RemovalHints;
use crate::masquerade::Masquerade;
use crate::names_and_comments::{Names, Stale};

const POSTROUTING: &str = "POSTROUTING";
/// portmap's chain of the containers' ports.
const HOSTPORT_DNAT: &str = "CNI-HOSTPORT-DNAT";
/// The number of edits in one transaction of GC; its last chain may add some more. One `send` takes 500 changes.
const EDITS_AT_ONCE: usize = 240;

fn is_for(family: Family, address: IpAddr) -> bool {
    address.is_ipv4() == (family == Family::Ip)
}

/// The reference's comment, which names the attachment in plain text.
fn comment(attachment: Names<'_>) -> String {
    rule::comment(&format!("name: \"{}\" id: \"{}\"", attachment.network, attachment.container))
}

/// Packets to the container's own prefix are not masqueraded.
fn accept(attachment: Names<'_>, address: IpNetwork) -> Rule {
    let prefix = IpNetwork::new(address.network(), address.prefix()).unwrap_or(address);
    Rule { destination: is(prefix), comment: Some(comment(attachment)), target: Target::Accept, ..Rule::default() }
}

/// Nor are packets to a spared destination. Its comment is another one: the rule stays while the container's other attachments have the chain.
fn spare(attachment: Names<'_>, spared: IpNetwork) -> Rule {
    let comment = rule::comment(&format!("not masqueraded, {}", comment(attachment)));
    Rule { destination: is(spared), comment: Some(comment), target: Target::Accept, ..Rule::default() }
}

/// RFC 5771 and RFC 4291: 224.0.0.0/4 and ff00::/8.
fn masquerade(attachment: Names<'_>, family: Family) -> Rule {
    let multicast = if family == Family::Ip6 {
        IpNetwork::new(std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8)
    } else {
        IpNetwork::new(std::net::Ipv4Addr::new(224, 0, 0, 0).into(), 4)
    };
    let destination = multicast.ok().and_then(is_not);
    Rule { destination, comment: Some(comment(attachment)), target: Target::Masquerade, ..Rule::default() }
}

/// Packets from the container's address go to its chain.
fn jump(attachment: Names<'_>, address: IpNetwork) -> Rule {
    let source = is(IpNetwork::from(address.ip()));
    Rule { source, comment: Some(comment(attachment)), ..Rule::jump(attachment.iptables_chain()) }
}

/// Adds the reference's rules for these addresses; `false` if neither the kernel nor a program can have iptables rules.
pub(crate) fn add(nft: &mut Nft, search_path: &str, attachment: Names<'_>, of: Masquerade<'_>) -> Result<bool> {
    let chain = attachment.iptables_chain();
    let own = |family| of.addresses.iter().filter(|ip| is_for(family, ip.ip())).copied().collect::<Vec<_>>();
    let families: Vec<_> = FAMILIES.into_iter().filter(|family| !own(*family).is_empty()).collect();
    if families.iter().all(|family| variant::is_nft(search_path, *family)) {
        let chains = Chains { table: TableName::Nat, own: &chain, base: POSTROUTING };
        let is_done = at_once::change(nft, &families, chains, |table, family, has_own| {
            let seen = if has_own { observe(table, &chain)? } else { None };
            Ok(additions(attachment, Masquerade { addresses: &own(family), ..of }, family, seen))
        })?;
        if is_done {
            return Ok(true);
        }
    }
    for family in families {
        let Some(place) = variant::for_new_rules(nft, &mut Asked::default(), search_path, family, TableName::Nat)?
        else {
            return Ok(false);
        };
        place.table(nft).change(|table| {
            let own = Masquerade { addresses: &own(family), ..of };
            let edits = additions(attachment, own, family, observe(table, &chain)?);
            // Adding a rule checks its base chain. For an existing rule, check it here.
            if !edits.iter().any(|edit| matches!(edit, Edit::Append(new) if new.chain == POSTROUTING)) {
                table.expect_base(POSTROUTING)?;
            }
            Ok(edits)
        })?;
    }
    Ok(true)
}

/// A chain and the rules that jump to it.
struct Seen {
    rules: Vec<FoundRule>,
    jumps: Vec<FoundRule>,
}

fn observe(table: &mut Table<'_>, chain: &str) -> Result<Option<Seen>> {
    let Some(rules) = table.list(chain)? else { return Ok(None) };
    let jumps = table.list_jumps(POSTROUTING, chain, &rules)?;
    Ok(Some(Seen { rules, jumps }))
}

/// Adds what is missing, in the reference's order. Deletes what an earlier ADD of this attachment added for other
/// addresses.
fn additions(attachment: Names<'_>, of: Masquerade<'_>, family: Family, seen: Option<Seen>) -> Vec<Edit> {
    let addresses = of.addresses;
    let chain = attachment.iptables_chain();
    let owner = attachment.owner();
    let is_new = seen.is_none();
    let Seen { rules, jumps } = seen.unwrap_or(Seen { rules: Vec::new(), jumps: Vec::new() });
    let new = |chain: &str, rule: Rule| NewRule { chain: chain.to_owned(), rule, note: Some(attachment.comment()) };
    let has = |found: &[FoundRule], wanted: &Rule| found.iter().any(|found| found.rule.as_ref() == Some(wanted));

    let mut edits = Vec::new();
    if is_new {
        edits.push(Edit::CreateChain(chain.clone()));
    }
    let masquerade = masquerade(attachment, family);
    let masquerade_at = rules.iter().position(|found| found.rule.as_ref() == Some(&masquerade));
    // An ACCEPT rule after the MASQUERADE rule has no effect.
    let before = rules.get(..masquerade_at.unwrap_or(rules.len())).unwrap_or_default();
    let mut accepts: Vec<Rule> = Vec::new();
    let spared = of.addresses.first().into_iter().flat_map(|address| of.spared(*address));
    let own = addresses.iter().map(|address| accept(attachment, *address));
    for accept in own.chain(spared.map(|spared| spare(attachment, spared))) {
        if !has(before, &accept) && !accepts.contains(&accept) {
            accepts.push(accept);
        }
    }
    match masquerade_at {
        Some(_) => edits.extend(accepts.into_iter().map(|accept| Edit::Prepend(new(&chain, accept)))),
        None => {
            edits.extend(accepts.into_iter().map(|accept| Edit::Append(new(&chain, accept))));
            edits.push(Edit::Append(new(&chain, masquerade)));
        }
    }
    for address in addresses {
        let jump = jump(attachment, *address);
        if !has(&jumps, &jump) {
            edits.push(Edit::Append(new(POSTROUTING, jump)));
        }
    }
    let is_wanted = |rule: &Rule| addresses.iter().any(|address| jump(attachment, *address) == *rule);
    let stale = jumps
        .into_iter()
        .filter(|found| owner.owns(found.note.as_deref()) && !found.rule.as_ref().is_some_and(is_wanted));
    edits.extend(stale.map(Edit::Delete));
    edits
}

/// Removes the rules of an attachment, whether this program or the reference plugin made them. The chain stays while
/// another attachment of the container uses it. It also stays, without effect, while a rule outside POSTROUTING jumps
/// to it, which only an administrator can have added. `has_chain`: nf_tables may have the chain of [`places`], by family.
pub(crate) fn remove(
    nft: &mut Nft,
    attachment: Names<'_>,
    known: RemovalHints<'_>,
    has_chain: [bool; FAMILIES.len()],
) -> Result<()> {
    let mut outcome = Ok(());
    for (family, has_chain) in FAMILIES.into_iter().zip(has_chain) {
        let mut removed = match has_chain {
            true => take_out(&mut variant::in_nftables(nft, family, TableName::Nat), attachment, known),
            false => Ok(()),
        };
        if let Some(mut legacy) = variant::in_legacy(known.search_path, family, TableName::Nat)?
            && legacy.has_chain(&attachment.iptables_chain())?
        {
            removed = removed.and(take_out(&mut legacy, attachment, known));
        }
        outcome = outcome.and(removed);
    }
    outcome
}

/// The container's chain in each family's table of nf_tables.
pub(crate) fn places(attachment: Names<'_>) -> [Chain; FAMILIES.len()] {
    FAMILIES.map(|family| nft::Table::new(family, TableName::Nat.as_str()).chain(attachment.iptables_chain()))
}

fn take_out(table: &mut Table<'_>, attachment: Names<'_>, known: RemovalHints<'_>) -> Result<()> {
    let chain = attachment.iptables_chain();
    let Err(error) = table.change(|table| removals(table, attachment, known, false)) else { return Ok(()) };
    match observe(table, &chain)? {
        Some(seen) if is_used_elsewhere(table, &chain, &seen)? => {
            table.change(|table| removals(table, attachment, known, true))
        }
        _ => Err(error),
    }
}

fn removals(table: &mut Table<'_>, attachment: Names<'_>, known: RemovalHints<'_>, stays: bool) -> Result<Vec<Edit>> {
    let chain = attachment.iptables_chain();
    let Some(seen) = observe(table, &chain)? else { return Ok(Vec::new()) };
    let sources = unnoted_sources(&seen.jumps, attachment, known);
    let owner = attachment.owner();
    let end = if stays { End::Label(comment(attachment)) } else { End::Delete };
    Ok(without(&chain, seen, end, |jump| match &jump.note {
        Some(note) => owner.owns(Some(note)),
        None => source_of(jump).is_some_and(|source| sources.contains(&source)),
    }))
}

/// Whether rules outside POSTROUTING jump to the chain, so that it cannot be deleted.
fn is_used_elsewhere(table: &mut Table<'_>, chain: &str, seen: &Seen) -> Result<bool> {
    Ok(table.count_uses(chain)? > seen.rules.len() + seen.jumps.len())
}

/// The fate of a chain that no attachment uses any more.
enum End {
    /// Delete the chain.
    Delete,
    /// The chain cannot be deleted. Leave a rule with this comment, which has no effect: GC of the network recognises the
    /// chain by it.
    Label(String),
}

fn source_of(jump: &FoundRule) -> Option<IpNetwork> {
    jump.rule.as_ref()?.source.as_ref().map(|is| is.value)
}

/// Decides which sources of jumps without a note belong to this attachment. The chain shows that the jumps are the
/// container's, whichever program made them. Only the addresses distinguish the container's attachments: those in
/// prevResult, or else those that the container's other interfaces do not have, on the link or from the address plugin. If neither is known and there is a
/// single source, it is taken. If there are several, none is: they may belong to an attachment that is in use.
fn unnoted_sources(jumps: &[FoundRule], attachment: Names<'_>, known: RemovalHints<'_>) -> Vec<IpNetwork> {
    let mut sources: Vec<_> = jumps.iter().filter(|jump| jump.note.is_none()).filter_map(source_of).collect();
    sources.sort();
    sources.dedup();
    let (mut ours, mut unclear): (Vec<_>, Vec<_>) =
        sources.into_iter().partition(|source| known.addresses.iter().any(|ip| source.contains(*ip)));
    unclear.retain(|source| !known.is_others.is_some_and(|is_others| is_others(source.ip())));
    if unclear.is_empty() {
        return ours;
    }
    if let Some(held) = known.held.and_then(|held| held()) {
        ours.extend(unclear.into_iter().filter(|source| !held.iter().any(|ip| source.contains(*ip))));
    } else if ours.is_empty() && unclear.len() == 1 && jumps.len() == 1 {
        ours = unclear;
    } else if ours.is_empty() {
        tracing::warn!(
            ?attachment,
            ?unclear,
            "these masquerade rules name no attachment and stay: a DEL with a result, or GC, removes them"
        );
    }
    ours
}

/// Removes jumps to a chain, and the chain with the last of them. A jump without a source, which only an administrator
/// can have added, does not keep the chain.
fn without(chain: &str, seen: Seen, end: End, goes: impl Fn(&FoundRule) -> bool) -> Vec<Edit> {
    let (gone, left): (Vec<_>, Vec<_>) = seen.jumps.into_iter().partition(goes);
    let is_over = left.iter().all(|jump| source_of(jump).is_none());
    let is_changed = !gone.is_empty();
    let mut edits: Vec<_> = gone.into_iter().map(Edit::Delete).collect();
    if is_over {
        edits.extend(left.into_iter().map(Edit::Delete));
        match end {
            End::Delete => edits.push(Edit::DeleteChain(chain.to_owned())),
            End::Label(comment) => {
                tracing::warn!(
                    chain,
                    comment,
                    "a rule of another goes to this iptables chain of table nat, so the chain stays, without effect; \
                     delete that rule, then GC or another DEL removes the chain"
                );
                let label = Rule { comment: Some(comment), ..Rule::default() };
                edits.push(Edit::FlushChain(chain.to_owned()));
                edits.push(Edit::Append(NewRule { chain: chain.to_owned(), rule: label, note: None }));
            }
        }
    } else if is_changed {
        let sources: Vec<_> = left.iter().filter_map(source_of).collect();
        let idle = seen.rules.into_iter().filter(|found| is_accept_for_others(found, &sources));
        edits.extend(idle.map(Edit::Delete));
    }
    edits
}

/// Returns whether this is the ACCEPT rule of a prefix that contains none of these sources.
fn is_accept_for_others(found: &FoundRule, sources: &[IpNetwork]) -> bool {
    let Some(Rule { destination: Some(Is { value: prefix, negated: false }), comment: Some(comment), target, .. }) =
        &found.rule
    else {
        return false;
    };
    let is_ours = *target == Target::Accept && comment.starts_with("name: ");
    is_ours && !sources.iter().any(|source| prefix.contains(source.ip()))
}

/// Removes the chains of a network's containers without a valid attachment. In the chains of the others, removes the
/// rules whose notes name interfaces that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, search_path: &str, network: &str, of: &Sweep<Names<'_>>) -> Result<()> {
    let stale = Stale::new(network, of);
    let chains = of.by(Names::iptables_chain);
    let mut outcome = Ok(());
    for family in FAMILIES {
        let mut swept = sweep(&mut variant::in_nftables(nft, family, TableName::Nat), network, &stale, &chains);
        if let Some(mut legacy) = variant::in_legacy(search_path, family, TableName::Nat)? {
            swept = swept.and(sweep(&mut legacy, network, &stale, &chains));
        }
        outcome = outcome.and(swept);
    }
    outcome
}

/// A rule that jumps from POSTROUTING to a container's chain for one address.
pub(crate) struct Jump {
    pub(crate) container: Option<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) note: Option<String>,
}

/// Lists the rules that jump to the chains of containers.
pub(crate) fn list_jumps(nft: &mut Nft, search_path: &str) -> Result<Vec<FoundRule>> {
    let mut found: Vec<_> = postrouting(nft, search_path)?.into_iter().flat_map(|(_, found)| found).collect();
    found.retain(|found| found.goes_to().is_some_and(is_container_chain));
    Ok(found)
}

/// Filters the jumps to chains of a network's containers.
pub(crate) fn jumps_of<'a>(all: &'a [FoundRule], network: &str) -> impl Iterator<Item = Jump> + 'a {
    let start = format!("name: \"{network}\" id: \"");
    all.iter().filter_map(move |found| {
        let rule = found.rule.as_ref()?;
        let id = rule.comment.as_deref()?.strip_prefix(&start)?;
        // A comment without its final quotation mark was cut.
        let container = id.strip_suffix('"').map(str::to_owned);
        let address = rule.source.as_ref().map(|source| source.value.ip());
        Some(Jump { container, address, note: found.note.clone() })
    })
}

/// The rules of `POSTROUTING` in both variants, by family.
pub(crate) fn postrouting(nft: &mut Nft, search_path: &str) -> Result<Vec<(Family, Vec<FoundRule>)>> {
    let mut all = Vec::new();
    for family in FAMILIES {
        let mut found = variant::in_nftables(nft, family, TableName::Nat).list(POSTROUTING)?.unwrap_or_default();
        if let Some(mut legacy) = variant::in_legacy(search_path, family, TableName::Nat)? {
            found.extend(legacy.list(POSTROUTING)?.unwrap_or_default());
        }
        all.push((family, found));
    }
    Ok(all)
}

/// The comments and notes of the rules by which packets reach containers' chains: those of masquerade and of forwarded ports.
pub(crate) fn comments(nft: &mut Nft, search_path: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for family in FAMILIES {
        for chain in [POSTROUTING, HOSTPORT_DNAT] {
            found.extend(variant::in_nftables(nft, family, TableName::Nat).list(chain)?.unwrap_or_default());
        }
        if let Some(mut legacy) = variant::in_legacy(search_path, family, TableName::Nat)? {
            for chain in [POSTROUTING, HOSTPORT_DNAT] {
                found.extend(legacy.list(chain)?.unwrap_or_default());
            }
        }
    }
    Ok(found.into_iter().flat_map(|found| [found.comment(), found.note]).flatten().collect())
}

fn sweep(table: &mut Table<'_>, network: &str, stale: &Stale, chains: &SweptKeys<String>) -> Result<()> {
    // Chains that were processed: they stay as they are, or are deleted.
    let mut done: HashSet<String> = HashSet::new();
    loop {
        let mut looked_at = Vec::new();
        let mut is_refused = false;
        table.sweep(|table| {
            looked_at.clear();
            let names =
                table.list_chains()?.into_iter().filter(|name| is_container_chain(name) && !done.contains(name));
            let names: Vec<_> = names.collect();
            if names.is_empty() {
                return Ok(Vec::new());
            }
            let mut jumps: HashMap<String, Vec<FoundRule>> = HashMap::new();
            for found in table.list(POSTROUTING)?.unwrap_or_default() {
                if let Some(chain) = found.goes_to().map(str::to_owned) {
                    jumps.entry(chain).or_default().push(found);
                }
            }
            let mut edits = Vec::new();
            for name in names {
                let seen = Seen {
                    rules: table.list(&name)?.unwrap_or_default(),
                    jumps: jumps.remove(&name).unwrap_or_default(),
                };
                if let Some(comment) = network_comment(&seen, network).map(str::to_owned) {
                    let is_valid = !chains.has(&name);
                    let stays = is_refused && is_used_elsewhere(table, &name, &seen)?;
                    let end = if stays { End::Label(comment) } else { End::Delete };
                    edits.extend(left_over(&name, seen, stale, is_valid, end));
                }
                looked_at.push(name);
                if edits.len() >= EDITS_AT_ONCE {
                    break;
                }
            }
            is_refused = true; // if there is another look
            Ok(edits)
        })?;
        if looked_at.is_empty() {
            return Ok(());
        }
        done.extend(looked_at);
    }
}

fn left_over(chain: &str, seen: Seen, stale: &Stale, is_valid: bool, end: End) -> Vec<Edit> {
    if !is_valid {
        return without(chain, seen, end, |_| true);
    }
    let is_stale = |jump: &FoundRule| stale.has(jump.note.as_deref());
    if seen.jumps.iter().any(is_stale) { without(chain, seen, end, is_stale) } else { Vec::new() }
}

/// `CNI-` and 24 digits. The chains of other plugins have an infix.
fn is_container_chain(name: &str) -> bool {
    let digits = name.strip_prefix("CNI-").unwrap_or_default();
    digits.len() == 24 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The comment in a chain of the network that names the network.
fn network_comment<'a>(seen: &'a Seen, network: &str) -> Option<&'a str> {
    let start = rule::comment(&format!("name: \"{network}\" id: "));
    let mut comments = seen.rules.iter().chain(&seen.jumps).filter_map(|found| found.rule.as_ref()?.comment.as_deref());
    comments.find(|comment| comment.starts_with(&start))
}

/// Compares the rules with those that [`add`] makes. The reference's rules are accepted, in either variant of iptables.
pub(crate) fn check(nft: &mut Nft, search_path: &str, attachment: Names<'_>, of: Masquerade<'_>) -> Result<()> {
    let chain = attachment.iptables_chain();
    for family in FAMILIES {
        let mut own = of.addresses.iter().filter(|address| is_for(family, address.ip())).peekable();
        if own.peek().is_none() {
            continue;
        }
        let mut table = variant::in_nftables(nft, family, TableName::Nat);
        let mut seen = observe(&mut table, &chain)?;
        if seen.is_some() {
            table.expect_packets(POSTROUTING)?;
        }
        if seen.is_none()
            && let Some(mut legacy) = variant::in_legacy(search_path, family, TableName::Nat)?
        {
            seen = observe(&mut legacy, &chain)?;
        }
        for address in own {
            if let Some(sentence) = lacks(seen.as_ref(), attachment, of, *address) {
                let object = format!("masquerade of {} in iptables chain {chain}", address.ip());
                return Err(OpError::state("find", object, sentence));
            }
        }
    }
    Ok(())
}

/// The missing part of an address's masquerade, if any. Comments are ignored.
fn lacks(seen: Option<&Seen>, attachment: Names<'_>, of: Masquerade<'_>, address: IpNetwork) -> Option<&'static str> {
    let Some(Seen { rules, jumps }) = seen else { return Some("the chain was not found") };
    let has = |found: &[FoundRule], wanted: Rule| {
        let wanted = Rule { comment: None, ..wanted };
        let is_wanted = |rule: &Rule| Rule { comment: None, ..rule.clone() } == wanted;
        found.iter().any(|found| found.rule.as_ref().is_some_and(is_wanted))
    };
    let family = Family::of(address.ip());
    // Older versions of the reference jump from the whole prefix.
    let older = Rule { source: accept(attachment, address).destination, ..jump(attachment, address) };
    if !has(jumps, jump(attachment, address)) && !has(jumps, older) {
        Some("the rule in POSTROUTING was not found")
    } else if !has(rules, accept(attachment, address)) {
        Some("the ACCEPT rule for its own prefix was not found")
    } else if !of.spared(address).all(|spared| has(rules, spare(attachment, spared))) {
        Some("the ACCEPT rule for a spared destination was not found")
    } else if !has(rules, masquerade(attachment, family)) {
        Some("the MASQUERADE rule was not found")
    } else {
        None
    }
}

/// Whether [`add`] can add rules; `false` if neither the kernel nor a program can have iptables rules.
/// Errors: the chain that would have the rules receives no packets, or a privilege is missing. Errors of IPv6 alone are logged:
/// the network may not use it.
pub(crate) fn probe(nft: &mut Nft, search_path: &str) -> Result<bool> {
    let Some(place) = variant::for_new_rules(nft, &mut Asked::default(), search_path, Family::Ip, TableName::Nat)?
    else {
        return Ok(false);
    };
    place.table(nft).expect_packets(POSTROUTING)?;
    if let Err(error) = variant::in_nftables(nft, Family::Ip6, TableName::Nat).expect_packets(POSTROUTING) {
        tracing::warn!(%error, "ipMasq will fail for IPv6 addresses");
    }
    Ok(true)
}
