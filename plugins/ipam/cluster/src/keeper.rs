//! Transactions with the store, one at a time on a node, and the view that they leave. PROTOCOL.md has the order of the steps.

use std::cell::RefCell;
use std::time::Duration;

use cni_spec::{Attachment, CniError, Code};
use host_local::address::Address;
use host_local::inventory::{Held, Holder, list_held};
use netops::OpError;
use netops::lock::Lock;

use crate::node;
use crate::protocol::{self, Me, Memory, Refusal, State, claims};
use crate::store::{self, AnyStore, Store};
use crate::view::{self, View};
use cluster_keys::Conf;

/// How often a transaction begins anew because another node wrote first.
const ATTEMPTS_MAX: usize = 100;
/// How long a call waits for another one of this node that speaks with the store, beside the store's timeout.
const PATIENCE: Duration = Duration::from_secs(5);

/// The right to speak with the store, for this node and network.
pub struct Keeper<'a> {
    conf: &'a Conf,
    store: AnyStore,
    _lock: Lock,
}

impl<'a> Keeper<'a> {
    /// Waits for the right.
    ///
    /// # Errors
    /// Code 11: another call had it all the time. Codes of files.
    pub fn wait(conf: &'a Conf) -> Result<Self, CniError> {
        View::make_folder(conf.folder())?;
        let lock = Lock::take(&View::lock(conf.folder()), 0o600, conf.timeout + PATIENCE);
        Ok(Self { conf, store: store::open(conf), _lock: lock.map_err(|error| view::fault(&error))? })
    }

    /// Takes the right if no other call has it.
    ///
    /// # Errors
    /// Codes of files.
    pub fn find(conf: &'a Conf) -> Result<Option<Self>, CniError> {
        View::make_folder(conf.folder())?;
        let lock = Lock::try_take(&View::lock(conf.folder()), 0o600).map_err(|error| view::fault(&error))?;
        Ok(lock.map(|lock| Self { conf, store: store::open(conf), _lock: lock }))
    }

    /// Reads the records, applies `change`, writes what is new, and fills the view.
    ///
    /// # Errors
    /// Why this machine gets nothing under its name; the error of `change`; code 11: the store is away.
    pub async fn transact(&self, change: impl Fn(&State) -> Result<State, CniError>) -> Result<View, CniError> {
        self.write(false, |state, me, view, is_open| Ok(change(&confirm(self.conf, state, me, view, is_open)?))).await
    }

    /// Writes back what the node holds, after the store was restored from a copy; the addresses that it holds and others own.
    ///
    /// # Errors
    /// Why this machine may not use the records of its name; code 11: the store is away.
    pub async fn repair(&self) -> Result<Vec<String>, CniError> {
        let held = held(self.conf)?;
        let addresses: Vec<Address> = held.iter().map(|held| held.address.into()).collect();
        let conflicts = RefCell::default();
        let write_back = |state: &State, me: &Me, view: &View, is_open: bool| {
            let is_recalled = || protocol::recall(state, &me.name, &view.memory(), is_open).is_ok();
            if view.is_copy && state.writes >= view.writes && !is_recalled() {
                return Err(refused(self.conf, &me.name, Refusal::OtherFolder));
            }
            let entered = protocol::enter(state, me)
                .map_err(|refusal| refused(self.conf, &me.name, refusal))?
                .unwrap_or(state.clone());
            let (next, others) = protocol::repair(&entered, &me.name, &view.memory(), &addresses);
            conflicts.replace(name_conflicts(&held, &others));
            Ok(Ok(next))
        };
        self.write(true, write_back).await?;
        Ok(conflicts.into_inner())
    }

