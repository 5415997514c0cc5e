//! The attachment's rules before an ADD, and how an ADD that fails puts them back.

use chained::{all, failed};
use cni_filter::iptables::{Before, Edit, FoundRule, Table, TableName};
use cni_spec::{Attachment, CniError};
use ipnetwork::IpNetwork;
use netops::error::Result;
use std::cell::RefCell;
use std::rc::Rc;

use crate::accept::Accepted;
use crate::backend::with_table;
use crate::conf::{Backend, Conf};
use crate::iptables::{DNAT, remove};
use crate::pod_ports::{Forwarded, PodPorts, names};
use crate::port_holder::Replaced;
use crate::route_localnet::Enabled;
use crate::{accept, forget_flows, nftables, open, route_localnet};

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

/// Removes what ADD made for one address, and puts back what it replaced.
#[derive(Debug)]
pub(crate) struct Unmap {
    pub(crate) attachment: Attachment,
    pub(crate) conf: Conf,
    pub(crate) address: IpNetwork,
    pub(crate) replaced: Replaced,
    pub(crate) accepted: Accepted,
    pub(crate) enabled: Rc<RefCell<Enabled>>,
    pub(crate) search_path: String,
}

impl Unmap {
    fn put_back(&self) -> std::result::Result<(), CniError> {
        let Self { attachment, conf, address, replaced, accepted, search_path, .. } = self;
        let pod = PodPorts::new(attachment, conf, *address);
        let mut filter = open(search_path)?;
        let (replaced, accepted) = (replaced.borrow(), accepted.borrow());
        // Without it ADD failed before it changed anything.
        let Some(replaced) = &*replaced else { return Ok(()) };
        let forwarded = with_table(&mut filter, &pod, &mut |table, backend| match backend {
            Backend::Iptables => put_back_chain(table, &pod, replaced),
            Backend::Nftables => nftables::put_back(table, &pod, replaced),
        })?;
        if let Some(accepted) = &*accepted
            && let Some(mut table) = filter.iptables(pod.family, TableName::Filter).map_err(failed)?
        {
            accept::put_back(&mut table, pod.names, accepted).map_err(failed)?;
        }
        forget_flows(&forwarded, &mut |flow| forwarded.iter().any(|to| to.answers(flow)));
        Ok(())
    }
}

impl chained::Undo for Unmap {
    fn text(&self) -> String {
        let had_none = self.replaced.borrow().as_ref().is_some_and(Before::is_empty);
        let how = if had_none { "removed" } else { "as before" };
        format!("forwarded ports of {} {how}", self.address.ip())
    }

    fn run(&self, _sides: &chained::LazySides<'_>) -> std::result::Result<(), chained::Left> {
        let Self { attachment, enabled, search_path, .. } = self;
        let (rules, key) = (self.put_back(), names(attachment).key());
        let closed = route_localnet::undo(&enabled.borrow(), &key, search_path).map_err(failed);
        Ok(all([rules, closed])?)
    }
}
