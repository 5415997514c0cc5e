//! The steps and their output.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::node_thread::NodeHandle;
use crate::switch_and_store::SwitchAndStore;

const NODES: usize = 3;
const PODS: usize = 4;

/// Runs all steps and prints them on `out`.
pub(crate) fn run(out: &mut impl Write, is_etcd: bool) -> Result<()> {
    let mut shared = SwitchAndStore::new(is_etcd)?;
    let nodes = shared.start_nodes(NODES, json!({}))?;
    let store = if is_etcd { "etcd with three members" } else { "a folder" };
    writeln!(out, "Three nodes on one network, and {store} as their store: examples/cluster/10-lan.conflist.\n")?;
    let given = add(out, &nodes)?;
    reach(out, &nodes, &given)?;
    writeln!(out, "\n{}", nodes[0].run(|thread| thread.operate("show", &[]))?)?;
    without_store(out, &nodes[0], &mut shared)?;
    forget(out, &nodes)?;
    for node in &nodes[..2] {
        node.run(|thread| thread.delete())?;
    }
    let left = nodes[0].run(|thread| thread.operate("check", &[]))?;
    writeln!(out, "DEL    all pods of the others: {}", left.trim_end())?;
    Ok(())
}

fn add(out: &mut impl Write, nodes: &[NodeHandle]) -> Result<Vec<IpAddr>> {
    let start = Instant::now();
    let all = nodes.iter().map(|node| node.begin(|thread| (0..PODS).map(|_| thread.add()).collect::<Result<Vec<_>>>()));
    let all: Vec<_> = all.collect();
    let mut given = Vec::new();
    for (node, answer) in nodes.iter().zip(all) {
        let own = answer.recv()??;
        let shown: Vec<String> = own.iter().map(ToString::to_string).collect();
        writeln!(out, "ADD    {}: {}", node.name, shown.join(" "))?;
        given.extend(own);
    }
    let distinct: BTreeSet<_> = given.iter().collect();
    ensure!(distinct.len() == given.len(), "an address was given twice: {given:?}");
    writeln!(out, "       {} pods, none twice, {} ms", given.len(), start.elapsed().as_millis())?;
    Ok(given)
}

fn reach(out: &mut impl Write, nodes: &[NodeHandle], given: &[IpAddr]) -> Result<()> {
    let ask = |node: &NodeHandle| {
        let targets = given.to_owned();
        node.begin(move |thread| thread.ping(&targets))
    };
    let mut answers = 0;
    for answer in nodes.iter().map(ask).collect::<Vec<_>>() {
        answers += answer.recv()??;
    }
    writeln!(out, "ping   {answers} of {answers} answers: every pod reaches every other one, on all nodes")?;
    Ok(())
}

/// The store is away: a node gives what is left of its runs, and says what it lacks.
fn without_store(out: &mut impl Write, node: &NodeHandle, shared: &mut SwitchAndStore) -> Result<()> {
    shared.turn_store(false)?;
    let (mut count, mut last) = (0, None);
    while last.is_none() {
        match node.run(|thread| thread.add()) {
            Ok(_) => count += 1,
            Err(error) => last = Some(error),
        }
        ensure!(count < 64, "a node without its store gives addresses without end");
    }
    shared.turn_store(true)?;
    let error = last.map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(error.contains("addresses are reserved"), "another error: {error}");
    writeln!(
        out,
        "Without the store: {count} more pods on {}, then ADD says which store is away (code 11).",
        node.name
    )?;
    Ok(())
}

/// A node is lost: its addresses stay its own until the operator says that it is off.
fn forget(out: &mut impl Write, nodes: &[NodeHandle]) -> Result<()> {
    let said = nodes[0].run(|thread| thread.operate("forget", &["node3", "--fenced", "--force"]))?;
    let address = nodes[1].run(|thread| thread.add())?;
    writeln!(out, "A lost node, when the operator says so: {}; node2 gets {address}.", said.trim_end())?;
    Ok(())
}
