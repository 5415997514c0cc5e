//! The pool: slots that are ready before they are wanted, made by two threads and destroyed by another.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cni_filter::Filter;
use netops::error::Result as OpResult;
use netops::lock::Lock;
use netops::{Kernel, Netns, OpError, sysctl};

use crate::error::{Error, Result};
use crate::marks::Marks;
use crate::rules::Rules;
use crate::slot::Slot;
use crate::spec::Spec;

/// Slots of one kind, in the network namespace of the thread that opened the pool. Dropping it destroys the ready slots soon, without
/// waiting, and lets the taken ones live; [`Pool::close`] waits and reports.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the pool's threads and slots have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) spec: Spec,
    pub(crate) marks: Marks,
    pub(crate) rules: Mutex<Rules>,
    pub(crate) host: Mutex<Kernel>,
    pub(crate) host_netns: Netns,
    state: Mutex<State>,
    /// A slot is wanted, or the pool was closed.
    wanted: Condvar,
    /// A slot was dropped, or the pool was closed.
    dropped: Condvar,
    /// A slot is ready, could not be made, or was destroyed.
    settled: Condvar,
    _lock: Lock,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<u32>,
    /// Numbers that slots had, the longest unused first.
    free: VecDeque<u32>,
    /// The highest number that a slot ever had.
    last: u32,
    /// Slots that were handed over.
    kept: BTreeSet<u32>,
    dropped: Vec<Gone>,
    /// Slots that are values.
    taken: usize,
    /// Slots that are being made or destroyed.
    busy: usize,
    /// Slots that are being made ahead of demand.
    making: usize,
    /// Why the last slot could not be made ahead of demand: the next one is made at the next demand.
    failure: Option<OpError>,
    /// What could not be destroyed.
    left: Vec<OpError>,
    is_closed: bool,
}

/// The kernel makes two namespaces at a time, and one link.
const MAKERS: usize = 2;
/// How long a slot that is being made or destroyed is waited for.
const TAKE_WITHIN: Duration = Duration::from_secs(30);

/// A slot that is to be destroyed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gone {
    pub(crate) index: u32,
    pub(crate) may_have_ports: bool,
}

/// Locks what a panicking thread may have left: the kernel has the state that counts.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// With the slots that were handed over to living processes.
    fn new(kept: BTreeSet<u32>, slots_max: u32) -> Self {
        let last = kept.last().map_or(0, |last| slots_max.min(*last));
        let free = (1..=last).filter(|number| !kept.contains(number)).collect();
        Self { kept, last, free, ..Self::default() }
    }

    fn number(&mut self, slots_max: u32) -> Option<u32> {
        let unused = || Some(self.last + 1).filter(|next| *next <= slots_max);
        let number = self.free.pop_front().or_else(unused)?;
        self.last = self.last.max(number);
        Some(number)
    }

    /// Returns whether a slot is being made or destroyed, or is to be.
    fn is_moving(&self) -> bool {
        self.busy > 0 || !self.dropped.is_empty()
    }

    /// Returns whether all slots are taken ones.
    fn is_idle(&self) -> bool {
        self.ready.is_empty() && !self.is_moving()
    }

    fn is_over(&self) -> bool {
        self.is_closed && self.taken == 0 && self.is_idle()
    }
}

impl Pool {
    /// Opens a pool: removes what a killed process has left of it, turns on forwarding, and begins to make the slots that should be
    /// ready.
    ///
    /// # Errors
    /// [`Error::Open`]: a pool of this name is open. [`Error::Spec`]; the kernel's refusal.
    pub fn open(spec: Spec) -> Result<Self> {
        let spec = spec.checked()?;
        let marks = Marks::new(&spec.run_folder, &spec.name);
        let lock = marks.open()?;
        let (host, mut filter) = (Kernel::host()?, Filter::open("")?);
        let (_, kept, left) = marks.reconcile(&host, &mut filter);
        Error::left(left)?;
        spec.subnets.iter().try_for_each(|subnet| sysctl::forward((*subnet).into()))?;
        let host_netns = Netns::current().map_err(|error| OpError::state("open", "the host", error.to_string()))?;
        let shared = Arc::new(Shared {
            rules: Mutex::new(Rules::new(filter)),
            host: Mutex::new(host),
            state: Mutex::new(State::new(kept, spec.slots_max)),
            wanted: Condvar::new(),
            dropped: Condvar::new(),
            settled: Condvar::new(),
            spec,
            marks,
            host_netns,
            _lock: lock,
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for _ in 0..pool.shared.spec.ready.min(MAKERS) {
            pool.start("netslot-make", Shared::refill)?;
        }
        pool.start("netslot-end", Shared::reap)?;
        Ok(pool)
    }

    fn start(&mut self, name: &str, work: fn(&Shared, &Kernel)) -> Result<()> {
        let (shared, host) = (Arc::clone(&self.shared), Kernel::host()?);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared, &host));
        self.threads.push(thread.map_err(|error| OpError::io("start", "a thread of the pool", &error))?);
        Ok(())
    }

