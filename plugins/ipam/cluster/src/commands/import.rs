//! Addresses that whereabouts has given become claims, so that no node gives them while their containers live.

use std::collections::{BTreeMap, BTreeSet};

use cni_spec::{CniError, Code, json as cni_json};
use host_local::address::{Address, Family};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{edit, read};
use crate::protocol::{Key, base_of, claims};
use crate::store::AnyStore;
use cluster_keys::Conf;

/// `IPPool` of `whereabouts.cni.cncf.io/v1alpha1`, or a list of them as `kubectl get --output json` prints it.
#[derive(Deserialize)]
struct Pools {
    items: Option<Vec<Pool>>,
    #[serde(flatten)]
    one: Option<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    /// The network; allocations count from its address as it is written.
    range: String,
    #[serde(default)]
    allocations: BTreeMap<String, Allocation>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allocation {
    id: String,
    podref: String,
}

pub(super) fn import(conf: &Conf, store: &AnyStore, path: &str) -> Result<(String, Value), CniError> {
    let unusable = |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot import {path}: {why}"));
    let bytes = read(path).map_err(|error| unusable(error.to_string()))?;
    let pools: Pools = serde_json::from_slice(&bytes).map_err(|error| {
        unusable(error.to_string()).detail(
            "It has IPPools of whereabouts: kubectl get ippools.whereabouts.cni.cncf.io --all-namespaces --output json.",
        )
    })?;
    let pools = pools.items.or(pools.one.map(|one| vec![one]));
    let pools = pools.ok_or_else(|| unusable("it has no IPPool of whereabouts".to_owned()))?;
    let (mut found, mut outside) = (BTreeMap::<String, BTreeSet<Address>>::new(), 0);
    for spec in pools.iter().map(|pool| &pool.spec) {
        for (offset, allocation) in &spec.allocations {
            let address = address(&spec.range, offset)
                .ok_or_else(|| unusable(format!("allocation {offset:?} of range {:?} is no address", spec.range)))?;
            if !conf.is_in_a_set(address) {
                outside += 1;
                continue;
            }
            found.entry(name(allocation)).or_default().insert(address);
        }
    }
    if let Some(bad) = found.keys().find(|name| !cluster_keys::is_claim(name)) {
        return Err(unusable(format!("{bad:?} cannot be the name of a claim")));
    }
    let found = one_of_each_set(conf, found);
    let count: usize = found.values().map(BTreeSet::len).sum();
    for (claim, addresses) in &found {
        let shards: BTreeSet<Key> = addresses.iter().map(|address| Key::Runs(base_of(*address))).collect();
        let keys: Vec<Key> = std::iter::once(Key::Claim(claim.clone())).chain(shards).collect();
        edit(store, &keys, |draft| {
            if let Some(held) = draft.claim(claim).filter(|record| !record.holders.is_empty()) {
                let nodes = held.holders.iter().cloned().collect::<Vec<_>>().join(" and ");
                let text = format!("claim {claim} is held by {nodes}: it is a container's, and not one of whereabouts");
                return Err(CniError::new(Code::EXISTS, text)
                    .detail("The claims before it, in the order of their names, are imported."));
            }
            for address in addresses {
                claims::grant(draft, claim, *address).map_err(|run| {
                    let owner = crate::protocol::owner(&run.owner);
                    let text = format!("an address of claim {claim} is in {}, a run of {owner}", run.span);
                    CniError::new(Code::EXISTS, text)
                        .detail("The claims before it, in the order of their names, are imported. Import before the first ADD of a node.")
                })?;
            }
            Ok(())
        })?;
    }
    let text = format!(
        "{count} addresses are those of {} claims now; {outside} were in no range of the network\n",
        found.len()
    );
    Ok((text, json!({ "addresses": count, "claims": found.len(), "outside": outside })))
}

/// The address of an allocation.
fn address(range: &str, offset: &str) -> Option<Address> {
    let network = cni_json::parse_cidr(range).ok()?;
    let (first, offset) = (Address::from(network.ip()), offset.parse::<u128>().ok()?);
    let bits = first.bits.checked_add(offset)?;
    (first.family == Family::V6 || bits <= u32::MAX.into()).then_some(Address { bits, ..first })
}

/// The pod; of an allocation without one the container.
fn name(allocation: &Allocation) -> String {
    if allocation.podref.is_empty() { allocation.id.clone() } else { allocation.podref.clone() }
}

/// A claim has one address of each set: further ones of a pod are claims of their own.
fn one_of_each_set(conf: &Conf, found: BTreeMap<String, BTreeSet<Address>>) -> BTreeMap<String, BTreeSet<Address>> {
    let mut all = BTreeMap::<String, BTreeSet<Address>>::new();
    for (name, addresses) in found {
        let mut count = BTreeMap::<usize, usize>::new();
        for address in addresses {
            let set = conf.local.sets.iter().position(|set| set.find(address).is_some()).unwrap_or_default();
            let number = count.entry(set).or_default();
            *number += 1;
            let name = if *number == 1 { name.clone() } else { format!("{name}/{number}") };
            all.entry(name).or_default().insert(address);
        }
    }
    all
}
