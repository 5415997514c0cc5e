//! Proof from both sides that nothing is held twice: the records agree with each other, and this node's files with the records.

use cni_spec::{CniError, Code};
use serde_json::{Value, json};

use super::wait;
use crate::conf::Conf;
use crate::keeper;
use crate::store::{AnyStore, Store};

pub(super) fn check(conf: &Conf, store: &AnyStore) -> Result<(String, Value), CniError> {
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
    Ok((text, json!({ "nodes": nodes, "runs": runs, "claims": claims })))
}