    /// Takes a slot: a ready one, at once; if there is none, makes one, or waits, 30 s at most, for one that is being made or destroyed.
    ///
    /// # Errors
    /// [`Error::Exhausted`]; the kernel's refusal of a new slot.
    pub fn take(&self) -> Result<Slot> {
        let end = Instant::now() + TAKE_WITHIN;
        let (index, is_ready) = {
            let slots_max = self.shared.spec.slots_max;
            let mut state = locked(&self.shared.state);
            let found = loop {
                let ready = state.ready.pop_front();
                match ready.or_else(|| state.number(slots_max)) {
                    Some(index) => break (index, ready.is_some()),
                    None if state.is_moving() && Instant::now() < end => (),
                    None => return Err(Error::Exhausted(slots_max)),
                }
                let left = end.saturating_duration_since(Instant::now());
                (state, _) = self.shared.settled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            };
            state.taken += 1;
            state.failure = None;
            found
        };
        self.shared.wanted.notify_one();
        let slot = Slot::new(Arc::clone(&self.shared), Gone { index, may_have_ports: false });
        if !is_ready {
            // If that fails, the dropped slot frees its number.
            self.shared.make(&locked(&self.shared.host), index)?;
        }
        Ok(slot)
    }

    /// Waits until as many slots are ready as should be, or no more can be; returns how many are.
    ///
    /// # Errors
    /// The kernel's refusal of a slot.
    pub fn wait_ready(&self, at_most: Duration) -> Result<usize> {
        let Spec { ready, slots_max, .. } = self.shared.spec;
        let may_grow = |state: &State| state.is_moving() || !state.free.is_empty() || state.last < slots_max;
        let is_waiting = |state: &mut State| state.ready.len() < ready && state.failure.is_none() && may_grow(state);
        let state = locked(&self.shared.state);
        let waited = self.shared.settled.wait_timeout_while(state, at_most, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.failure.clone().map_or(Ok(state.ready.len()), |failure| Err(failure.into()))
    }

    /// Destroys slots, their links with one grace period of the kernel, and waits for it.
    ///
    /// # Errors
    /// [`Error::Left`] with all that could not be removed.
    pub fn destroy(&self, slots: impl IntoIterator<Item = Slot>) -> Result<()> {
        let (own, others): (Vec<Slot>, Vec<_>) = slots.into_iter().partition(|slot| slot.is_of(&self.shared));
        let done = self.shared.destroy(own.into_iter().filter_map(|mut slot| slot.give_up()).collect());
        others.into_iter().map(Slot::destroy).fold(done, Result::and)
    }

    /// Takes back a slot that was handed over, also by an earlier process with this pool.
    ///
    /// # Errors
    /// `ENOENT`: no slot with this number was handed over.
    pub fn adopt(&self, index: u32) -> Result<Slot> {
        let mut state = locked(&self.shared.state);
        if !state.kept.remove(&index) {
            return Err(OpError::errno("adopt", format!("slot {index}"), netops::Errno::ENOENT).into());
        }
        state.taken += 1;
        drop(state);
        let slot = Slot::new(Arc::clone(&self.shared), Gone { index, may_have_ports: true });
        self.shared.marks.take_back(index)?;
        Ok(slot)
    }

    /// Destroys the slots whose processes, which they were handed over to, have ended; returns how many.
    ///
    /// # Errors
    /// As [`Pool::destroy`].
    pub fn reclaim(&self) -> Result<usize> {
        let mut state = locked(&self.shared.state);
        let ended: Vec<_> = state.kept.iter().copied().filter(|index| !self.shared.marks.is_living(*index)).collect();
        state.kept.retain(|index| !ended.contains(index));
        state.taken += ended.len();
        drop(state);
        let gone: Vec<_> = ended.into_iter().map(|index| Gone { index, may_have_ports: true }).collect();
        let count = gone.len();
        self.shared.destroy(gone).map(|()| count)
    }

    /// Destroys the ready slots and those that were dropped, and waits for it. With the last taken slot also the pool's elements of
    /// rules end, and another process can open the pool. The tables stay, empty, for the next pool: their rules match elements alone.
    ///
    /// # Errors
    /// [`Error::Left`] with all that could not be removed.
    pub fn close(mut self) -> Result<()> {
        self.shared.close();
        let mut state = locked(&self.shared.state);
        while !state.is_idle() {
            state = self.shared.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_over = state.is_over();
        drop(state);
        if is_over {
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        let left = std::mem::take(&mut locked(&self.shared.state).left);
        Error::left(left)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        let mut state = locked(&self.state);
        state.is_closed = true;
        let ready = std::mem::take(&mut state.ready);
        state.dropped.extend(ready.into_iter().map(|index| Gone { index, may_have_ports: false }));
        drop(state);
        self.wanted.notify_all();
        self.dropped.notify_all();
    }

    /// Makes slots as long as the pool is open: a thread's work.
    fn refill(&self, host: &Kernel) {
        let mut state = locked(&self.state);
        while !state.is_closed {
            let is_wanted = state.ready.len() + state.making < self.spec.ready && state.failure.is_none();
            let Some(index) = is_wanted.then(|| state.number(self.spec.slots_max)).flatten() else {
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            (state.busy, state.making) = (state.busy + 1, state.making + 1);
            drop(state);
            let made = self.make(host, index);
            state = locked(&self.state);
            (state.busy, state.making) = (state.busy - 1, state.making - 1);
            match made {
                Ok(()) if state.is_closed => state.dropped.push(Gone { index, may_have_ports: false }),
                Ok(()) => state.ready.push_back(index),
                Err(error) => {
                    tracing::warn!(%error, "no slot could be made ahead of demand");
                    state.free.push_back(index);
                    state.failure = Some(error);
                }
            }
            self.settled.notify_all();
        }
        drop(state);
        self.dropped.notify_all();
    }

    /// Destroys dropped slots, and at last the rules: a thread's work.
    fn reap(&self, host: &Kernel) {
        let mut state = locked(&self.state);
        while !state.is_over() {
            let gone = std::mem::take(&mut state.dropped);
            if gone.is_empty() {
                state = self.dropped.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.busy += gone.len();
            drop(state);
            let left = self.remove(host, &gone);
            left.iter().for_each(|error| tracing::warn!(%error, "something of a dropped slot is left"));
            self.settle(&gone, left);
            state = locked(&self.state);
        }
        drop(state);
        let (_, _, left) = self.marks.reconcile(host, &mut locked(&self.rules).filter);
        locked(&self.state).left.extend(left);
    }

    fn remove(&self, host: &Kernel, gone: &[Gone]) -> Vec<OpError> {
        let with_ports = gone.iter().filter(|gone| gone.may_have_ports);
        // No lock where there is nothing to do.
        let unpublish = |gone: &Gone| locked(&self.rules).unpublish(&self.marks, gone.index);
        let mut left: Vec<_> = with_ports.map(unpublish).filter_map(OpResult::err).collect();
        let indexes: Vec<_> = gone.iter().map(|gone| gone.index).collect();
        left.extend(self.marks.remove(host, &indexes));
        left
    }

    /// Removes slots that were taken, and waits.
    pub(crate) fn destroy(&self, gone: Vec<Gone>) -> Result<()> {
        let mut state = locked(&self.state);
        state.taken -= gone.len();
        state.busy += gone.len();
        drop(state);
        let left = self.remove(&locked(&self.host), &gone);
        self.settle(&gone, Vec::new());
        Error::left(left)
    }

    /// Frees the numbers of slots that were destroyed; `left` is for [`Pool::close`] to report.
    fn settle(&self, gone: &[Gone], left: Vec<OpError>) {
        let mut state = locked(&self.state);
        state.left.extend(left);
        state.busy -= gone.len();
        // An earlier process of a pool with more slots may have handed over one.
        state.free.extend(gone.iter().map(|gone| gone.index).filter(|index| *index <= self.spec.slots_max));
        drop(state);
        [&self.settled, &self.wanted, &self.dropped].into_iter().for_each(Condvar::notify_all);
    }

    /// Takes a slot from its value: to be destroyed soon, or (`None`) handed over, so that its number stays in use.
    pub(crate) fn give_up(&self, index: u32, gone: Option<Gone>) {
        let mut state = locked(&self.state);
        state.taken -= 1;
        match gone {
            Some(gone) => state.dropped.push(gone),
            None => drop(state.kept.insert(index)),
        }
        drop(state);
        self.dropped.notify_one();
    }
}
