//! After DEL and GC: a run without a reservation goes back to the store when it is seen so a second time; one is kept. A claim without
//! a container here is held no longer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni_spec::CniError;
use host_local::address::Address;
use host_local::range::Span;
use netops::lock::Lock;

use crate::node_view::{self, View};
use crate::protocol;
use crate::reservations;
use crate::transaction::LockedStore;
use cluster_keys::Conf;

/// The permissions of host-local's lock.
const BITS: u32 = 0o750;

/// Gives back what is not needed. Errors are logged: the addresses of DEL and GC are released, and a later call gives the
/// runs back.
pub(crate) async fn return_unused_runs(conf: Option<&Conf>) {
    let Some(conf) = conf else { return };
    if let Err(error) = try_to(conf).await {
        tracing::warn!(%error, "empty runs are given back later");
    }
}

async fn try_to(conf: &Conf) -> Result<(), CniError> {
    let Some(view) = View::read(conf.folder())? else { return Ok(()) };
    // Nothing to do, as in most calls: found out without reading a reservation.
    let is_quiet = view.runs.len() <= conf.local.sets.len() && view.empty.is_empty() && view.claims.is_empty();
    if is_quiet && !view.pending || !view.may_ask()? || !view.is_trusted_now()? {
        return Ok(());
    }
    if !view.pending && view.empty.is_empty() && unheld(conf, &view).is_empty() && !has_spare(conf, &view)? {
        return Ok(());
    }
    let Some(store) = LockedStore::try_lock(conf)? else { return Ok(()) };
    let Some(mut view) = View::read(conf.folder())? else { return Ok(()) };
    if view.pending {
        // An earlier call was killed, or had no answer: the store may have what the view has not.
        let settled = store.transact(|state| Ok(state.clone())).await;
        if settled.is_err() {
            View::note_quiet(conf.folder(), true)?;
        }
        view = settled?;
    }
    let (leaving, claims, seen_once) = {
        // No ADD reserves meanwhile; one that has read the view before reads it again.
        let place = &conf.local.place;
        let lock = Lock::take(&place.folder.join("lock"), BITS, place.deadline);
        let _lock = lock.map_err(|error| node_view::fault(&error))?;
        let spare = spare(conf, &view)?;
        let (leaving, seen_once): (Vec<IpAddr>, Vec<IpAddr>) =
            spare.into_iter().partition(|run| view.empty.contains(run));
        let claims = unheld(conf, &view);
        if leaving.is_empty() && claims.is_empty() && seen_once == view.empty {
            return Ok(());
        }
        view.runs.retain(|(first, _)| !leaving.contains(first));
        view.claims.retain(|claim, _| !claims.contains(claim));
        view.empty.clone_from(&seen_once);
        // The store still has what leaves, until a write has its answer.
        view.pending |= !leaving.is_empty() || !claims.is_empty();
        view.write(conf.folder())?;
        (leaving, claims, seen_once)
    };
    tracing::debug!(?leaving, ?claims, ?seen_once, "without a reservation");
    if leaving.is_empty() && claims.is_empty() {
        return Ok(());
    }
    let name = crate::this_node::name(conf)?;
    let give = |state: &protocol::State| {
        let state = protocol::claims::leave(state, &name, &claims);
        leaving.iter().fold(state, |state, first| protocol::give_back(&state, &name, *first))
    };
    let given = store.transact(|state| Ok(give(state))).await;
    if given.is_err() {
        View::note_quiet(conf.folder(), true)?;
    }
    given.map(drop)
}

/// The claims of which no container of the node has an address: a file that cannot be looked at counts as a reservation, an empty
/// one, which a crash leaves, as none.
fn unheld(conf: &Conf, view: &View) -> Vec<String> {
    let is_free = |address: &IpAddr| match std::fs::metadata(conf.folder().join(address.to_string())) {
        Ok(file) => file.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let is_unheld = |(_, addresses): &(&String, &BTreeSet<IpAddr>)| addresses.iter().all(is_free);
    view.claims.iter().filter(is_unheld).map(|(claim, _)| claim.clone()).collect()
}

/// Whether a set has two runs without a reservation, as far as can be told without reading the folder.
fn has_spare(conf: &Conf, view: &View) -> Result<bool, CniError> {
    for set in &conf.local.sets {
        let mut unused = 0;
        for run in view.spans().filter(|run| set.find(run.first).is_some()) {
            unused += usize::from(host_local::is_unused(&conf.local, run)?);
        }
        if unused > 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first addresses of runs without a reservation; of each set one such run is kept.
fn spare(conf: &Conf, view: &View) -> Result<Vec<IpAddr>, CniError> {
    let held = reservations::list(conf)?;
    // On another node, an address that cools down here would be given at once.
    let held: BTreeSet<Address> =
        held.iter().map(|held| held.address.into()).chain(host_local::list_cooling(&conf.local)?).collect();
    let is_empty = |run: &Span| held.range(run.first..=run.last).next().is_none();
    let empty: Vec<Span> = view.spans().filter(is_empty).collect();
    let mut spare = Vec::new();
    for set in &conf.local.sets {
        let of_set = |run: &&Span| set.find(run.first).is_some() || set.find(run.last).is_some();
        // The longest is kept.
        let mut runs: Vec<&Span> = empty.iter().filter(of_set).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.last.bits - run.first.bits));
        spare.extend(runs.iter().skip(1).map(|run| run.first.ip()));
    }
    spare.sort_unstable();
    Ok(spare)
}
