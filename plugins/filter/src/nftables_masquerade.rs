//! Masquerade as in the reference's nftables backend: one table with a chain that has a rule for each address.

use crate::masquerade::Masquerade;
use crate::names_and_comments::{Names, Stale};
use crate::{base_chains, retry_when_changed};
use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use netops::error::Result;
use netops::kernel_probe::once;
use netops::nft::{
    BaseChain, Chain, ChainInfo, ChainType, Change, Cmp, Expr, Family, Hook, Name, Nft, Rule, Side, Table, Transaction,
    Verdict, address_in, load_address, nfproto_is, normalised,
};
use netops::{Errno, OpError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NAME: &str = "cni_plugins_masquerade";
/// A single table for both families: the kernel supports NAT in `inet` since 5.2.
static BOTH: [Table; 1] = [Table::new(Family::Inet, NAME)];
/// A table for each family, for older kernels.
static EACH: [Table; 2] = [Table::new(Family::Ip, NAME), Table::new(Family::Ip6, NAME)];

/// RFC 5771 and RFC 4291.
pub(crate) const MULTICAST: [IpNetwork; 2] = [
    IpNetwork::V4(match Ipv4Network::new_checked(Ipv4Addr::new(224, 0, 0, 0), 4) {
        Some(prefix) => prefix,
        None => panic!("a constant prefix"),
    }),
    IpNetwork::V6(match Ipv6Network::new_checked(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8) {
        Some(prefix) => prefix,
        None => panic!("a constant prefix"),
    }),
];

/// The chain with a rule for each address.
const CHECKS: Name = Name::Borrowed("masq_checks");

fn checks(table: &Table) -> Chain {
    table.chain(CHECKS)
}

fn postrouting(table: &Table) -> Chain {
    // NF_IP_PRI_NAT_SRC, nft's `srcnat`.
    let base = BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100 };
    Chain { base: Some(base), ..table.chain("postrouting") }
}

fn postrouting_rules(table: &Table) -> Vec<Vec<Expr>> {
    let multicast = MULTICAST.into_iter().filter(|prefix| sees(table, *prefix)).map(|prefix| {
        let mut rule = of_family(table, prefix);
        rule.extend(address_in(Side::Destination, Cmp::Eq, prefix));
        rule.push(Expr::Verdict(Verdict::Return));
        rule
    });
    multicast.chain([vec![Expr::Verdict(Verdict::Goto(CHECKS))]]).collect()
}

/// The expressions of `ip saddr 10.1.0.5 ip daddr != 10.1.0.0/24 masquerade`.
fn masquerade(table: &Table, address: IpNetwork) -> Vec<Expr> {
    let mut rule = of_family(table, address);
    rule.extend(address_in(Side::Source, Cmp::Eq, address.ip().into()));
    rule.extend(address_in(Side::Destination, Cmp::Neq, address));
    rule.push(Expr::Masquerade);
    rule
}

/// The rules of an address, in order: `ip saddr 10.1.0.5 ip daddr 10.0.0.0/8 return` for each spared destination, then [`masquerade`].
fn rules_of(table: &Table, of: Masquerade<'_>, address: IpNetwork) -> Vec<Vec<Expr>> {
    let spare = |spared| {
        let mut rule = of_family(table, address);
        rule.extend(address_in(Side::Source, Cmp::Eq, address.ip().into()));
        rule.extend(address_in(Side::Destination, Cmp::Eq, spared));
        rule.push(Expr::Verdict(Verdict::Return));
        rule
    };
    of.spared(address).map(spare).chain([masquerade(table, address)]).collect()
}

/// The family match that must precede an address match in an `inet` table.
fn of_family(table: &Table, address: IpNetwork) -> Vec<Expr> {
    if table.family == Family::Inet { nfproto_is(address.ip()).to_vec() } else { Vec::new() }
}

fn sees(table: &Table, address: IpNetwork) -> bool {
    match table.family {
        Family::Ip => address.is_ipv4(),
        Family::Ip6 => address.is_ipv6(),
        Family::Inet | Family::Netdev | Family::Bridge => true,
    }
}

