//! ADD: host-local's, inside the node's runs; a run is claimed before where that is needed, and after where it soon will be.

use std::time::Duration;

use cni_spec::{AddResult, Attachment, CniError, Code};
use host_local::address::Address;
use host_local::conf as local;
use host_local::range::{RangeSet, Span};

use crate::node_view::View;
use crate::protocol::{self, Run, State, claims};
use crate::reservations;
use crate::transaction::LockedStore;
use cluster_keys::Conf;

/// A run is claimed ahead while a quarter of one is left, or so many addresses.
const LOW_MAX: usize = 64;
/// How often ADD begins anew: each time, other calls have used up what was claimed.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn add(conf: &Conf, owner: &Attachment) -> Result<AddResult, CniError> {
    // With `reuseAddress` host-local gives what an ADD before has reserved, which is not undone.
    let is_new = !conf.local.reuse_address || !reservations::holds(conf, owner)?;
    for _ in 0..ATTEMPTS_MAX {
        let view = ready(conf).await?;
        if let Some(claim) = &conf.claim {
            let result = host_local::add(&of_claim(conf, &view, claim)?, owner).await?;
            if is_still_owned(conf, &result)? {
                return Ok(result);
            }
            undo(conf, owner, is_new).await?;
            continue;
        }
        let Some(within) = view.within(conf) else { continue };
        // What cools down is given after what a new run has.
        let patient = local::Conf { yields: false, ..within.clone() };
        match host_local::add(&patient, owner).await {
            Ok(result) => {
                if is_still_owned(conf, &result)? {
                    upkeep(conf).await;
                    return Ok(result);
                }
                tracing::info!("the run of the address was given back meanwhile: ADD begins anew");
                undo(conf, owner, is_new).await?;
            }
            Err(error) if [Code::NO_ADDRESS, Code::TRY_AGAIN].contains(&error.code) => {
                let Some(set) = host_local::find_full(&patient)? else { return Err(error) };
                if let Err(none) = claim_for(conf, set, &error).await {
                    let yielded = if within.yields { host_local::add(&within, owner).await.ok() } else { None };
                    let result = yielded.ok_or(none)?;
                    if is_still_owned(conf, &result)? {
                        return Ok(result);
                    }
                    undo(conf, owner, is_new).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(CniError::new(Code::TRY_AGAIN, "other calls took each address that this ADD found"))
}

/// Releases what this ADD has reserved.
async fn undo(conf: &Conf, owner: &Attachment, is_new: bool) -> Result<(), CniError> {
    let removal = local::Removal { place: conf.local.place.clone(), cool_down: Duration::ZERO };
    if is_new { host_local::del(&removal, owner).await } else { Ok(()) }
}

/// host-local's keys for a container with a claim: the claim's addresses are the requested ones.
fn of_claim(conf: &Conf, view: &View, claim: &str) -> Result<local::Conf, CniError> {
    let own = view.claims.get(claim).into_iter().flatten().copied().map(Address::from);
    let requested: Vec<Address> = own.filter(|address| conf.is_in_a_set(*address)).collect();
    match wanted(conf).find(|address| !requested.contains(address)) {
        None => Ok(local::Conf { requested, ..conf.local.clone() }),
        Some(other) => {
            let own = requested.iter().map(Address::to_string).collect::<Vec<_>>().join(", ");
            let text = format!("requested IP address {other} is not that of claim {claim}, which has {own}");
            Err(CniError::new(Code::EXISTS, text)
                .detail("Request none, or release the claim first: cnitool cluster release NETWORK CLAIM."))
        }
    }
}

/// The view, if host-local can work with it.
fn usable(conf: &Conf) -> Result<Option<View>, CniError> {
    let Some(view) = View::read(conf.folder())? else { return Ok(None) };
    let has_all = match &conf.claim {
        Some(claim) => {
            let own = view.claims.get(claim);
            let has = |set: &RangeSet| own.into_iter().flatten().any(|ip| set.find((*ip).into()).is_some());
            conf.local.sets.iter().all(has)
        }
        None => {
            let has_runs = conf.local.sets.iter().all(|set| !view.owned(set).is_empty());
            has_runs && wanted(conf).all(|address| view.owns(address))
        }
    };
    Ok((has_all && view.is_trusted_now()?).then_some(view))
}

/// The requested addresses that a run must have: host-local refuses the others.
fn wanted(conf: &Conf) -> impl Iterator<Item = Address> {
    let asked = conf.local.requested.iter().copied();
    asked.filter(|address| conf.is_in_a_set(*address) && conf.local.barred.end(*address).is_none())
}

/// A trusted view with a run of each set and all requested addresses.
async fn ready(conf: &Conf) -> Result<View, CniError> {
    if let Some(view) = usable(conf)? {
        return Ok(view);
    }
    let store = LockedStore::lock(conf)?;
    if let Some(view) = usable(conf)? {
        return Ok(view);
    }
    let name = crate::this_node::name(conf)?;
    let before = View::read(conf.folder())?.unwrap_or_default();
    store
        .transact(|state| {
            if let Some(claim) = &conf.claim {
                return hold(conf, state, &name, claim, &before);
            }
            let mut next = state.clone();
            for address in wanted(conf) {
                next = match protocol::take(&next, &name, Span { first: address, last: address }) {
                    Ok(next) => next,
                    Err(run) if run.node == name => next,
                    Err(run) => return Err(taken(address, &run)),
                };
            }
            for (index, set) in conf.local.sets.iter().enumerate() {
                if !has_run(&next, &name, set) {
                    next = claim(conf, &next, &name, index)
                        .ok_or_else(|| reservations::exhausted(conf, index, &before))?;
                }
            }
            Ok(next)
        })
        .await
}

fn taken(address: impl std::fmt::Display, run: &Run) -> CniError {
    CniError::new(Code::EXISTS, format!("requested IP address {address} belongs to {}", run.owner()))
        .detail(format!("It is in the run {}, whose addresses are given by that owner only.", run.span()))
}

/// The node holds a claim.
fn hold(conf: &Conf, state: &State, name: &str, claim: &str, before: &View) -> Result<State, CniError> {
    let sets: Vec<Vec<Span>> = conf.local.sets.iter().map(Conf::spans).collect();
    let wanted: Vec<Address> = wanted(conf).collect();
    claims::hold(state, name, claim, &wanted, &sets, &conf.local.barred).map_err(|refusal| match refusal {
        claims::Refusal::NoAddress(index) => reservations::exhausted(conf, index, before),
        claims::Refusal::Taken(run) => taken(run.first, &run),
        claims::Refusal::Held(holders) => {
            let nodes = holders.into_iter().collect::<Vec<_>>().join(" and ");
            let text = format!("claim {claim} is held by nodes {nodes}, and by two at most");
            CniError::new(Code::EXISTS, text).detail(
                "A container on each has its address. DEL of one comes first; of a node that is lost, cnitool cluster forget.",
            )
        }
    })
}

fn has_run(state: &State, name: &str, set: &RangeSet) -> bool {
    let overlaps = |run: Span| set.ranges().iter().any(|range| range.first <= run.last && run.first <= range.last);
    state.runs.iter().any(|run| run.node == name && overlaps(run.span()))
}

fn claim(conf: &Conf, state: &State, name: &str, index: usize) -> Option<State> {
    let set = conf.local.sets.get(index)?;
    let (next, run) = protocol::claim(state, name, &Conf::spans(set), conf.claim_size, &conf.local.barred)?;
    tracing::info!(%run, "claiming a run");
    Some(next)
}

/// Claims a run of a set that was found full; `full` is host-local's word about it.
async fn claim_for(conf: &Conf, index: usize, full: &CniError) -> Result<(), CniError> {
    let store = LockedStore::lock(conf)?;
    // Another ADD may have claimed while this one waited.
    let before = View::read(conf.folder())?.unwrap_or_default();
    let Some(within) = before.within(conf) else { return Ok(()) };
    if host_local::find_full(&local::Conf { yields: false, ..within })? != Some(index) {
        return Ok(());
    }
    let name = crate::this_node::name(conf)?;
    let none = || match full.code {
        Code::TRY_AGAIN if !conf.local.yields => full.clone(),
        _ => reservations::exhausted(conf, index, &before),
    };
    let claimed = store.transact(|state| claim(conf, state, &name, index).ok_or_else(none)).await;
    let (held, all) = reservations::room(conf, index, &before);
    claimed.map(drop).map_err(|error| match error.code {
        Code::TRY_AGAIN => error.detail(format!("Of this node's runs {held} of {all} addresses are reserved.")),
        _ => error,
    })
}

/// Whether the addresses of the result are in trusted runs after they were reserved.
fn is_still_owned(conf: &Conf, result: &AddResult) -> Result<bool, CniError> {
    let Some(view) = View::read(conf.folder())? else { return Ok(false) };
    let claim = conf.claim.as_deref();
    Ok(view.is_trusted_now()? && result.ips.iter().all(|ip| view.may_give(ip.address.ip().into(), claim)))
}

/// Claims and readings that the next ADDs will need, if it is time: a run while a quarter of one is left, and a new reading before the last is
/// distrusted. The container has its address; an error here is none of this ADD.
async fn upkeep(conf: &Conf) {
    if let Err(error) = keep_up(conf).await {
        tracing::warn!(%error, "the store is asked again later");
    }
}

async fn keep_up(conf: &Conf) -> Result<(), CniError> {
    let is_due = |view: &View| -> Result<bool, CniError> {
        let quarter = Duration::from_secs(u64::from(view.trust_seconds) / 4);
        let is_low = view.may_claim_ahead()? && !low(conf, view)?.is_empty();
        Ok(view.may_ask()? && (is_low || view.age()?.is_none_or(|age| age > quarter)))
    };
    let Some(view) = View::read(conf.folder())? else { return Ok(()) };
    if !is_due(&view)? {
        return Ok(());
    }
    let Some(store) = LockedStore::try_lock(conf)? else { return Ok(()) };
    let Some(view) = View::read(conf.folder())? else { return Ok(()) };
    if !is_due(&view)? {
        return Ok(());
    }
    let name = crate::this_node::name(conf)?;
    let low_sets = low(conf, &view)?;
    let outcome = store
        .transact(|state| {
            let mut next = state.clone();
            for index in &low_sets {
                // What is claimed ahead may stay unused: not while addresses are few.
                let set = conf.local.sets.get(*index).map(Conf::spans).unwrap_or_default();
                let share = protocol::share(&next, &name, &set, conf.claim_size, &conf.local.barred);
                if share >= conf.claim_size.into() {
                    next = claim(conf, &next, &name, *index).unwrap_or(next);
                }
            }
            Ok(next)
        })
        .await;
    match &outcome {
        Ok(view) if low(conf, view)?.is_empty() => {}
        Ok(_) => View::note_quiet(conf.folder(), false)?,
        Err(_) => View::note_quiet(conf.folder(), true)?,
    }
    outcome.map(drop)
}

/// The sets of which at most a quarter of a run is left.
fn low(conf: &Conf, view: &View) -> Result<Vec<usize>, CniError> {
    let quarter = usize::try_from(conf.claim_size / 4).map_or(LOW_MAX, |quarter| quarter.min(LOW_MAX));
    let Some(within) = view.within(conf) else { return Ok((0..conf.local.sets.len()).collect()) };
    let free = host_local::count_free(&within, quarter + 1)?;
    Ok(free.iter().enumerate().filter(|(_, free)| **free <= quarter).map(|(index, _)| index).collect())
}
