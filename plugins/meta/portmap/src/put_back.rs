//! The attachment's rules before an ADD, and how an ADD that fails puts them back.

use cni_filter::iptables::{Before, Edit, FoundRule, Table};
use netops::error::Result;

use crate::iptables::{DNAT, remove};
use crate::pod_ports::{Forwarded, PodPorts};

/// The attachment's rules of an earlier ADD: those of its chain, and `entries`, which lead there.
pub(crate) fn of(
    table: &mut Table<'_>,
    chain: &str,
    rules: Option<&[FoundRule]>,
    entries: &[FoundRule],
) -> Result<Before> {
    let mut before = Before::default();
    if let Some(rules) = rules {
        before.keep(chain, rules, |_| true);
        // In full, as places count.
        let all = if entries.is_empty() { Vec::new() } else { table.list(DNAT)?.unwrap_or_default() };
        before.keep(DNAT, &all, |found| entries.iter().any(|entry| entry.is(found)));
    }
    Ok(before)
}

/// Removes the rules of a failed ADD, and puts those back in their places that it replaced.
pub(crate) fn put_back_chain(table: &mut Table<'_>, pod: &PodPorts<'_>, before: &Before) -> Result<Vec<Forwarded>> {
    let address = [pod.address.ip()];
    let Some(chain) = before.chains().find(|chain| *chain != DNAT) else {
        return remove(table, pod.names, &pod.known(&address));
    };
    let is_made = |place: &str, found: &FoundRule| place == chain || found.goes_to() == Some(chain);
    put_back(table, before, is_made)
}

/// Makes these rules as they were; returns the UDP ports that the deleted ones forwarded.
pub(crate) fn put_back(
    table: &mut Table<'_>,
    before: &Before,
    is_made: impl Fn(&str, &FoundRule) -> bool,
) -> Result<Vec<Forwarded>> {
    let mut forwarded = Vec::new();
    table.change(|table| {
        let edits = table.put_back(before, &is_made)?;
        forwarded = edits
            .iter()
            .filter_map(|edit| match edit {
                Edit::Delete(found) => Forwarded::of_rule(found),
                _ => None,
            })
            .collect();
        Ok(edits)
    })?;
    Ok(forwarded)
}
