//! Owners, claims and what is free.

use cni_spec::CniError;
use cni_suite::text;
use serde_json::{Value, json};

use super::records;
use crate::node_view::View;
use crate::protocol::{Claim, Closed, Node};
use crate::store::AnyStore;
use cluster_keys::Conf;

pub(super) fn show(conf: &Conf, store: &AnyStore) -> Result<(String, Value), CniError> {
    let records = records(store)?;
    let now = crate::this_node::now();
    let count = |span| conf.local.barred.count_allowed(span);
    let of_node = |(name, member): (&String, &Node)| {
        let addresses: u128 = records.runs_of(name).map(count).sum();
        let spans: Vec<String> = records.runs_of(name).map(|run| run.to_string()).collect();
        let condition = match member.silence(now) {
            _ if member.leaving => "being forgotten",
            Some(_) => "silent",
            None => "recorded",
        };
        (name.clone(), condition, now.saturating_sub(member.heard_at), addresses, spans)
    };
    let nodes: Vec<_> = records.nodes.iter().map(of_node).collect();
    let head = ["NODE", "STATE", "HEARD", "ADDRESSES", "RUNS"].map(str::to_owned);
    let rows = nodes.iter().map(|(name, condition, heard, addresses, spans)| {
        [name.clone(), (*condition).to_owned(), age(*heard), addresses.to_string(), spans.join(" ")]
    });
    let mut lines = text::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    lines.push_str(&silent(&conf.network, nodes.iter().filter(|node| node.1 == "silent").map(|node| node.0.as_str())));
    if !records.wants.is_empty() {
        let names: Vec<&str> = records.wants.keys().map(String::as_str).collect();
        lines.push_str(&format!(
            "an ADD was refused on {}: other nodes give back what they do not use\n",
            names.join(" ")
        ));
    }
    match &records.network.closed {
        Some(Closed::Adopt) => lines.push_str("no node claims until adopt --end\n"),
        Some(Closed::Repair(nodes)) => {
            let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
            lines.push_str(&format!("no node claims until these have run repair: {}\n", names.join(" ")));
        }
        None => {}
    }
    let of_claim = |(claim, record): (&String, &Claim)| {
        let addresses: Vec<String> = record.addresses.iter().map(ToString::to_string).collect();
        (claim.clone(), record.holders.iter().cloned().collect::<Vec<_>>(), addresses)
    };
    let claimed: Vec<_> = records.claims.iter().map(of_claim).collect();
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
        let taken: u128 =
            records.runs.iter().filter(|run| set.find(run.span.first).is_some()).map(|run| count(run.span)).sum();
        let free = all.saturating_sub(taken);
        lines.push_str(&format!("{set}: {free} of {all} addresses are in no run\n"));
        // More digits than JSON's readers keep: as text.
        sets.push(json!({ "set": set.to_string(), "addresses": all.to_string(), "free": free.to_string() }));
    }
    let node = |(name, condition, heard, addresses, spans)| {
        let addresses: u128 = addresses;
        json!({ "node": name, "state": condition, "heardSecondsAgo": heard, "addresses": addresses.to_string(), "runs": spans })
    };
    let nodes: Vec<Value> = nodes.into_iter().map(node).collect();
    let claim = |(claim, holders, addresses)| json!({ "claim": claim, "heldBy": holders, "addresses": addresses });
    let claimed: Vec<Value> = claimed.into_iter().map(claim).collect();
    let view = View::read(conf.folder())?.unwrap_or_default();
    let (age, is_away) = (view.age()?.map(|age| age.as_secs()), view.is_away()?);
    if let Some(age) = age.filter(|_| view.standing.is_recorded) {
        lines.push_str(&format!(
            "this node's view is confirmed since {age} s, and trusted for {} s\n",
            view.standing.trust_seconds
        ));
    }
    if is_away {
        lines.push_str(&format!("{}\n", view.standing.away_why));
    }
    let value = json!({
        "network": conf.network, "nodes": nodes, "claims": claimed, "sets": sets, "runs": records.runs.len(),
        "view": { "ageSeconds": age, "trustSeconds": view.standing.trust_seconds, "storeIsAway": is_away },
        "wants": records.wants.keys().collect::<Vec<_>>(),
    });
    Ok((lines, value))
}

/// A time in the largest unit that has two of it.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86400),
    }
}

/// The sentence for an operator about nodes of which nothing was heard.
fn silent<'a>(network: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "silent: {}. No call there has asked the store for longer than twice trustSeconds: cut off or lost, which the store cannot know. \
             Nothing is freed by that. If a machine is gone: cnitool cluster forget {network} NODE.\n",
            names.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn a_time_is_told_in_the_largest_unit() {
        let told = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(age);
        assert_eq!(told, ["0 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "47 h ago", "2 days ago"]);
    }
}
