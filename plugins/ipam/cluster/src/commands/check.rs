//! Proof from both sides that nothing is held twice: the records agree with each other, and this node's files with the records; if asked for, the
//! network's answers, too.

use cni_spec::{CniError, Code};
use host_local::address::Address;
use serde_json::{Value, json};

use super::{probe, records, wait};
use crate::protocol::{Records, claims, owner};
use crate::reservations::held;
use crate::store::AnyStore;
use crate::transaction::{LockedStore, Purpose, Work, name_conflicts};
use cluster_keys::Conf;

/// The question to the network.
pub(super) struct Probe<'a> {
    /// The network's configuration.
    pub(super) object: &'a Value,
    /// The link, if the operator names one.
    pub(super) link: Option<&'a str>,
}

pub(super) fn check(conf: &Conf, store: &AnyStore, asked: Option<Probe<'_>>) -> Result<(String, Value), CniError> {
    let look = || {
        // Reading finds overlaps.
        let records = records(store)?;
        let faults = [records.faults(), examine(conf, store, &records)?].concat();
        Ok::<_, CniError>((records, faults))
    };
    let (mut records, mut faults) = look()?;
    if !faults.is_empty() {
        // A call of this node may have changed one side between the two readings.
        let _locked = LockedStore::lock(conf)?;
        (records, faults) = look()?;
    }
    if !faults.is_empty() {
        let text = format!("this node and the store differ: {}", faults.join("; "));
        return Err(CniError::new(Code::STATE, text).detail(
            "After the store was restored: cnitool cluster repair. Forget a node that is not recorded. Else delete the containers that are named.",
        ));
    }
    let (nodes, runs, claims) = (records.nodes.len(), records.runs.len(), records.claims.len());
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
fn examine(conf: &Conf, store: &AnyStore, records: &Records) -> Result<Vec<String>, CniError> {
    let held = held(conf)?;
    let (me, view, admitted) = wait(async {
        let mut work = Work::begin(conf, store).await?;
        let view = work.view.clone();
        let admitted = if work.me.is_recorded { work.admit(Purpose::Renew).await } else { Ok(()) };
        Ok::<_, CniError>((work.me, view, admitted))
    })??;
    let mut faults: Vec<String> = admitted.err().iter().map(ToString::to_string).collect();
    if view.standing.is_recorded && !records.nodes.contains_key(&me.name) {
        faults.push(format!("node {} is not recorded: it was forgotten", me.name));
    }
    if view.standing.is_recorded && view.memory.pending.is_empty() && faults.is_empty() {
        let lost = view.memory.spans().filter(|run| records.find(run.first).is_none_or(|found| found.owner != me.name));
        faults.extend(lost.map(|run| format!("the run {run} of this node is not recorded as its own")));
    }
    let is_own = |owner: &str| {
        let claim = owner.strip_prefix(claims::PREFIX).and_then(|claim| records.claims.get(claim));
        owner == me.name || claim.is_some_and(|claim| claim.holders.contains(&me.name))
    };
    let mut conflicts = Vec::new();
    for address in held.iter().map(|held| Address::from(held.address)) {
        match records.find(address) {
            Some(run) if is_own(&run.owner) => {}
            Some(run) => conflicts.push((address, owner(&run.owner))),
            None => faults.push(format!("{address} is reserved here, and in no run")),
        }
    }
    faults.extend(name_conflicts(&held, &conflicts));
    Ok(faults)
}
