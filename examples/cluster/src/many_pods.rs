//! The published case: many pods at once, on a range that has exactly as many addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::node_thread::{Adds, NodeHandle, on_all};
use crate::switch_and_store::{Store, SwitchAndStore};

/// The number of nodes and pods, and whether the leader is killed meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) nodes: usize,
    /// Of each node.
    pub(crate) pods: usize,
    pub(crate) is_etcd: bool,
    /// Half way, etcd's leader is killed.
    pub(crate) is_leader_killed: bool,
}

pub(crate) fn run(out: &mut impl Write, crowd: Crowd) -> Result<()> {
    let count = crowd.nodes * crowd.pods;
    let mut shared = SwitchAndStore::new(crowd.is_etcd)?;
    // .1 is the gateway's.
    let last = Ipv4Addr::from_bits(Ipv4Addr::new(10, 9, 0, 1).to_bits() + u32::try_from(count)?);
    let keys = json!({ "subnet": "10.9.0.0/16", "rangeStart": "10.9.0.2", "rangeEnd": last, "claimSize": (crowd.pods / 3).clamp(1, 32) });
    let nodes = shared.start_nodes(crowd.nodes, keys)?;
    let (adds, took) = add(&mut shared, &nodes, crowd)?;
    let given: Vec<_> = adds.iter().flat_map(|adds| adds.given.iter().cloned()).collect();
    let (addresses, macs): (BTreeSet<_>, BTreeSet<_>) = given.iter().cloned().unzip();
    ensure!(
        given.len() == count && addresses.len() == count,
        "{} pods have {} addresses",
        given.len(),
        addresses.len()
    );
    ensure!(macs.len() == count, "two pods have one Ethernet address");
    let longest = adds.iter().map(|adds| adds.longest).max().unwrap_or_default();
    let repeated: usize = adds.iter().map(|adds| adds.repeated).sum();
    let shown = nodes[0].run(|thread| thread.operate("show", &["--json"]))?;
    let runs = serde_json::from_str::<serde_json::Value>(&shown)?["runs"].as_u64().context("show has no runs")?;
    writeln!(
        out,
        "ADD    {count} pods on {} nodes, {count} addresses, none twice: {:.1} s, {runs} runs; the longest ADD {} ms, {repeated} repeated",
        crowd.nodes,
        took.as_secs_f64(),
        longest.as_millis()
    )?;
    ensure!(longest < Duration::from_secs(3) || !crowd.is_leader_killed, "an ADD took {longest:?}");
    ensure!(runs <= 100.max(count as u64 / 10), "{runs} runs");
    let known_to_runtimes: BTreeMap<_, _> = given.iter().cloned().collect();
    let begin = Instant::now();
    let known = given.clone();
    on_all(&nodes, move |thread| {
        thread.introduce(&known);
        Ok(())
    })?;
    let known = begin.elapsed();
    let answers: usize = on_all(&nodes, move |thread| thread.ping_all(&given))?.iter().sum();
    ensure!(answers == count * (count - 1), "{answers} answers");
    writeln!(
        out,
        "ping   {answers} of {answers} answers, every pod from every other one: {:.1} s, and {:.1} s to tell them their neighbours",
        (begin.elapsed() - known).as_secs_f64(),
        known.as_secs_f64()
    )?;
    ask(out, &nodes[0], &known_to_runtimes)?;
    let begin = Instant::now();
    on_all(&nodes, |thread| thread.delete())?;
    let left = nodes[0].run(|thread| thread.operate("check", &[]))?;
    writeln!(out, "DEL    all: {:.1} s; {}", begin.elapsed().as_secs_f64(), left.trim_end())?;
    Ok(())
}

/// Asks the network by ARP: for each address one pod answers, the one that has got it.
fn ask(out: &mut impl Write, node: &NodeHandle, given: &BTreeMap<Ipv4Addr, String>) -> Result<()> {
    let begin = Instant::now();
    let said = node.run(|thread| thread.operate("check", &["--probe", "--json"]))?;
    let value: serde_json::Value = serde_json::from_str(&said)?;
    let answers = value["probe"]["answers"].as_object().context("no answers")?;
    for (address, mac) in given {
        let found = &answers.get(&address.to_string()).context("no answer")?;
        ensure!(**found == json!([mac]), "{address}: {mac} has it, and {found} answers");
    }
    ensure!(answers.len() == given.len(), "{} addresses are answered", answers.len());
    let seconds = begin.elapsed().as_secs_f64();
    writeln!(out, "ARP    {} addresses, each answered by the one pod that has it: {seconds:.1} s", answers.len())?;
    Ok(())
}

/// All nodes add their pods, one after the other, at once.
fn add(shared: &mut SwitchAndStore, nodes: &[NodeHandle], crowd: Crowd) -> Result<(Vec<Adds>, Duration)> {
    let begin = Instant::now();
    // All nodes are there before one has used up an equal part.
    let mut all = on_all(nodes, |thread| thread.add_many(1))?;
    let half = crowd.pods / 2;
    let mut more = on_all(nodes, move |thread| thread.add_many(half))?;
    if let (Store::Etcd(etcd), true) = (&mut shared.store, crowd.is_leader_killed) {
        let leader = etcd.leader();
        etcd.kill(leader);
    }
    let rest = crowd.pods.saturating_sub(1 + half);
    more.extend(on_all(nodes, move |thread| thread.add_many(rest))?);
    all.extend(more);
    Ok((all, begin.elapsed()))
}