    /// A transaction: `next_of` makes the next document of the one that was read, or refuses the document.
    async fn write(
        &self,
        is_repair: bool,
        next_of: impl Fn(&State, &Me, &View, bool) -> Result<Result<State, CniError>, CniError>,
    ) -> Result<View, CniError> {
        let folder = self.conf.folder();
        let (me, mut view) = identify(self.conf)?;
        let mut unanswered: Option<State> = None;
        // What an earlier write without an answer has added.
        let mut is_open = view.pending;
        for _ in 0..ATTEMPTS_MAX {
            let read_at_ms = view::now_ms()?;
            let (state, version) = self.store.read().await?;
            if unanswered.as_ref() == Some(&state) {
                // No two documents of a store are equal: the write without an answer was applied, and is not on its way.
                fill(&mut view, &me, &state, read_at_ms);
                view.write(folder)?;
                return Ok(view);
            }
            let mut next = match next_of(&state, &me, &view, is_open) {
                Ok(next) => next?,
                Err(refused) => {
                    if me.is_known && view.read_at_ms.take().is_some() {
                        view.write(folder)?;
                    }
                    return Err(refused);
                }
            };
            if next != state || view.pending || state.writes < view.writes {
                if !is_repair && !state.nodes.contains_key(&me.name) {
                    // Of a node that was forgotten. The outcome of this write is compared with what the node has from now on.
                    view.runs.clear();
                    let own = claims::of(&next, &me.name);
                    view.claims.retain(|claim, addresses| own.get(claim) == Some(addresses));
                }
                // The store may get it although no answer comes, and `forget` waits as long as the store says.
                view.trust_seconds = view.trust_seconds.min(me.trust_seconds);
                view.pending = true;
                view.write(folder)?;
                next.writes = state.writes.max(view.writes) + 1;
                match self.store.replace(&version, &next).await {
                    Ok(true) => {}
                    Ok(false) => {
                        // Another node wrote: what was on its way before has an old version, too.
                        (view.pending, unanswered) = (false, None);
                        continue;
                    }
                    Err(error) if error.code == Code::TRY_AGAIN && unanswered.is_none() => {
                        (unanswered, is_open) = (Some(next), true);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            fill(&mut view, &me, &next, read_at_ms);
            view.write(folder)?;
            return Ok(view);
        }
        Err(CniError::new(Code::TRY_AGAIN, format!("the records were changed {ATTEMPTS_MAX} times meanwhile")))
    }
}

/// This machine, and its view; a new one if there is none.
fn identify(conf: &Conf) -> Result<(Me, View), CniError> {
    let name = node::name(conf)?;
    let found = View::read(conf.folder())?;
    let is_known = found.is_some();
    let view = match found {
        Some(view) => view,
        None => View { node: name.clone(), store_id: random()?, ..View::default() },
    };
    if view.node != name {
        let text = format!("the data folder is node {}'s, and this is node {name}", view.node);
        return Err(CniError::new(Code::STATE, text).detail(format!(
            "It was copied with an image, or the node has a new name. End the node's containers of this network, remove {}, \
             and forget node {} if no machine has that name: cnitool cluster forget {} {}.",
            conf.folder().display(),
            view.node,
            conf.network,
            view.node
        )));
    }
    let (store_id, boot, macs) = (view.store_id.clone(), view::boot()?, node::macs());
    let (is_copy, trust_seconds, now) = (view.is_copy && view.boot == boot, conf.trust_seconds, node::now());
    Ok((Me { name, store_id, is_known, is_copy, boot, macs, trust_seconds, now }, view))
}

fn random() -> Result<String, CniError> {
    let number = |_| getrandom::u64().map(|number| format!("{number:016x}"));
    let text: Result<String, _> = (0..2).map(number).collect();
    text.map_err(|error| CniError::new(Code::IO, format!("the kernel gave no random number: {error}")))
}

/// The records with this machine among them, and with what it holds if it was not among them.
fn confirm(conf: &Conf, state: &State, me: &Me, view: &View, is_open: bool) -> Result<State, CniError> {
    if state.writes < view.writes {
        let text =
            format!("the store is older than what this node has read: {} writes, not {}", state.writes, view.writes);
        return Err(CniError::new(Code::STATE, text).detail(format!(
            "It was emptied, or restored from a copy, and may give addresses that containers have: run on each node: cnitool \
             cluster repair {}.",
            conf.network
        )));
    }
    let is_right = protocol::enter(state, me).and_then(|entered| {
        // Not the store went back, but the folder: a repair would free what the node has claimed since.
        let of_folder = |refusal| if view.is_copy { Refusal::OtherFolder } else { refusal };
        protocol::recall(state, &me.name, &view.memory(), is_open).map_err(of_folder)?;
        Ok(entered)
    });
    let entered = is_right.map_err(|refusal| refused(conf, &me.name, refusal))?;
    let next = entered.unwrap_or_else(|| state.clone());
    if state.nodes.contains_key(&me.name) {
        return Ok(next);
    }
    let held = held(conf)?;
    let addresses: Vec<Address> = held.iter().map(|held| held.address.into()).collect();
    let (next, conflicts) = protocol::come_back(&next, &me.name, &view.memory(), &addresses);
    if conflicts.is_empty() {
        return Ok(next);
    }
    let names = name_conflicts(&held, &conflicts).join(", ");
    if view.is_recorded {
        tracing::error!("addresses moved while this node was away: {names}; delete these containers");
        return Ok(next);
    }
    let text = format!("this node holds addresses of other nodes: {names}");
    Err(CniError::new(Code::STATE, text).detail("Delete these containers, then call ADD again."))
}

/// A sentence for each address that the node holds and another owner has.
fn name_conflicts(held: &[Held], conflicts: &[(Address, String)]) -> Vec<String> {
    let name = |(address, owner): &(Address, String)| {
        let of = held.iter().find(|held| Address::from(held.address) == *address).and_then(Held::holder);
        let container = of.map_or("an operator".to_owned(), |(container, _)| format!("container {container}"));
        format!("{address} of {container} belongs to {owner}")
    };
    conflicts.iter().map(name).collect()
}

/// The faults of this node's side, a sentence each: its memory and its reservations, compared with the records.
///
/// # Errors
/// Codes of files.
pub(crate) fn examine(conf: &Conf, state: &State) -> Result<Vec<String>, CniError> {
    let (me, view) = identify(conf)?;
    let held = held(conf)?;
    if !me.is_known && held.is_empty() {
        return Ok(Vec::new());
    }
    let mut faults = Vec::new();
    if me.is_known
        && let Err(error) = confirm(conf, state, &me, &view, view.pending)
    {
        faults.push(error.to_string());
    }
    if view.is_recorded && !state.nodes.contains_key(&me.name) {
        faults.push(format!("node {} is not recorded: it was forgotten", me.name));
    }
    let addresses: Vec<Address> = held.iter().map(|held| held.address.into()).collect();
    faults.extend(name_conflicts(&held, &protocol::adopt(state, &me.name, &addresses).1));
    let in_no_run = |address: &&Address| state.runs.iter().all(|run| !run.span().contains(**address));
    faults
        .extend(addresses.iter().filter(in_no_run).map(|address| format!("{address} is reserved here, and in no run")));
    Ok(faults)
}

/// Whether the node's folder holds an address for the attachment.
pub(crate) fn holds(conf: &Conf, owner: &Attachment) -> Result<bool, CniError> {
    let is_its = |(container_id, ifname): &Holder| {
        *container_id == owner.container_id && ifname.as_ref().is_none_or(|ifname| *ifname == owner.ifname)
    };
    Ok(held(conf)?.iter().any(|held| held.holder().is_some_and(is_its)))
}

/// The reservations in the node's folder that are in the network's ranges.
pub(crate) fn held(conf: &Conf) -> Result<Vec<Held>, CniError> {
    let folder = conf.folder();
    let unreadable = |error| view::fault(&OpError::io("read", format!("store {}", folder.display()), &error));
    let mut held = list_held(folder).map_err(unreadable)?;
    held.retain(|held| conf.is_in_a_set(held.address.into()));
    Ok(held)
}

fn fill(view: &mut View, me: &Me, state: &State, read_at_ms: u64) {
    let Memory { runs, claims } = Memory::of(state, &me.name);
    (view.runs, view.claims) = (runs.into_iter().collect(), claims);
    (view.is_recorded, view.pending, view.is_copy, view.writes) = (true, false, false, state.writes);
    view.nodes = state.nodes.len();
    view.silent = state.nodes.values().filter(|member| member.silence(me.now).is_some()).count();
    (view.boot, view.trust_seconds, view.read_at_ms) = (me.boot.clone(), me.trust_seconds, Some(read_at_ms));
}

fn refused(conf: &Conf, name: &str, refusal: Refusal) -> CniError {
    let (folder, network) = (conf.folder().display(), &conf.network);
    let (why, remedy) = match refusal {
        Refusal::Emptied => (
            "the node is recorded, and its data folder does not know",
            format!(
                "Folder {folder} was emptied, or another machine has this name. If it was emptied: end the node's \
                 containers of this network, then run: cnitool cluster forget {network} {name}. If not: give this machine a name of its own, by \
                 its machine-id or key ipam.node."
            ),
        ),
        Refusal::OtherFolder => (
            "another data folder is recorded for the node",
            format!(
                "Another machine has this name, or folder {folder} was restored from a copy. If it was restored: end the \
                 node's containers of this network, remove the folder, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Clone => (
            "this machine is a copy of the recorded one",
            format!(
                "It has the data folder and none of the Ethernet addresses. If it is a clone: remove {folder}, and give it \
                 a name of its own, by its machine-id or key ipam.node. If it is the same machine with new network cards: \
                 remove {folder} while none of its containers runs, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Leaving => (
            "an operator is forgetting the node",
            "Call ADD again when cnitool cluster forget has ended; run it again if it was interrupted.".to_owned(),
        ),
        Refusal::Restored => (
            "the store has other runs or claims of it than the node has left there",
            format!(
                "The store was restored from a copy, and may give addresses that containers have: run on each node: cnitool \
                 cluster repair {network}."
            ),
        ),
    };
    let code = if refusal == Refusal::Leaving { Code::TRY_AGAIN } else { Code::STATE };
    CniError::new(code, format!("node {name} gets no addresses: {why}")).detail(remedy)
}

/// STATUS without room of the node's own: whether the store would serve it. Writes nothing.
///
/// # Errors
/// Code 50 with the reason.
pub async fn could_serve(conf: &Conf) -> Result<(), CniError> {
    let unavailable = |error: CniError| CniError { code: Code::NOT_AVAILABLE, ..error };
    let (me, view) = identify(conf).map_err(unavailable)?;
    let (state, _) = store::open(conf).read().await.map_err(unavailable)?;
    let mut next = confirm(conf, &state, &me, &view, view.pending).map_err(unavailable)?;
    for (index, set) in conf.local.sets.iter().enumerate() {
        match protocol::claim(&next, &me.name, &Conf::spans(set), conf.claim_size, &conf.local.barred) {
            Some((claimed, _)) => next = claimed,
            None if conf.local.report_exhausted => return Err(unavailable(exhausted(conf, index, &view))),
            None => tracing::warn!(%set, "the next ADD may fail: all addresses of a range set are in runs"),
        }
    }
    Ok(())
}

/// No address of set `index` is in no run.
pub(crate) fn exhausted(conf: &Conf, index: usize, view: &View) -> CniError {
    let Some(set) = conf.local.sets.get(index) else { return CniError::new(Code::NO_ADDRESS, "no such range set") };
    let (held, all) = room(conf, index, view);
    CniError::new(Code::NO_ADDRESS, format!("no IP addresses available in range set: {set}")).detail(format!(
        "All are in runs of nodes; here {held} of {all} are reserved. Widen the range, run GC, or forget lost nodes: cnitool cluster show {}.",
        conf.network
    ))
}

/// How many addresses of a set's runs are reserved, and how many there are.
pub(crate) fn room(conf: &Conf, index: usize, view: &View) -> (u128, u128) {
    let owned = conf.local.sets.get(index).map(|set| view.owned(set)).unwrap_or_default();
    let all = owned.iter().map(|range| conf.local.barred.count_allowed(range.span())).sum();
    let entries = std::fs::read_dir(conf.folder()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Address::from_file_name(entry.file_name().to_str()?));
    let is_given = |address: &Address| {
        conf.local.barred.end(*address).is_none() && owned.iter().any(|range| range.span().contains(*address))
    };
    (names.filter(is_given).count() as u128, all)
}