/// Masquerades packets from these addresses, unless they are sent to their own prefix or to multicast.
///
/// Replaces the attachment's earlier rules.
pub(crate) fn add(nft: &mut Nft, attachment: Names<'_>, of: Masquerade<'_>) -> Result<()> {
    let tables = tables_in_use(nft)?;
    match add_to(nft, tables, attachment, of) {
        Err(error) if *tables == BOTH && lacks_inet_nat(&error) => add_to(nft, &EACH, attachment, of),
        done => done,
    }
}

/// The tables that earlier ADDs used; if there are none, those that a new setup uses.
fn tables_in_use(nft: &mut Nft) -> Result<&'static [Table]> {
    if nft.find_chain(&postrouting(&BOTH[0]))?.is_some() {
        return Ok(&BOTH);
    }
    for table in &EACH {
        if nft.find_chain(&postrouting(table))?.is_some() {
            return Ok(&EACH);
        }
    }
    Ok(&BOTH)
}

/// Whether the kernel (before 5.2) has no NAT chains in `inet`, or no `inet` at all.
fn lacks_inet_nat(error: &OpError) -> bool {
    let is_absent = matches!(error.os_errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT));
    is_absent && matches!(&*error.request, "NFT_MSG_NEWTABLE" | "NFT_MSG_NEWCHAIN")
}

fn add_to(nft: &mut Nft, tables: &[Table], attachment: Names<'_>, of: Masquerade<'_>) -> Result<()> {
    let owner = attachment.owner();
    retry_when_changed::retry(|| {
        let generation = nft.generation()?;
        let mut changes = Vec::new();
        let mut is_set_up = true;
        for table in tables {
            let addresses: Vec<_> = of.addresses.iter().copied().filter(|address| sees(table, *address)).collect();
            if !addresses.is_empty() {
                base_chains::find(nft, &postrouting(table))?;
                base_chains::wake(nft, table)?;
            }
            let seen = Seen {
                postrouting: nft.list_rules(&postrouting(table))?,
                stale: rules_with(nft, table, |comment| owner.owns(Some(comment)))?,
            };
            is_set_up &= addresses.is_empty() || stand_in_order(&seen.postrouting, &postrouting_rules(table));
            changes.extend(plan(table, attachment, Masquerade { addresses: &addresses, ..of }, seen));
        }
        let transaction = Transaction::new(changes);
        // Two processes that create the table at the same time would both write its rules.
        nft.commit(&if is_set_up { transaction } else { transaction.if_still(generation) })
    })
}

/// The part of the ruleset that [`plan`] depends on.
struct Seen {
    postrouting: Vec<Rule>,
    /// The attachment's existing rules.
    stale: Vec<Rule>,
}

fn plan(table: &Table, attachment: Names<'_>, of: Masquerade<'_>, seen: Seen) -> Vec<Change> {
    let mut changes = Vec::new();
    if !of.addresses.is_empty() {
        // The reference flushes `postrouting` each time. Here, rules that an administrator added keep their place.
        let mended = put_in_order(&postrouting(table), &seen.postrouting, &postrouting_rules(table));
        if !mended.is_empty() {
            changes.push(Change::EnsureTable(table.clone()));
            changes.extend([checks(table), postrouting(table)].map(Change::EnsureChain));
            changes.extend(mended);
        }
    }
    let wanted: Vec<_> = of.addresses.iter().flat_map(|address| rules_of(table, of, *address)).collect();
    let found: Vec<_> = seen.stale.iter().map(|rule| normalised(&rule.exprs)).collect();
    if found == wanted {
        return changes;
    }
    let comment = attachment.comment();
    changes.extend(seen.stale.into_iter().map(Change::DeleteRule));
    let rule = |exprs| Change::AppendRule(checks(table).rule(exprs).comment(comment.clone()));
    changes.extend(wanted.into_iter().map(rule));
    changes
}

fn rules_with(nft: &mut Nft, table: &Table, is_meant: impl Fn(&str) -> bool) -> Result<Vec<Rule>> {
    nft.list_rules_where(&checks(table), |comment| comment.is_some_and(&is_meant))
}

