//! Owners, claims and what is free.

use cni_spec::{CniError, text};
use serde_json::{Value, json};

use super::wait;
use crate::conf::Conf;
use crate::protocol::{Member, Run, claims};
use crate::store::{AnyStore, Store};

pub(super) fn show(conf: &Conf, store: &AnyStore) -> Result<(String, Value), CniError> {
    let (state, _) = wait(store.read())??;
    let count = |span| conf.local.barred.count_allowed(span);
    let of_node = |(name, member): (&String, &Member)| {
        let runs: Vec<_> = state.runs.iter().filter(|run| run.node == *name).collect();
        let addresses: u128 = runs.iter().map(|run| count(run.span())).sum();
        let spans: Vec<String> = runs.iter().map(|run| run.span().to_string()).collect();
        let condition = if member.leaving { "being forgotten" } else { "recorded" };
        (name.clone(), condition, addresses, spans)
    };
    let nodes: Vec<_> = state.nodes.iter().map(of_node).collect();
    let head = ["NODE", "STATE", "ADDRESSES", "RUNS"].map(str::to_owned);
    let rows = nodes.iter().map(|(name, condition, addresses, spans)| {
        [name.clone(), (*condition).to_owned(), addresses.to_string(), spans.join(" ")]
    });
    let mut lines = text::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let of_claim = |(claim, holders): (&String, &std::collections::BTreeSet<String>)| {
        let addresses: Vec<String> = claims::addresses(&state, claim).iter().map(ToString::to_string).collect();
        (claim.clone(), holders.iter().cloned().collect::<Vec<_>>(), addresses)
    };
    let claimed: Vec<_> = state.claims.iter().map(of_claim).collect();
    if !claimed.is_empty() {
        let head = ["CLAIM", "HELD BY", "ADDRESSES"].map(str::to_owned);
        let row = |(claim, holders, addresses): &(String, Vec<String>, Vec<String>)| {
            let holders = if holders.is_empty() { "no node".to_owned() } else { holders.join(" ") };
            [claim.clone(), holders, addresses.join(" ")]
        };
        lines.push('\n');
        lines.push_str(&text::table(&std::iter::once(head).chain(claimed.iter().map(row)).collect::<Vec<_>>()));
        lines.push('\n');
    }
    let mut sets = Vec::new();
    for set in &conf.local.sets {
        let all: u128 = Conf::spans(set).into_iter().map(count).sum();
        let in_set = |run: &&Run| set.find(run.span().first).is_some();
        let taken: u128 = state.runs.iter().filter(in_set).map(|run| count(run.span())).sum();
        let free = all.saturating_sub(taken);
        lines.push_str(&format!("{set}: {free} of {all} addresses are in no run\n"));
        // More digits than JSON's readers keep: as text.
        sets.push(json!({ "set": set.to_string(), "addresses": all.to_string(), "free": free.to_string() }));
    }
    let node = |(name, condition, addresses, spans)| {
        let addresses: u128 = addresses;
        json!({ "node": name, "state": condition, "addresses": addresses.to_string(), "runs": spans })
    };
    let nodes: Vec<Value> = nodes.into_iter().map(node).collect();
    let claim = |(claim, holders, addresses)| json!({ "claim": claim, "heldBy": holders, "addresses": addresses });
    let claimed: Vec<Value> = claimed.into_iter().map(claim).collect();
    Ok((
        lines,
        json!({ "network": conf.network, "writes": state.writes, "nodes": nodes, "claims": claimed, "sets": sets }),
    ))
}
