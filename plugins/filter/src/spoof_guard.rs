//! MAC spoof guard as in the reference: a rule for the port, and two chains for the attachment.
//!
//! Chains and comments contain container and interface, but no network. So the port decides whether a guard is still
//! needed: the host end of a veth exists as long as the container can send.

use std::collections::{BTreeSet, HashSet};

use netops::error::Result;
use netops::kernel_probe::once;
use netops::nft::{
    Base, BaseChain, Chain, ChainInfo, ChainType, Change, Cmp, Expr, Family, Hook, Meta, Nft, Register, Rule, Table,
    Transaction, Verdict,
};
use netops::{Kernel, OpError, link};

use crate::names_and_comments::{Names, SpoofNames};
use crate::{base_chains, retry_when_changed};

const TABLE: Table = Table::new(Family::Bridge, "nat");

/// A hardware address.
pub type Mac = [u8; 6];

/// The chain where all guards begin.
fn prerouting() -> Chain {
    // NF_BR_PRI_NAT_DST_BRIDGED, nft's `dstnat` of this family; ebtables has its PREROUTING of table nat there, too.
    let base = BaseChain { kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 };
    Chain { base: Some(base), ..TABLE.chain("PREROUTING") }
}

/// The objects of one attachment's guard.
struct Guard {
    comment: String,
    iface: Chain,
    mac: Chain,
}

impl Guard {
    fn of(attachment: Names<'_>) -> Self {
        Self::named(attachment.spoof_names())
    }

    /// The guard that the reference, or an earlier version, may have made under names that other attachments share.
    fn ambiguous(attachment: Names<'_>) -> Option<Self> {
        attachment.ambiguous_spoof_names().map(Self::named)
    }

    fn named(SpoofNames { comment, iface, mac }: SpoofNames) -> Self {
        Self { comment, iface: TABLE.chain(iface), mac: TABLE.chain(mac) }
    }

    fn is_own(&self, rule: &Rule) -> bool {
        rule.comment.as_ref() == Some(&self.comment)
    }

    fn jump_rule(&self, host_veth: &str) -> Vec<Expr> {
        let compare = Expr::Cmp(Cmp::Eq, Register::R1, padded(host_veth));
        vec![Expr::Meta(Meta::IifName, Register::R1), compare, Expr::Verdict(Verdict::Jump(self.iface.name.clone()))]
    }

    fn iface_rules(&self) -> Vec<Vec<Expr>> {
        vec![vec![Expr::Verdict(Verdict::Jump(self.mac.name.clone()))]]
    }

    /// The attachment's rules in `prerouting`.
    fn jumps(&self, nft: &mut Nft) -> Result<Vec<Rule>> {
        let is_own = |comment: Option<&str>| comment == Some(&*self.comment);
        // A rule that was added by hand may have no comment; it would keep the chain from being deleted.
        let mut rules = nft.list_rules_where(&prerouting(), |comment| comment.is_none() || is_own(comment))?;
        rules.retain(|rule| self.is_own(rule) || rule.goes_to() == Some(&*self.iface.name));
        Ok(rules)
    }

    /// The first chain jumps to the second, so it is flushed first.
    fn chains(&self) -> [&Chain; 2] {
        [&self.iface, &self.mac]
    }
}

fn mac_rules(mac: Mac) -> Vec<Vec<Expr>> {
    // The source address in an Ethernet header.
    let load = Expr::Payload { base: Base::Link, offset: 6, length: 6, to: Register::R1 };
    let is_own = vec![load, Expr::Cmp(Cmp::Eq, Register::R1, mac.to_vec()), Expr::Verdict(Verdict::Return)];
    vec![is_own, vec![Expr::Verdict(Verdict::Drop)]]
}

