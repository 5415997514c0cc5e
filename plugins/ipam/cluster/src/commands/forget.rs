//! `forget`: frees a dead node's runs, after the time in which it may still give their addresses.

use std::time::Duration;

use cni_spec::{CniError, Code};
use serde_json::{Value, json};

use super::write;
use crate::protocol::{self, State};
use crate::store::AnyStore;

pub(super) fn forget(store: &AnyStore, name: &str, is_fenced: bool) -> Result<(String, Value), CniError> {
    let unknown = |state: &State| {
        let names = state.nodes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        CniError::new(Code::INVALID_CONFIG, format!("no node {name} is recorded"))
            .detail(format!("There are: {names}."))
    };
    let begun = write(store, |state| protocol::begin_to_forget(state, name).ok_or_else(|| unknown(state)))?;
    let member = begun.nodes.get(name).ok_or_else(|| unknown(&begun))?;
    if !is_fenced {
        let wait_for = protocol::wait_to_forget(member);
        tracing::info!(
            "waiting {} s until node {name} trusts its runs no longer; --fenced if it is off",
            wait_for.as_secs()
        );
        pause(wait_for);
    }
    let freed = begun.runs.iter().filter(|run| run.node == name).count();
    let changed = |state: &State| match state.nodes.contains_key(name) {
        true => CniError::new(Code::TRY_AGAIN, format!("node {name} was forgotten by another command, and is back"))
            .detail("Run the command again if the node is to be forgotten once more."),
        false => unknown(state),
    };
    write(store, |state| protocol::end_forgetting(state, name, member).ok_or_else(|| changed(state)))?;
    Ok((format!("node {name} is forgotten, {freed} runs are free\n"), json!({ "node": name, "runs": freed })))
}

#[expect(clippy::disallowed_methods, reason = "the time itself is awaited: a node's trust ends by its clock")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
