//! What the reference plugins leave in nf_tables under their own names, found and removed.

use std::net::IpAddr;

use netops::error::Result;
use netops::nft::{Chain, Change, Family, Nft, Rule, Table, Transaction};

use crate::iptables;
use crate::owner::{Attachment, Stale};
use crate::race;

const MASQUERADE: Table = Table::new(Family::Inet, "cni_plugins_masquerade");
const BRIDGE_NAT: Table = Table::new(Family::Bridge, "nat");
/// `NFT_NAME_MAXLEN` less the final NUL: no chain has a longer name.
const NAME_MAX: usize = 255;

/// Removes the masquerade rules of an attachment. The table stays, as it does with the reference.
pub(crate) fn remove_masquerade(nft: &mut Nft, attachment: Attachment<'_>) -> Result<()> {
    let owner = attachment.owner();
    delete_rules(nft, &MASQUERADE.chain("masq_checks"), |rule| owner.owns(rule.comment.as_deref()))
}

/// Removes the masquerade rules of a network's attachments that are no longer valid.
pub(crate) fn gc_masquerade(nft: &mut Nft, stale: &Stale) -> Result<()> {
    delete_rules(nft, &MASQUERADE.chain("masq_checks"), |rule| stale.has(rule.comment.as_deref()))
}

/// Lists the masquerade rules of all attachments: comment and address.
pub(crate) fn list_masquerade(nft: &mut Nft) -> Result<Vec<(Option<String>, Option<IpAddr>)>> {
    let rules = nft.list_rules(&MASQUERADE.chain("masq_checks"))?;
    let source = |rule: &Rule| iptables::decoded(rule)?.source.map(|source| source.value.ip());
    Ok(rules.iter().map(|rule| (rule.comment.clone(), source(rule))).collect())
}

fn delete_rules(nft: &mut Nft, chain: &Chain, is_to_go: impl Fn(&Rule) -> bool) -> Result<()> {
    if nft.find_chain(chain)?.is_none() {
        return Ok(());
    }
    race::retry(|| {
        let rules = nft.list_rules(chain)?.into_iter().filter(&is_to_go);
        nft.commit_in_parts(Transaction::new(rules.map(Change::DeleteRule).collect()))
    })
}

/// Removes the spoof rules of an attachment: the jump by its comment, and both chains.
///
/// Their names and comments say container and ifname but no network, so GC of one network must leave them.
pub(crate) fn remove_spoof(nft: &mut Nft, attachment: Attachment<'_>) -> Result<()> {
    if nft.find_table(&BRIDGE_NAT)?.is_none() {
        return Ok(());
    }
    let id = format!("{}-{}", attachment.container, attachment.ifname);
    let comment = format!("macspoofchk-{id}");
    let iface = format!("cni-br-iface-{id}");
    let chains = [iface.clone(), iface + "-mac"];
    race::retry(|| {
        let rules = nft.list_rules(&BRIDGE_NAT.chain("PREROUTING"))?.into_iter();
        let jumps = rules.filter(|rule| rule.comment.as_deref() == Some(&comment));
        let mut changes: Vec<_> = jumps.map(Change::DeleteRule).collect();
        // The first jumps to the second, so it is emptied first.
        for name in chains.iter().filter(|name| name.len() <= NAME_MAX) {
            let chain = BRIDGE_NAT.chain(name.clone());
            if nft.find_chain(&chain)?.is_some() {
                changes.extend([Change::FlushChain(chain.clone()), Change::DeleteChain(chain)]);
            }
        }
        nft.commit(&Transaction::new(changes))
    })
}
