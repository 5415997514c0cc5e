//! After DEL and GC: a run without a reservation goes back to the store when it is seen so a second time. One is kept.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni_spec::CniError;
use host_local::address::Address;
use host_local::inventory::list_held;
use host_local::range::Span;
use netops::OpError;
use netops::lock::Lock;

use crate::conf::Conf;
use crate::keeper::Keeper;
use crate::protocol;
use crate::view::{self, View};

/// The permissions of host-local's lock.
const BITS: u32 = 0o750;

/// Gives back what is not needed. Errors are logged: the addresses of DEL and GC are released, and a later call gives the
/// runs back.
pub(crate) async fn give_back(conf: Option<&Conf>) {
    let Some(conf) = conf else { return };
    if let Err(error) = try_to(conf).await {
        tracing::warn!(%error, "empty runs are given back later");
    }
}

async fn try_to(conf: &Conf) -> Result<(), CniError> {
    let Some(view) = View::read(conf.folder())? else { return Ok(()) };
    // Nothing to do, as in most calls: found out without reading a reservation.
    if view.runs.len() <= conf.local.sets.len() && view.empty.is_empty()
        || !view.may_ask()?
        || !view.is_trusted_now()?
    {
        return Ok(());
    }
    if view.empty.is_empty() && spare(conf, &view)?.is_empty() {
        return Ok(());
    }
    let Some(keeper) = Keeper::find(conf)? else { return Ok(()) };
    let Some(mut view) = View::read(conf.folder())? else { return Ok(()) };
    let (leaving, seen_once) = {
        // No ADD reserves meanwhile; one that has read the view before reads it again.
        let place = &conf.local.place;
        let lock = Lock::take(&place.folder.join("lock"), BITS, place.deadline);
        let _lock = lock.map_err(|error| view::fault(&error))?;
        let spare = spare(conf, &view)?;
        let (leaving, seen_once): (Vec<IpAddr>, Vec<IpAddr>) =
            spare.into_iter().partition(|run| view.empty.contains(run));
        if leaving.is_empty() && seen_once == view.empty {
            return Ok(());
        }
        view.runs.retain(|(first, _)| !leaving.contains(first));
        view.empty.clone_from(&seen_once);
        view.write(conf.folder())?;
        (leaving, seen_once)
    };
    tracing::debug!(?leaving, ?seen_once, "runs without a reservation");
    if leaving.is_empty() {
        return Ok(());
    }
    let name = crate::node::name(conf)?;
    let give = |state: &protocol::State| {
        leaving.iter().fold(state.clone(), |state, first| protocol::give_back(&state, &name, *first))
    };
    let given = keeper.transact(|state| Ok(give(state))).await;
    if given.is_err() {
        View::note_quiet(conf.folder(), true)?;
    }
    given.map(drop)
}

/// The first addresses of runs without a reservation; of each set one such run is kept.
fn spare(conf: &Conf, view: &View) -> Result<Vec<IpAddr>, CniError> {
    let folder = conf.folder();
    let unreadable = |error| view::fault(&OpError::io("read", format!("store {}", folder.display()), &error));
    let held: BTreeSet<Address> =
        list_held(folder).map_err(unreadable)?.iter().map(|held| held.address.into()).collect();
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
