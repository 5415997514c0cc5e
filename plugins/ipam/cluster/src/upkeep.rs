//! The work that can wait until a call has its answer, in a process of its own: the node looks into the store before its trust ends, claims its next
//! run ahead, and gives back what it does not use and others may need.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use cni_spec::{CniError, Code, ConfObject};
use host_local::address::Address;
use host_local::range::Span;
use netops::OpError;
use netops::lock::Lock;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::node_view::{self, View};
use crate::protocol::{self, Key, WANTS, WHOLE, base_of, is_high};
use crate::reservations;
use crate::store::Store;
use crate::transaction::{LockedStore, Purpose, Work};
use cluster_keys::Conf;

/// A want that is older, by this node's clock, is removed after it was served; and the node's own, when it was not refused since.
const WANT_SECONDS: u64 = 600;
/// The configuration of the call, if something is due after it.
static DUE: Mutex<Option<String>> = Mutex::new(None);

/// Notes that something is due after this call, which has read the view and may have counted what is left. Errors are logged: a later call finds it due.
pub(crate) fn note(conf: Option<&Conf>, object: &ConfObject, seen: Option<(&View, Option<Vec<usize>>)>) {
    let is_due = || {
        let Some(conf) = conf else { return Ok(false) };
        match seen {
            Some((view, left)) => is_due(conf, view, false, left),
            None => View::read(conf.folder())?.map_or(Ok(false), |view| is_due(conf, &view, true, None)),
        }
    };
    match is_due() {
        Ok(false) => {}
        Ok(true) => drop(DUE.lock().map(|mut due| due.replace(cni_spec::json::to_text(object.value())))),
        Err(error) => tracing::warn!(%error, "the store is asked later"),
    }
}

/// Starts what was noted as due: the result is written, and the caller waits for neither.
pub(crate) fn start() {
    let Some(config) = DUE.lock().ok().and_then(|mut due| due.take()) else { return };
    let start = || -> std::io::Result<()> {
        let mut stdin = File::from(memfd_create("config", MFdFlags::MFD_CLOEXEC)?);
        stdin.write_all(config.as_bytes())?;
        stdin.rewind()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("cluster").args(["upkeep", "-", "--if-due"]).env_clear().current_dir("/").process_group(0);
        command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
    };
    if let Err(error) = start() {
        tracing::warn!(%error, "the store is asked later");
    }
}

/// Whether something is to do. `looks_at_claims`: a container may have left one.
fn is_due(conf: &Conf, view: &View, looks_at_claims: bool, left: Option<Vec<usize>>) -> Result<bool, CniError> {
    if view.is_away()? || !view.standing.is_recorded {
        return Ok(false);
    }
    if view.wants_in_vain()? || !view.memory.pending.is_empty() || looks_at_claims && !unheld(conf, view).is_empty() {
        return Ok(true);
    }
    let keeps = view.keeps(conf);
    let count = || view.within(conf).map(|within| host_local::count_free(&within, view.counts(conf)));
    let is_outside = |run: Span| !conf.is_in_a_set(run.first) || !conf.is_in_a_set(run.last);
    let has_outside = || view.memory.spans().any(is_outside);
    let Some(free) = left.map(Ok).or_else(count) else { return view.is_due(!view.memory.runs.is_empty()) };
    let free = free?;
    let is_out = |free: &usize| is_low(conf, keeps, *free as u128) || is_high(keeps, *free as u128);
    Ok(free.iter().any(is_out) || view.is_due(free.iter().any(|free| *free > 0) || has_outside())?)
}

/// Whether a run is claimed ahead: a quarter of one is left, and others have enough.
fn is_low(conf: &Conf, keeps: u128, free: u128) -> bool {
    keeps >= conf.claim_size.min(WHOLE).into() && free <= keeps / 4
}

/// Does what is due; `is_asked`: also looks into the store when nothing is.
pub(crate) async fn run(conf: &Conf, is_asked: bool) -> Result<(), CniError> {
    let is_needed =
        || View::read(conf.folder())?.map_or(Ok(false), |view| Ok(is_asked || is_due(conf, &view, true, None)?));
    if !is_needed()? {
        return Ok(());
    }
    // One process waits for the store's lock; it sees what all others would.
    let turn = Lock::try_take(&View::lock(conf.folder()).with_extension("turn"), 0o600);
    let turn = turn.map_err(|error| node_view::fault(&error))?;
    if turn.is_none() && !is_asked {
        return Ok(());
    }
    let store = LockedStore::lock(conf)?;
    drop(turn);
    if is_needed()? {
        store.transact(Purpose::Renew, async |work| tidy(work).await).await?;
    }
    Ok(())
}

