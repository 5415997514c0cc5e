//! Routes to the other nodes' ranges over their InternalIP, for nodes on one link ("host-gw").
//!
//! The agent's routes have a protocol of their own, by which it knows them; other routes are never changed, also where one takes the
//! place of a route that the agent would add. Its routes outlive it, so that an upgrade loses no packet.

use crate::nodes::Seen;
use crate::ranges::Ranges;
use ipnetwork::IpNetwork;
use netops::error::Errno;
use netops::route::{Route, whole};
use netops::{Family, Kernel, OpError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The protocol of the agent's routes. The kernel's and iproute2's numbers (linux/rtnetlink.h, rt_protos) end at 192 or are below 100,
/// FRR's are 186 to 198, Calico's is 80, OVN's 84.
pub const PROTOCOL: u8 = 147;

/// A destination and its next hop.
type Wanted = BTreeMap<IpNetwork, IpAddr>;

/// The outcome for the routes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The routes that are there and wanted.
    pub count: usize,
    /// The reasons why others are not there, a line each.
    pub refused: BTreeSet<String>,
}

/// Makes the agent's routes those to the nodes but `own`.
///
/// # Errors
/// The kernel does not list routes.
pub fn settle(nodes: &BTreeMap<String, Seen>, own: &str, ranges: &Ranges) -> Result<Outcome, OpError> {
    let mut outcome = Outcome::default();
    let wanted = wanted(nodes, own, ranges, &mut outcome.refused);
    let net = Kernel::host()?;
    let mut found = whole::list_of_protocol(&net, PROTOCOL, Family::V4)?;
    found.extend(whole::list_of_protocol(&net, PROTOCOL, Family::V6)?);
    let is_wanted = |route: &whole::Whole| {
        let hop = |dst| wanted.get(&dst).copied();
        matches!(route.hops(), [only] if only.gateway.is_some() && only.gateway == route.dst().and_then(hop))
    };
    let (there, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_wanted);
    let there: BTreeSet<_> = there.iter().filter_map(whole::Whole::dst).collect();
    // First what has gone: a node's new next hop takes the place of the former one.
    for (route, removed) in others.iter().zip(net.run_each(others.iter().map(whole::delete).collect())) {
        match removed {
            Err(error) if !error.is_absent() => drop(outcome.refused.insert(format!("{error}"))),
            _ => tracing::info!("removed route {route}"),
        }
    }
    let missing: Vec<_> = wanted.iter().filter(|(dst, _)| !there.contains(dst)).collect();
    let new = |(dst, hop): &(&IpNetwork, &IpAddr)| whole::Whole::of(&Route::new(**dst, Some(**hop), None), PROTOCOL);
    let added = net.run_each(missing.iter().map(|one| whole::add_only(&new(one))).collect());
    outcome.count = there.len();
    for ((dst, hop), added) in missing.into_iter().zip(added) {
        match added {
            Ok(()) => {
                outcome.count += 1;
                tracing::info!("added route {dst} via {hop}");
            }
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
                outcome.refused.insert(format!("a route to {dst} is there that is not the agent's: it stays"));
            }
            Err(error) => drop(outcome.refused.insert(format!("{error}"))),
        }
    }
    Ok(outcome)
}

/// The routes to the other nodes. A node without an address of a range's family gets no route to that range.
fn wanted(nodes: &BTreeMap<String, Seen>, own: &str, ranges: &Ranges, refused: &mut BTreeSet<String>) -> Wanted {
    let mut wanted = Wanted::new();
    let has_node = |dst: &IpNetwork| nodes.values().flat_map(|node| &node.addresses).any(|node| dst.contains(*node));
    for (name, node) in nodes.iter().filter(|(name, _)| *name != own) {
        // A node that has no range yet is no fault.
        for dst in node.ranges.iter().flat_map(Ranges::iter) {
            let hop = node.addresses.iter().find(|address| address.is_ipv4() == dst.is_ipv4());
            let why = match hop {
                None => "no InternalIP of the range's family",
                Some(_) if ranges.overlaps(dst) => "a range that overlaps this node's",
                // A kubelet may write what it likes into its own Node: no node's packets, such as the API's, become a pod's by that.
                Some(_) if has_node(dst) => "a range that has the address of a node",
                Some(_) if wanted.contains_key(dst) => "the range of another node",
                Some(hop) => {
                    wanted.insert(*dst, *hop);
                    continue;
                }
            };
            refused.insert(format!("node {name} with {dst} has {why}"));
        }
    }
    wanted
}