/// An interface name in the form that `meta iifname` loads (`IFNAMSIZ` bytes).
pub(crate) fn padded(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// The port that a rule matches.
fn port_of(rule: &Rule) -> Option<String> {
    let mut exprs = rule.exprs.iter().skip_while(|expr| !matches!(expr, Expr::Meta(Meta::IifName, _)));
    match (exprs.next(), exprs.next()) {
        (Some(_), Some(Expr::Cmp(Cmp::Eq, _, name))) => {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8(name.to_vec()).ok()
        }
        _ => None,
    }
}

/// Whether a rule's port still exists, so that it may send.
fn has_port(host: &Kernel, rule: &Rule) -> Result<bool> {
    match port_of(rule) {
        Some(name) => Ok(link::find(host, &name)?.is_some()),
        None => Ok(false),
    }
}

/// Drops frames that enter the bridge by `host_veth` unless their source address is `mac`.
///
/// Replaces what an earlier attempt of the attachment left. If an earlier port still exists, its rule stays; that port
/// then cannot send at all.
pub(crate) fn add(nft: &mut Nft, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
    let guard = Guard::of(attachment);
    retry_when_changed::retry(|| {
        let mut changes = Vec::new();
        let is_first = base_chains::find(nft, &prerouting())?.is_none();
        base_chains::wake(nft, &TABLE)?;
        if is_first {
            changes.extend([Change::EnsureTable(TABLE), Change::EnsureChain(prerouting())]);
        }
        // No rule can jump to a chain that does not exist, so the rules need not be searched.
        if nft.find_chain(&guard.iface)?.is_some() {
            let host = Kernel::host()?;
            for jump in guard.jumps(nft)? {
                if port_of(&jump).as_deref() == Some(host_veth) || !has_port(&host, &jump)? {
                    changes.push(Change::DeleteRule(jump));
                }
            }
        }
        if let Some(ambiguous) = Guard::ambiguous(attachment)
            && nft.find_chain(&ambiguous.iface)?.is_some()
        {
            // The rule belongs to another attachment with the same names, and matches another port.
            let mut jumps = ambiguous.jumps(nft)?;
            jumps.retain(|rule| ambiguous.is_own(rule) && port_of(rule).as_deref() == Some(host_veth));
            changes.extend(jumps.into_iter().map(Change::DeleteRule));
        }
        changes.extend(guard.chains().map(|chain| Change::EnsureChain(chain.clone())));
        changes.extend(guard.chains().map(|chain| Change::FlushChain(chain.clone())));
        let mut append = |chain: &Chain, rules: Vec<Vec<Expr>>| {
            let rules = rules.into_iter().map(|exprs| chain.rule(exprs).comment(guard.comment.clone()));
            changes.extend(rules.map(Change::AppendRule));
        };
        append(&prerouting(), vec![guard.jump_rule(host_veth)]);
        append(&guard.iface, guard.iface_rules());
        append(&guard.mac, mac_rules(mac));
        nft.commit(&Transaction::new(changes))
    })
}

/// Removes an attachment's guard if its port is gone: another network's attachment may have the same names.
pub(crate) fn remove(nft: &mut Nft, attachment: Names<'_>) -> Result<()> {
    let guard = Guard::of(attachment);
    retry_when_changed::retry(|| {
        let chains = Chains::find(nft, &guard.iface, &guard.mac)?;
        if chains.is_absent() {
            return Ok(());
        }
        let (host, jumps) = (Kernel::host()?, guard.jumps(nft)?);
        nft.commit(&Transaction::new(removal(&host, jumps, chains)?))
    })?;
    let Some(ambiguous) = Guard::ambiguous(attachment) else { return Ok(()) };
    retry_when_changed::retry(|| {
        let chains = Chains::find(nft, &ambiguous.iface, &ambiguous.mac)?;
        if chains.is_absent() {
            return Ok(());
        }
        let (host, mut jumps) = (Kernel::host()?, ambiguous.jumps(nft)?);
        jumps.retain(|rule| ambiguous.is_own(rule));
        if jumps.is_empty() {
            return Ok(()); // The chains belong to other guards.
        }
        nft.commit(&Transaction::new(removal(&host, jumps, chains)?))
    })
}

/// A guard's chains in the kernel, with their rules and the number of jumps to them.
struct Chains {
    iface: Option<FoundChain>,
    mac: Option<FoundChain>,
}

struct FoundChain {
    chain: Chain,
    rules: Vec<Rule>,
    /// The number of rules elsewhere that jump here.
    jumps: usize,
}

impl Chains {
    fn find(nft: &mut Nft, iface: &Chain, mac: &Chain) -> Result<Self> {
        let [found_iface, found_mac] = nft.find_chains([iface, mac])?;
        let mut with_rules = |chain: &Chain, found: Option<ChainInfo>| -> Result<Option<FoundChain>> {
            let Some(ChainInfo { uses, .. }) = found else { return Ok(None) };
            let rules = nft.list_rules(chain)?;
            let jumps = usize::try_from(uses).unwrap_or(usize::MAX).saturating_sub(rules.len());
            Ok(Some(FoundChain { chain: chain.clone(), rules, jumps }))
        };
        Ok(Self { iface: with_rules(iface, found_iface)?, mac: with_rules(mac, found_mac)? })
    }

    fn is_absent(&self) -> bool {
        self.iface.is_none() && self.mac.is_none()
    }

    /// The changes that remove the chains when the rules `gone` are deleted. A chain that other rules jump to stays
    /// unchanged: in the reference, two guards can share chains, and the other guard's port may still send.
    fn removal(self, gone: &[Rule]) -> Vec<Change> {
        let mut free: Vec<FoundChain> = Vec::new();
        for found in [self.iface, self.mac].into_iter().flatten() {
            let to_it = |rule: &&Rule| rule.goes_to() == Some(&*found.chain.name);
            let removed = gone.iter().chain(free.iter().flat_map(|free| &free.rules)).filter(to_it).count();
            if found.jumps > removed {
                tracing::warn!("nft chain {TABLE} {} stays: rules of others go there", found.chain.name);
            } else {
                free.push(found);
            }
        }
        let flushes = free.iter().map(|found| Change::FlushChain(found.chain.clone()));
        let deletions = free.iter().map(|found| Change::DeleteChain(found.chain.clone()));
        flushes.chain(deletions).collect()
    }
}

/// The changes that remove the jumps whose ports are gone, and the chains if no other jump is left.
fn removal(host: &Kernel, jumps: Vec<Rule>, chains: Chains) -> Result<Vec<Change>> {
    let (mut gone, mut is_in_use) = (Vec::new(), false);
    for jump in jumps {
        if has_port(host, &jump)? {
            tracing::debug!(rule = %jump, "the guard stays as long as its port");
            is_in_use = true;
        } else {
            gone.push(jump);
        }
    }
    let of_chains = if is_in_use { Vec::new() } else { chains.removal(&gone) };
    Ok(gone.into_iter().map(Change::DeleteRule).chain(of_chains).collect())
}

/// Removes all guards whose ports are gone, of any network, except those of valid attachments. They guard nothing any
/// more.
pub(crate) fn gc(nft: &mut Nft, valid: &[Names<'_>]) -> Result<()> {
    if nft.find_chain(&prerouting())?.is_none_or(|chain| chain.uses == 0) {
        return Ok(());
    }
    let names =
        valid.iter().flat_map(|attachment| [Some(attachment.spoof_names()), attachment.ambiguous_spoof_names()]);
    let valid: HashSet<String> = names.flatten().map(|names| names.iface).collect();
    let host = Kernel::host()?;
    retry_when_changed::retry(|| {
        let jumps = nft.list_rules_where(&prerouting(), |comment| comment.is_some_and(SpoofNames::is_comment))?;
        let mut names: BTreeSet<_> = jumps.iter().filter_map(|rule| rule.goes_to().map(str::to_owned)).collect();
        names.retain(|name| SpoofNames::is_iface(name) && !valid.contains(name));
        for name in names {
            let jumps = jumps.iter().filter(|rule| rule.goes_to() == Some(&name)).cloned().collect();
            let mac = TABLE.chain(SpoofNames::mac_of(&name));
            let chains = Chains::find(nft, &TABLE.chain(name), &mac)?;
            nft.commit(&Transaction::new(removal(&host, jumps, chains)?))?;
        }
        Ok(())
    })
}

/// The container and interface of a guard whose port is gone, and that port.
#[derive(Debug, Clone)]
pub(crate) struct Idle {
    pub(crate) container: String,
    pub(crate) ifname: String,
    pub(crate) port: Option<String>,
}

/// Lists the guards whose ports are gone, which [`gc`] would remove. Guards with a hashed ID do not name their
/// container, so they are left out.
pub(crate) fn list_idle(nft: &mut Nft) -> Result<Vec<Idle>> {
    if nft.find_chain(&prerouting())?.is_none_or(|chain| chain.uses == 0) {
        return Ok(Vec::new());
    }
    let host = Kernel::host()?;
    let mut idle = Vec::new();
    for rule in nft.list_rules_where(&prerouting(), |comment| comment.is_some_and(SpoofNames::is_comment))? {
        let owner = rule.comment.as_deref().and_then(SpoofNames::owner_of);
        if let Some((container, ifname)) = owner
            && rule.goes_to().is_some_and(SpoofNames::is_iface)
            && !has_port(&host, &rule)?
        {
            let (container, ifname) = (container.to_owned(), ifname.to_owned());
            idle.push(Idle { container, ifname, port: port_of(&rule) });
        }
    }
    Ok(idle)
}

/// Compares the ruleset with the rules that [`add`] makes.
pub(crate) fn check(nft: &mut Nft, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
    base_chains::find(nft, &prerouting())?;
    base_chains::expect_awake(nft, &TABLE)?;
    let checked = check_guard(nft, &Guard::of(attachment), host_veth, mac);
    if let (Err(_), Some(ambiguous)) = (&checked, Guard::ambiguous(attachment))
        && check_guard(nft, &ambiguous, host_veth, mac).is_ok()
    {
        return Ok(());
    }
    checked
}

fn check_guard(nft: &mut Nft, guard: &Guard, host_veth: &str, mac: Mac) -> Result<()> {
    let wanted = guard.jump_rule(host_veth);
    if !guard.jumps(nft)?.iter().any(|rule| rule.exprs == wanted) {
        let object = format!("spoof guard of {host_veth} in nft chain {TABLE} {}", prerouting().name);
        return Err(OpError::state("find", object, "no rule of this attachment leads there"));
    }
    for (chain, wanted) in [(&guard.iface, guard.iface_rules()), (&guard.mac, mac_rules(mac))] {
        let found: Vec<Vec<Expr>> = nft.list_rules(chain)?.into_iter().map(|rule| rule.exprs).collect();
        if found == wanted {
            continue;
        }
        let object = format!("nft chain {TABLE} {}", chain.name);
        return Err(match allowed(&found) {
            Some(allowed) => OpError::state("use", object, other_address(allowed, mac)),
            None => OpError::state("find", object, "its rules are not what they were"),
        });
    }
    Ok(())
}

/// The address that rules of [`mac_rules`] let pass.
fn allowed(found: &[Vec<Expr>]) -> Option<Mac> {
    let addresses = found.iter().flatten().filter_map(|expr| match expr {
        Expr::Cmp(Cmp::Eq, _, bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    addresses.into_iter().find(|address| mac_rules(*address) == found)
}

fn other_address(allowed: Mac, mac: Mac) -> String {
    let [allowed, mac] = [allowed, mac].map(netops::link::Mac);
    format!(
        "it lets pass what comes from {allowed}, and the container's interface has {mac}, so all that it sends is dropped: ask \
         for the address by bridge's capability mac, or by args.cni.mac, not by plugin tuning, which changes it later"
    )
}

/// Returns whether this kernel supports the guard.
pub(crate) fn probe(nft: &mut Nft) -> Result<()> {
    if base_chains::find(nft, &prerouting())?.is_some() {
        return Ok(()); // The chain exists, so it has worked before.
    }
    let guard = Guard::of(Names { network: "", container: "trial", ifname: "" });
    let mut changes = vec![Change::EnsureTable(TABLE), Change::EnsureChain(prerouting())];
    changes.extend(guard.chains().map(|chain| Change::EnsureChain(chain.clone())));
    changes.push(Change::AppendRule(prerouting().rule(guard.jump_rule("trial"))));
    changes.extend(mac_rules([0; 6]).into_iter().map(|exprs| Change::AppendRule(guard.mac.rule(exprs))));
    once("spoof-guard", || nft.try_out(&Transaction::new(changes)))
}