async fn tidy(work: &mut Work<'_>) -> Result<(), CniError> {
    if work.draft.network().is_none_or(|network| network.closed.is_some()) {
        return Ok(());
    }
    let (conf, name) = (work.conf, work.me.name.clone());
    let mut left: Vec<String> = unheld(conf, &work.view);
    work.load(left.iter().cloned().map(Key::Claim)).await?;
    let wanted = wants(work).await?;
    if work.view.wants_in_vain()? {
        work.draft.set(&Key::Want(name.clone()), None);
        work.view.wants_at_ms = 0;
    }
    let runs: Vec<Address> = work.view.memory.spans().map(|run| run.first).collect();
    work.load_shards(runs).await?;
    let mut rooms = Vec::new();
    for set in &conf.local.sets {
        rooms.push(work.find_room(&Conf::spans(set), conf.claim_size).await?);
    }
    // No ADD reserves meanwhile; one that has reserved, and has seen the view before, sees that it is gone.
    work.guard = Some(reservations::lock(conf)?);
    left.retain(|claim| is_unheld(conf, &work.view, claim));
    protocol::claims::leave(&mut work.draft, &name, &left);
    let held = reservations::list(conf)?;
    // On another node, an address that cools down here would be given at once.
    let held: BTreeSet<Address> =
        held.iter().map(|held| held.address.into()).chain(host_local::list_cooling(&conf.local)?).collect();
    for (set, room) in conf.local.sets.iter().zip(rooms) {
        let (spans, barred) = (Conf::spans(set), &conf.local.barred);
        let is_wanted = set.ranges().iter().any(|range| wanted.contains(&range.first.ip()));
        let keeps = if is_wanted { 0 } else { work.view.keeps(conf) };
        let count = protocol::give_back(&mut work.draft, &name, &spans, &held, keeps, barred);
        if let (true, Some(span)) = (is_low(conf, keeps, count), room) {
            // No one has it in this draft.
            let _taken = work.draft.take(span, &name);
        }
    }
    for address in wanted.into_iter().map(Address::from) {
        if work.view.owns(address) && !held.contains(&address) {
            work.draft.release(Span { first: address, last: address }, &name);
        }
    }
    let all: Vec<Span> = conf.local.sets.iter().flat_map(Conf::spans).collect();
    protocol::give_back_outside(&mut work.draft, &name, &all, &held);
    Ok(())
}

/// The first addresses of the sets that other nodes want, and those that they ask for. A want that is old is removed.
async fn wants(work: &mut Work<'_>) -> Result<BTreeSet<IpAddr>, CniError> {
    let mut wanted = BTreeSet::new();
    for (key, version, record) in work.store.list(WANTS).await? {
        work.draft.load(key.clone(), version, Some(record.clone()));
        let protocol::Record::Want(want) = record else { continue };
        let is_own = key == Key::Want(work.me.name.clone());
        if want.at.abs_diff(work.me.now) > WANT_SECONDS {
            work.draft.set(&key, None);
        }
        if !is_own {
            wanted.extend(want.sets);
        }
    }
    Ok(wanted)
}

/// The claims of which no container of the node has an address: a file that cannot be looked at counts as a reservation, an empty
/// one, which a crash leaves, as none.
fn unheld(conf: &Conf, view: &View) -> Vec<String> {
    view.memory.claims.keys().filter(|claim| is_unheld(conf, view, claim)).cloned().collect()
}

fn is_unheld(conf: &Conf, view: &View, claim: &str) -> bool {
    let is_free = |address: &IpAddr| match std::fs::metadata(conf.folder().join(address.to_string())) {
        Ok(file) => file.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    view.memory.claims.get(claim).is_some_and(|addresses| addresses.iter().all(is_free))
}

/// Gives all back that no container has; `is_ending`: also what containers have, as the machine ends with them. Then the node is not recorded any more, if
/// it has nothing left.
pub(crate) async fn leave(conf: &Conf, is_ending: bool) -> Result<String, CniError> {
    let store = LockedStore::lock(conf)?;
    let Some(view) = View::read(conf.folder())? else { return Ok("this node has nothing of the network\n".to_owned()) };
    let left = async |work: &mut Work<'_>| {
        let name = work.me.name.clone();
        let runs: Vec<Span> = work.view.memory.spans().collect();
        work.load(runs.iter().map(|run| Key::Runs(base_of(run.first)))).await?;
        work.load(work.view.memory.claims.keys().cloned().map(Key::Claim).collect::<Vec<_>>()).await?;
        work.guard = Some(reservations::lock(conf)?);
        let held = reservations::held(conf)?;
        if !held.is_empty() && !is_ending {
            let names: Vec<String> = held.iter().map(|held| held.address.to_string()).collect();
            let text = format!("containers of this node have addresses: {}", names.join(", "));
            return Err(
                CniError::new(Code::STATE, text).detail("Delete them first; --ending if the machine ends with them.")
            );
        }
        protocol::erase(&mut work.draft, &name);
        work.draft.set(&Key::Want(name.clone()), None);
        work.draft.set(&Key::Node(name), None);
        Ok(())
    };
    store.transact(Purpose::Leave, left).await?;
    for held in reservations::held(conf)? {
        let path = conf.folder().join(held.address.to_string());
        netops::file::remove(&path).map_err(|error: OpError| node_view::fault(&error))?;
    }
    Ok(format!("node {} has left, {} runs are free\n", view.node, view.memory.runs.len()))
}
