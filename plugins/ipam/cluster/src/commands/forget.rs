//! `forget`: frees a dead node's runs, after the time in which it may still give their addresses.

use std::time::Duration;

use cni_spec::{CniError, Code};
use serde_json::{Value, json};

use super::{edit, probe, records, wait};
use crate::protocol::{self, CLAIMS, Draft, Key, RUNS, Record, Records, Write};
use crate::store::{AnyStore, Store, Written};
use crate::this_node;
use cluster_keys::Conf;

/// The words after the node's name.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Options {
    /// The machine is off: there is no wait.
    pub(super) is_fenced: bool,
    /// The node may live.
    pub(super) is_forced: bool,
}

/// The network whose node is forgotten.
pub(super) struct Place<'a> {
    pub(super) conf: &'a Conf,
    pub(super) store: &'a AnyStore,
    pub(super) object: &'a Value,
}

pub(super) fn forget(place: &Place<'_>, name: &str, options: Options) -> Result<(String, Value), CniError> {
    let store = place.store;
    let before = records(store)?;
    let freed = before.runs_of(name).count();
    let node_key = Key::Node(name.to_owned());
    if !options.is_forced && before.nodes.get(name).is_none_or(|node| !node.leaving) {
        refuse_living(place, &before, name)?;
    }
    edit(store, std::slice::from_ref(&node_key), |draft| {
        // A write of a node that is gone may have come late.
        let is_gone = draft.node(name).is_none() && freed > 0;
        match protocol::begin_to_forget(draft.node(name)) {
            Some(node) => draft.set(&node_key, Some(Record::Node(node))),
            None if is_gone => {}
            None => return Err(unknown(place.conf, name, &before)),
        }
        Ok(())
    })?;
    let read = || Ok::<_, CniError>(wait(store.read(std::slice::from_ref(&node_key)))??.remove(0));
    let changed = || {
        CniError::new(Code::TRY_AGAIN, format!("another command has cancelled this, or has forgotten node {name}"))
            .detail("Run the command again if the node is to be forgotten.")
    };
    let (mut version, begun) = read()?;
    if let Some(begun) = begun {
        let Record::Node(begun) = begun else { return Err(changed()) };
        if !begun.leaving {
            return Err(changed());
        }
        if !options.is_fenced {
            let wait_for = protocol::wait_to_forget(&begun);
            tracing::info!(
                "waiting {} s until node {name} trusts its runs no longer; --fenced if it is off",
                wait_for.as_secs()
            );
            pause(wait_for);
        }
        let freeing = Record::Node(protocol::begin_to_free(&begun));
        if Record::Node(begun) != freeing {
            let write = Write { key: node_key.clone(), version, record: Some(freeing.clone()) };
            wait(store.write(&[write]))??;
            let now = read()?;
            // What counts is what the store has: another command may do the same.
            if now.1 != Some(freeing) {
                return Err(changed());
            }
            version = now.0;
        }
    }
    for prefix in [RUNS, CLAIMS] {
        for (key, ..) in wait(store.list(prefix))?? {
            wait(free(store, name, &key, &node_key, version))??.then_some(()).ok_or_else(changed)?;
        }
    }
    edit(store, &[Key::Network, Key::Want(name.to_owned()), node_key.clone()], |draft| {
        if draft.version(&node_key) != version && draft.node(name).is_some() {
            return Err(changed());
        }
        protocol::end_to_forget(draft, name);
        Ok(())
    })?;
    Ok((format!("node {name} is forgotten, {freed} runs are free\n"), json!({ "node": name, "runs": freed })))
}

fn unknown(conf: &Conf, name: &str, records: &Records) -> CniError {
    let names: Vec<&str> = records.nodes.keys().take(8).map(String::as_str).collect();
    let known = match (names.as_slice(), records.nodes.len() - names.len()) {
        ([], _) => "No node is, so there is nothing to free".to_owned(),
        (_, 0) => format!("There are: {}", names.join(", ")),
        (_, more) => format!("There are: {}, and {more} more", names.join(", ")),
    };
    CniError::new(Code::INVALID_CONFIG, format!("no node {name} is recorded")).detail(format!(
        "{known}. It was forgotten before, has left, or has never had an address; without key ipam.node a node has the name in its /etc/machine-id. All \
         are in: cnitool cluster show {}.",
        conf.network
    ))
}

/// Lets a node write again, whose runs are not being freed yet.
pub(super) fn cancel(store: &AnyStore, name: &str) -> Result<(String, Value), CniError> {
    let node_key = Key::Node(name.to_owned());
    edit(store, std::slice::from_ref(&node_key), |draft| {
        let refuse = |why: &str| Err(CniError::new(Code::STATE, format!("node {name} {why}")));
        match draft.node(name).map(|node| (node.freeing, protocol::cancel(node))) {
            Some((_, Some(node))) => draft.set(&node_key, Some(Record::Node(node))),
            Some((true, None)) => return refuse("has lost runs already: run forget to its end"),
            Some((false, None)) => return refuse("is not being forgotten"),
            None => return refuse("is not recorded"),
        }
        Ok(())
    })?;
    Ok((format!("node {name} is not forgotten\n"), json!({ "node": name })))
}

/// Refuses to forget a node that was heard just now, or whose addresses somebody answers for on the network's link, where the configuration names one.
fn refuse_living(place: &Place<'_>, before: &Records, name: &str) -> Result<(), CniError> {
    let now = this_node::now();
    let heard = before.nodes.get(name).filter(|node| node.is_heard(now));
    let mut signs: Vec<String> =
        heard.map(|node| format!("it was heard {} s ago", now.abs_diff(node.heard_at))).into_iter().collect();
    match probe::answers(place.conf, place.object, before.runs_of(name)) {
        Ok(answers) => signs.extend(answers),
        Err(error) => tracing::info!("nobody was asked for its addresses: {}", error.msg),
    }
    if signs.is_empty() {
        return Ok(());
    }
    Err(CniError::new(Code::STATE, format!("node {name} seems to live: {}", signs.join("; "))).detail(
        "What still runs there keeps its addresses, and other nodes get them, too. End its containers, or the machine, and say --force.",
    ))
}

/// Frees what the node has of a record; `false`: the node's own record, which is read after it, is not the one by which that began. So what the record
/// has of the node is of before, as another command that has forgotten it since then has written the record.
async fn free(store: &AnyStore, name: &str, key: &Key, node: &Key, begun: u64) -> Result<bool, CniError> {
    loop {
        let mut draft = Draft::default();
        let (version, record) = store.read(std::slice::from_ref(key)).await?.remove(0);
        draft.load(key.clone(), version, record);
        protocol::erase(&mut draft, name);
        let writes = draft.writes();
        if writes.is_empty() {
            return Ok(true);
        }
        if store.read(std::slice::from_ref(node)).await?[0].0 != begun {
            return Ok(false);
        }
        if store.write(&writes).await? == Written::Done {
            return Ok(true);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the time itself is awaited: a node's trust ends by its clock")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
