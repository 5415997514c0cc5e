//! What GC removes of a network, and how it finds it.

use cni_filter::iptables::rule::Is;
use cni_filter::iptables::{Edit, FoundRule, Table};
use cni_filter::{Names, Noted, OfNetwork, Stale};
use cni_spec::gc::Sweep;
use netops::error::Result;

use super::isolation::end_isolation;
use super::{BRIDGE, OWN};

/// The number of rules that GC deletes in one transaction.
const RULES_AT_ONCE: usize = 400;

/// Removes the rules of a network's attachments that GC removes. The reference's name no network, so they stay.
pub(crate) fn gc(table: &mut Table<'_>, network: &str, sweep: &Sweep<Names<'_>>) -> Result<()> {
    let (stale, of) = (Stale::new(network, sweep), OfNetwork::new(network));
    let mut is_over = false;
    while !is_over {
        // Guarded by the ruleset's generation: whether a bridge has a container left depends on what others add.
        table.change(|table| {
            let (found, mut left) = of_network(table, &of)?;
            let mut count = 0;
            let (gone, valid): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| {
                let is_gone = stale.has(found.note.as_deref()) && count < RULES_AT_ONCE;
                count += usize::from(is_gone);
                is_gone
            });
            left.extend(valid);
            is_over = count < RULES_AT_ONCE;
            let mut edits = end_isolation(table, &gone, &left, None)?;
            edits.extend(gone.into_iter().map(Edit::Delete));
            Ok(edits)
        })?;
    }
    Ok(())
}

/// The rules that name an attachment to the network, and all others.
fn of_network(table: &mut Table<'_>, network: &OfNetwork) -> Result<(Vec<FoundRule>, Vec<FoundRule>)> {
    let found = table.list(OWN)?.unwrap_or_default();
    Ok(found.into_iter().partition(|found| network.has(found.note.as_deref())))
}

/// What GC of the network would remove if no attachment were valid.
pub(crate) fn list(table: &mut Table<'_>, network: &OfNetwork) -> Result<Vec<Noted>> {
    let noted = |found: FoundRule| {
        let note = found.note.as_deref().map(|note| note.rsplit_once(BRIDGE).map_or(note, |(own, _)| own));
        let sides = found.rule.as_ref().map(|rule| [&rule.source, &rule.destination]);
        let address = sides.into_iter().flatten().flatten().find_map(Is::host);
        let object = address.map_or("firewall rules".to_owned(), |address| format!("firewall rules of {address}"));
        Noted::of(network, note, address, object)
    };
    Ok(of_network(table, network)?.0.into_iter().filter_map(noted).collect())
}
