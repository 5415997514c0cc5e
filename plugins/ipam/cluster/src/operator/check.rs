//! Proof from both sides that nothing is held twice: the records agree with each other, and this node's files with the records; if asked for, the
//! network's answers, too.

use cni_spec::{CniError, Code};
use serde_json::{Value, json};

use super::{probe, wait};
use crate::keeper;
use crate::store::{AnyStore, Store};
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
    let faults = keeper::examine(conf, &state)?;
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