/// Lists the rules of all attachments, each by comment and address.
pub(crate) fn list(nft: &mut Nft) -> Result<Vec<(String, Option<IpAddr>)>> {
    let mut found = Vec::new();
    for table in BOTH.iter().chain(&EACH) {
        let rules = rules_with(nft, table, |_| true)?;
        found.extend(rules.into_iter().filter_map(|rule| Some((rule.comment?, source(&rule.exprs)))));
    }
    // An address has a rule for each spared destination, too.
    found.dedup();
    Ok(found)
}

/// The address that a rule masquerades.
fn source(exprs: &[Expr]) -> Option<IpAddr> {
    exprs.windows(2).find_map(|pair| match pair {
        [load, Expr::Cmp(Cmp::Eq, _, value)] if *load == load_address(Side::Source, Ipv4Addr::UNSPECIFIED.into()) => {
            <[u8; 4]>::try_from(&**value).ok().map(IpAddr::from)
        }
        [load, Expr::Cmp(Cmp::Eq, _, value)] if *load == load_address(Side::Source, Ipv6Addr::UNSPECIFIED.into()) => {
            <[u8; 16]>::try_from(&**value).ok().map(IpAddr::from)
        }
        _ => None,
    })
}

/// Removes an attachment's rules. The table stays, as in the reference.
pub(crate) fn remove(nft: &mut Nft, attachment: Names<'_>, places: &Places) -> Result<()> {
    let owner = attachment.owner();
    delete(nft, places, |comment| owner.owns(Some(comment)))
}

/// Removes the rules of a network's attachments that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, stale: &Stale) -> Result<()> {
    let places = Places::of(nft.find_chains(places().each_ref())?);
    delete(nft, &places, |comment| stale.has(Some(comment)))
}

fn tables() -> [&'static Table; 3] {
    let [both] = &BOTH;
    let [ipv4, ipv6] = &EACH;
    [both, ipv4, ipv6]
}

/// The chains that may have rules of attachments.
pub(crate) fn places() -> [Chain; 3] {
    tables().map(checks)
}

