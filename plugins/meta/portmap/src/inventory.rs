//! The rules that GC would remove if no attachment were valid.

use std::collections::BTreeSet;

use chained::failed;
use cni_filter::iptables::rule::Target;
use cni_filter::iptables::{FoundRule, Table};
use cni_filter::{Noted, OfNetwork};
use cni_spec::{Attachment, CniError, NetworkName};

use crate::conf::Backend;
use crate::iptables::{DNAT, Search, Traced, chain_names};
use crate::pod_ports::{names, target};
use crate::{accept, each, nftables};

/// What both backends and both variants of iptables have of the network. Changes nothing. The key of what says no more than
/// its chain is one of [`words`].
///
/// # Errors
/// The refusal of the kernel or iptables.
pub fn inventory(network: &NetworkName, search_path: &str) -> Result<Vec<Noted>, CniError> {
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
#[must_use]
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
