//! Proof from both sides that nothing is held twice: the records agree with each other, and this node's files with the records; if asked for, the
//! network's answers, too.

use cni_spec::{CniError, Code};
use host_local::address::Address;
use serde_json::{Value, json};

use super::{probe, wait};
use crate::protocol::{self, State};
use crate::reservations::held;
use crate::store::{AnyStore, Store};
use crate::this_node::identify;
use crate::transaction::{confirm, name_conflicts};
use cluster_keys::Conf;

/// The question to the network.
pub(super) struct Probe<'a> {
    /// The network's configuration.
    pub(super) object: &'a Value,
    /// The link, if the operator names one.
    pub(super) link: Option<&'a str>,
}

pub(super) fn check(conf: &Conf, store: &AnyStore, asked: Option<Probe<'_>>) -> Result<(String, Value), CniError> {
    // Reading finds overlaps and runs without an owner.
    let (state, _) = wait(store.read())??;
    let faults = examine(conf, &state)?;
    if !faults.is_empty() {
        let text = format!("this node and the store differ: {}", faults.join("; "));
        return Err(CniError::new(Code::STATE, text).detail(
            "After the store was restored: cnitool cluster repair. Else delete the containers that are named.",
        ));
    }
    let (nodes, runs, claims) = (state.nodes.len(), state.runs.len(), state.claims.len());
    let text =
        format!("{nodes} nodes, {runs} runs, {claims} claims, no address in two; what this node holds is its own\n");
    let mut value = json!({ "nodes": nodes, "runs": runs, "claims": claims });
    let Some(Probe { object, link }) = asked else { return Ok((text, value)) };
    let found = probe::probe(conf, store, object, link)?;
    if !found.faults.is_empty() {
        let text = format!("the network and the records differ: {}", found.faults.join("; "));
        return Err(CniError::new(Code::STATE, text).detail(format!(
            "{}. Find the stations by their Ethernet addresses: cnitool show on each node, then the switch. An address that is not the \
             network's to give goes into key ipam.exclude.",
            found.notes.join("; ")
        )));
    }
    value["probe"] = found.value;
    Ok((format!("{text}{}\n", found.notes.join("\n")), value))
}

/// The faults of this node's side, a sentence each: its memory and its reservations, compared with the records.
fn examine(conf: &Conf, state: &State) -> Result<Vec<String>, CniError> {
    let (me, view) = identify(conf)?;
    let held = held(conf)?;
    if !me.is_known && held.is_empty() {
        return Ok(Vec::new());
    }
    let mut faults = Vec::new();
    if me.is_known
        && let Err(error) = confirm(conf, state, &me, &view, view.pending)
    {
        faults.push(error.to_string());
    }
    if view.is_recorded && !state.nodes.contains_key(&me.name) {
        faults.push(format!("node {} is not recorded: it was forgotten", me.name));
    }
    let addresses: Vec<Address> = held.iter().map(|held| held.address.into()).collect();
    faults.extend(name_conflicts(&held, &protocol::adopt(state, &me.name, &addresses).1));
    let in_no_run = |address: &&Address| state.runs.iter().all(|run| !run.span().contains(**address));
    faults
        .extend(addresses.iter().filter(in_no_run).map(|address| format!("{address} is reserved here, and in no run")));
    Ok(faults)
}