/// The tables whose chain of [`places`] has rules.
pub(crate) struct Places(Vec<&'static Table>);

impl Places {
    /// `found`: the chains of [`places`].
    pub(crate) fn of(found: [Option<ChainInfo>; 3]) -> Self {
        // A single use is the `goto` to it, so it has no rules. That is usual if another backend is in use.
        let has_rules = |found: Option<ChainInfo>| found.is_some_and(|chain| chain.uses > 1);
        Self(tables().into_iter().zip(found).filter_map(|(table, found)| has_rules(found).then_some(table)).collect())
    }
}

fn delete(nft: &mut Nft, places: &Places, is_to_go: impl Fn(&str) -> bool) -> Result<()> {
    for table in &places.0 {
        retry_when_changed::retry(|| {
            let rules = rules_with(nft, table, &is_to_go)?;
            nft.commit_in_parts(Transaction::new(rules.into_iter().map(Change::DeleteRule).collect()))
        })?;
    }
    Ok(())
}

/// Compares the ruleset with the rules that [`add`] makes.
pub(crate) fn check(nft: &mut Nft, attachment: Names<'_>, of: Masquerade<'_>) -> Result<()> {
    let owner = attachment.owner();
    let tables = tables_in_use(nft)?;
    for table in tables {
        let found = rules_with(nft, table, |comment| owner.owns(Some(comment)))?;
        let found: Vec<_> = found.iter().map(|rule| normalised(&rule.exprs)).collect();
        let addresses: Vec<_> = of.addresses.iter().filter(|address| sees(table, **address)).collect();
        let is_there = |address: IpNetwork| rules_of(table, of, address).iter().all(|rule| found.contains(rule));
        if let Some(address) = addresses.iter().find(|address| !is_there(***address)) {
            let object = format!("masquerade of {address} in nft chain {table} {CHECKS}");
            return Err(OpError::state("find", object, "no rule of this attachment does it"));
        }
        let chain = postrouting(table);
        if !addresses.is_empty() {
            base_chains::find(nft, &chain)?;
            base_chains::expect_awake(nft, table)?;
        }
        if !addresses.is_empty() && !stand_in_order(&nft.list_rules(&chain)?, &postrouting_rules(table)) {
            let object = format!("nft chain {table} {}", chain.name);
            return Err(OpError::state("find", object, "its rules that lead to masquerade are not what they were"));
        }
    }
    Ok(())
}

/// Returns whether this kernel supports masquerade.
pub(crate) fn probe(nft: &mut Nft) -> Result<()> {
    let tables = tables_in_use(nft)?;
    if base_chains::find(nft, &postrouting(&tables[0]))?.is_some() {
        return Ok(()); // The table exists, so it has worked before.
    }
    once("masquerade", || match nft.try_out(&trial(&BOTH)) {
        Err(error) if lacks_inet_nat(&error) => nft.try_out(&trial(&EACH)),
        done => done,
    })
}

fn trial(tables: &[Table]) -> Transaction {
    let no_attachment = Names { network: "", container: "", ifname: "" };
    let changes = tables.iter().flat_map(|table| {
        let addresses: Vec<_> = MULTICAST.into_iter().filter(|address| sees(table, *address)).collect();
        plan(table, no_attachment, (&addresses).into(), Seen { postrouting: Vec::new(), stale: Vec::new() })
    });
    Transaction::new(changes.collect())
}

/// Whether the chain has these rules, each once and in this order; other rules may be between them.
pub(crate) fn stand_in_order(found: &[Rule], wanted: &[Vec<Expr>]) -> bool {
    found.iter().map(|rule| normalised(&rule.exprs)).filter(|rule| wanted.contains(rule)).eq(wanted.iter().cloned())
}

/// The changes that put these rules into the chain in this order. Other rules stay. No changes if the rules are right
/// already.
pub(crate) fn put_in_order(chain: &Chain, found: &[Rule], wanted: &[Vec<Expr>]) -> Vec<Change> {
    if stand_in_order(found, wanted) {
        return Vec::new();
    }
    let ours = found.iter().filter(|rule| wanted.contains(&normalised(&rule.exprs)));
    let deleted = ours.cloned().map(Change::DeleteRule);
    deleted.chain(wanted.iter().cloned().map(|exprs| Change::AppendRule(chain.rule(exprs)))).collect()
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    const POD: Names<'_> = Names { network: "office", container: "c1", ifname: "eth0" };

    /// The result on a kernel before 5.2.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace of the test's own, on a thread that ends there")]
    fn without_nat_in_inet_each_family_has_a_table() {
        let test = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut nft = Nft::open("the host").unwrap();
            let addresses = ["10.1.0.5/24".parse().unwrap(), "fd00::5/64".parse().unwrap()];
            add_to(&mut nft, &EACH, POD, (&addresses).into()).unwrap();
            assert_eq!(tables_in_use(&mut nft).unwrap(), &EACH);
            check(&mut nft, POD, (&addresses).into()).unwrap();
            add(&mut nft, POD, (&addresses[..1]).into()).unwrap(); // Uses the tables that the other rules are in.
            check(&mut nft, POD, (&addresses[..1]).into()).unwrap();
            check(&mut nft, POD, (&addresses).into()).unwrap_err();
            assert_eq!(nft.list_rules(&checks(&EACH[0])).unwrap().len(), 1);
            assert_eq!(nft.list_rules(&postrouting(&EACH[1])).unwrap().len(), 2);
            let found = nft.find_chains(places().each_ref()).unwrap();
            remove(&mut nft, POD, &Places::of(found)).unwrap();
            assert_eq!(nft.list_rules(&checks(&EACH[0])).unwrap(), []);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn only_a_missing_kernel_feature_leads_to_other_tables() {
        let refused = |errno, request: &str| OpError::errno("create", "it", errno).request(request);
        assert!(lacks_inet_nat(&refused(Errno::ENOENT, "NFT_MSG_NEWCHAIN")));
        assert!(lacks_inet_nat(&refused(Errno::EOPNOTSUPP, "NFT_MSG_NEWTABLE")));
        assert!(!lacks_inet_nat(&refused(Errno::ENOENT, "NFT_MSG_DELRULE")));
        assert!(!lacks_inet_nat(&refused(Errno::EPERM, "NFT_MSG_NEWTABLE")));
    }
}
