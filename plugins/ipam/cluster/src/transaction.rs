//! Transactions with the store, one at a time on a node, and the view that they leave. PROTOCOL.md has the order of the steps.

use std::cell::RefCell;
use std::time::Duration;

use cni_spec::{CniError, Code};
use host_local::address::Address;
use host_local::inventory::Held;
use netops::lock::Lock;

use crate::node_view::{self, View};
use crate::protocol::{self, Me, Memory, Refusal, State, claims};
use crate::reservations::held;
use crate::store::{self, AnyStore, Store};
use crate::this_node::{identify, refused};
use crate::view_age;
use cluster_keys::Conf;

/// How often a transaction begins anew because another node wrote first.
const ATTEMPTS_MAX: usize = 100;
/// How long a call waits for another one of this node that speaks with the store, beside the store's timeout.
const PATIENCE: Duration = Duration::from_secs(5);

/// The store, locked for the other calls of this node and network.
pub struct LockedStore<'a> {
    conf: &'a Conf,
    store: AnyStore,
    _lock: Lock,
}

impl<'a> LockedStore<'a> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// Code 11: another call had it all the time. Codes of files.
    pub fn lock(conf: &'a Conf) -> Result<Self, CniError> {
        View::make_folder(conf.folder())?;
        let lock = Lock::take(&View::lock(conf.folder()), 0o600, conf.timeout + PATIENCE);
        Ok(Self { conf, store: store::open(conf), _lock: lock.map_err(|error| node_view::fault(&error))? })
    }

    /// Takes the lock if no other call holds it.
    pub(crate) fn try_lock(conf: &'a Conf) -> Result<Option<Self>, CniError> {
        View::make_folder(conf.folder())?;
        let lock = Lock::try_take(&View::lock(conf.folder()), 0o600).map_err(|error| node_view::fault(&error))?;
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
            let read_at_ms = view_age::now_ms()?;
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

/// The records with this machine among them, and with what it holds if it was not among them.
pub(crate) fn confirm(conf: &Conf, state: &State, me: &Me, view: &View, is_open: bool) -> Result<State, CniError> {
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
pub(crate) fn name_conflicts(held: &[Held], conflicts: &[(Address, String)]) -> Vec<String> {
    let name = |(address, owner): &(Address, String)| {
        let of = held.iter().find(|held| Address::from(held.address) == *address).and_then(Held::holder);
        let container = of.map_or("an operator".to_owned(), |(container, _)| format!("container {container}"));
        format!("{address} of {container} belongs to {owner}")
    };
    conflicts.iter().map(name).collect()
}

fn fill(view: &mut View, me: &Me, state: &State, read_at_ms: u64) {
    let Memory { runs, claims } = Memory::of(state, &me.name);
    (view.runs, view.claims) = (runs.into_iter().collect(), claims);
    (view.is_recorded, view.pending, view.is_copy, view.writes) = (true, false, false, state.writes);
    view.nodes = state.nodes.len();
    view.silent = state.nodes.values().filter(|member| member.silence(me.now).is_some()).count();
    (view.boot, view.trust_seconds, view.read_at_ms) = (me.boot.clone(), me.trust_seconds, Some(read_at_ms));
}
