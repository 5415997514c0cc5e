//! Locks: a pod has one operation at a time, different pods run in parallel, garbage collection runs alone.
//!
//! A pod's operation holds three locks, always taken in this order, so that no two operations can wait for each other:
//! its share of the node, the pod's name, its sandbox. Name and sandbox both, because a pod that is started anew has
//! the old name and a new sandbox, and because the old sandbox may be taken down by its ID alone. A collection holds
//! the whole node.
//!
//! Waiting is in order of arrival, so a stream of set-ups cannot delay a collection without end. All of this is in the
//! memory of this process and ends with it: there is no lock file that could be stale.

use crate::pod::PodId;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout_at;

/// The kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the operations")]
pub enum Operation {
    SetUp,
    TearDown,
    Check,
    Gc,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::SetUp => "set-up",
            Operation::TearDown => "tear-down",
            Operation::Check => "check",
            Operation::Gc => "garbage collection",
        })
    }
}

/// An operation in progress or waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The kind.
    pub operation: Operation,
    /// The pod; none for garbage collection.
    pub pod: Option<PodId>,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod {
            Some(pod) => write!(f, "{} of pod {pod}", self.operation),
            None => write!(f, "{}", self.operation),
        }
    }
}

/// An operation that could not begin in time, because others did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The operation that could not begin.
    pub task: Task,
    /// The time that the caller waited.
    pub waited: Duration,
    /// The operations that blocked it, and how long each had been running.
    pub holders: Vec<(Task, Duration)>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot begin {} within {} ms", self.task, self.waited.as_millis())?;
        for (index, (task, running)) in self.holders.iter().enumerate() {
            let lead = if index == 0 { ": in its way" } else { "," };
            write!(f, "{lead} {task}, running for {} ms", running.as_millis())?;
        }
        Ok(())
    }
}

impl std::error::Error for Busy {}

/// All locks of one [`crate::Pods`].
#[derive(Debug, Default)]
pub(crate) struct Locks {
    node: Arc<RwLock<()>>,
    pods: Arc<Keyed>,
    running: Arc<Running>,
}

/// The permission to operate, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The fields are dropped in this order.
    _note: Note,
    _pod: Vec<Claim>,
    _node: NodeGuard,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for what dropping it does")]
enum NodeGuard {
    Share(OwnedRwLockReadGuard<()>),
    All(OwnedRwLockWriteGuard<()>),
}

impl Locks {
    /// Waits until an operation on the pod may begin.
    pub(crate) async fn pod(&self, operation: Operation, pod: &PodId, until: Instant) -> Result<Permit, Busy> {
        let wait = async {
            let node = NodeGuard::Share(self.node.clone().read_owned().await);
            let mut claims = Vec::new();
            for key in Key::of(pod) {
                claims.push(Claim::wait(&self.pods, key).await);
            }
            (node, claims)
        };
        self.hold(Task { operation, pod: Some(pod.clone()) }, wait, until).await
    }

    /// Waits until no operation runs, and lets none begin.
    pub(crate) async fn node(&self, until: Instant) -> Result<Permit, Busy> {
        let wait = async { (NodeGuard::All(self.node.clone().write_owned().await), Vec::new()) };
        self.hold(Task { operation: Operation::Gc, pod: None }, wait, until).await
    }

    async fn hold(
        &self,
        task: Task,
        wait: impl Future<Output = (NodeGuard, Vec<Claim>)>,
        until: Instant,
    ) -> Result<Permit, Busy> {
        let begin = Instant::now();
        match timeout_at(until.into(), wait).await {
            Ok((node, claims)) => Ok(Permit { _note: Note::of(&self.running, task), _pod: claims, _node: node }),
            Err(_) => Err(Busy { waited: begin.elapsed(), holders: self.running.in_the_way_of(&task), task }),
        }
    }

    /// How many pods have a lock: those with an operation, and those that wait.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.pods.0).len()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Name { namespace: String, name: String },
    Sandbox(String),
}

impl Key {
    fn of(pod: &PodId) -> impl Iterator<Item = Key> {
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        // A tear-down by sandbox ID alone has no name, and shares none with others.
        let by_name = (!name.is_empty()).then_some(Key::Name { namespace, name });
        by_name.into_iter().chain([Key::Sandbox(pod.sandbox.to_string())])
    }
}

/// A lock for each key that is held or waited for.
#[derive(Debug, Default)]
struct Keyed(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>);

/// A key's lock, waited for or held.
#[derive(Debug)]
struct Claim {
    table: Arc<Keyed>,
    key: Key,
    lock: Arc<tokio::sync::Mutex<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Claim {
    async fn wait(table: &Arc<Keyed>, key: Key) -> Self {
        let shared = lock(&table.0).entry(key.clone()).or_default().clone();
        // A claim from here on, so that an operation that gives up waiting is counted out too.
        let mut claim = Self { table: table.clone(), key, lock: shared, held: None };
        claim.held = Some(claim.lock.clone().lock_owned().await);
        claim
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The guard holds a second reference to the lock.
        self.held = None;
        let mut table = lock(&self.table.0);
        // Clones are made under the table's lock, so a count of two, the table's and this one, means no other claim.
        if Arc::strong_count(&self.lock) == 2 {
            table.remove(&self.key);
        }
    }
}

/// The running operations, for those that wait.
#[derive(Debug, Default)]
struct Running(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    /// The number of operations that have begun.
    count: u64,
    running: BTreeMap<u64, (Task, Instant)>,
}

#[derive(Debug)]
struct Note {
    running: Arc<Running>,
    number: u64,
}

impl Note {
    fn of(running: &Arc<Running>, task: Task) -> Self {
        let mut all = lock(&running.0);
        let number = all.count;
        all.count += 1;
        all.running.insert(number, (task, Instant::now()));
        Self { running: running.clone(), number }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        lock(&self.running.0).running.remove(&self.number);
    }
}

impl Running {
    /// The operations that block `task`. A pod's operation may also wait behind a collection that itself waits for
    /// others: then those others are reported.
    fn in_the_way_of(&self, task: &Task) -> Vec<(Task, Duration)> {
        let all = lock(&self.0);
        let with_age = |(task, since): &(Task, Instant)| (task.clone(), since.elapsed());
        let same = all.running.values().filter(|(other, _)| match (&task.pod, &other.pod) {
            (Some(own), Some(other)) => Key::of(own).any(|key| Key::of(other).any(|other| other == key)),
            (None, _) | (_, None) => true,
        });
        let same: Vec<_> = same.map(with_age).collect();
        if same.is_empty() { all.running.values().map(with_age).collect() } else { same }
    }
}

/// A panic elsewhere leaves these maps consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pod(name: &str, sandbox: &str) -> PodId {
        PodId::new("default", name, "", sandbox).unwrap()
    }

    fn in_ms(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    fn soon() -> Instant {
        in_ms(20_000)
    }

    /// A test's own deadline is far away: the tests wait for events.
    async fn at_once<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it should not have had to wait")
    }

    fn is_busy(outcome: Result<Permit, Busy>) -> String {
        let mut busy = outcome.expect_err("it should have had to wait");
        busy.waited = Duration::ZERO;
        busy.holders.iter_mut().for_each(|(_, running)| *running = Duration::ZERO);
        busy.to_string()
    }

    #[tokio::test]
    async fn one_operation_at_a_time_for_a_pod_and_for_a_sandbox() {
        let locks = Locks::default();
        let first = at_once(locks.pod(Operation::SetUp, &pod("web", "c1"), soon())).await.unwrap();
        let errors = [
            is_busy(locks.pod(Operation::TearDown, &pod("web", "c1"), in_ms(10)).await),
            is_busy(locks.pod(Operation::SetUp, &pod("web", "c2"), in_ms(10)).await),
            is_busy(locks.pod(Operation::TearDown, &pod("", "c1"), in_ms(10)).await),
            is_busy(locks.node(in_ms(10)).await),
        ];
        expect![[r#"
            cannot begin tear-down of pod default/web (sandbox c1) within 0 ms: in its way set-up of pod default/web (sandbox c1), running for 0 ms
            cannot begin set-up of pod default/web (sandbox c2) within 0 ms: in its way set-up of pod default/web (sandbox c1), running for 0 ms
            cannot begin tear-down of pod default/ (sandbox c1) within 0 ms: in its way set-up of pod default/web (sandbox c1), running for 0 ms
            cannot begin garbage collection within 0 ms: in its way set-up of pod default/web (sandbox c1), running for 0 ms"#]]
        .assert_eq(&errors.join("\n"));
        // Operations on different pods do not block each other.
        let other = at_once(locks.pod(Operation::SetUp, &pod("api", "c3"), soon())).await.unwrap();
        let nameless = at_once(locks.pod(Operation::TearDown, &pod("", "c4"), soon())).await.unwrap();
        let nameless_too = at_once(locks.pod(Operation::TearDown, &pod("", "c5"), soon())).await.unwrap();
        drop((first, other, nameless, nameless_too));
        let collection = at_once(locks.node(soon())).await.unwrap();
        expect!["cannot begin set-up of pod default/web (sandbox c1) within 0 ms: in its way garbage collection, running for 0 ms"]
            .assert_eq(&is_busy(locks.pod(Operation::SetUp, &pod("web", "c1"), in_ms(10)).await));
        drop(collection);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn finished_and_abandoned_operations_leave_no_lock() {
        let locks = Locks::default();
        for number in 0..100 {
            let id = pod(&format!("p{number}"), &format!("c{number}"));
            let held = at_once(locks.pod(Operation::SetUp, &id, soon())).await.unwrap();
            assert_eq!(locks.count(), 2);
            // The first waiter gives up at its deadline, the second is dropped while it waits.
            is_busy(locks.pod(Operation::TearDown, &id, in_ms(1)).await);
            let mut dropped = Box::pin(locks.pod(Operation::TearDown, &id, soon()));
            assert!(tokio::time::timeout(Duration::ZERO, dropped.as_mut()).await.is_err());
            drop(dropped);
            assert_eq!(locks.count(), 2);
            drop(held);
            assert_eq!(locks.count(), 0);
        }
        drop(at_once(locks.node(soon())).await.unwrap());
    }

    /// Each operation begins another of its kind before it ends, so that there is never a moment without one.
    #[tokio::test]
    async fn a_stream_of_set_ups_does_not_keep_a_collection_waiting() {
        let locks = Locks::default();
        let begun = AtomicUsize::new(0);
        let collected = AtomicUsize::new(0);
        let stream = async |lane: usize| {
            let mut last = None;
            for number in 0..100 {
                let id = pod(&format!("p{lane}-{number}"), &format!("c{lane}-{number}"));
                begun.fetch_add(1, Ordering::SeqCst);
                // The previous one is held until the next one has begun, unless a collection came in between.
                let next = tokio::select! {
                    biased;
                    next = locks.pod(Operation::SetUp, &id, soon()) => next,
                    () = tokio::task::yield_now() => { drop(last.take()); locks.pod(Operation::SetUp, &id, soon()).await }
                };
                last = Some(next.unwrap());
                tokio::task::yield_now().await;
            }
        };
        let collect = async {
            drop(locks.node(soon()).await.unwrap());
            collected.store(begun.load(Ordering::SeqCst), Ordering::SeqCst);
        };
        at_once(futures::future::join(join_all((0..4).map(stream)), collect)).await;
        let begun_before = collected.load(Ordering::SeqCst);
        assert!(begun_before < 100, "{begun_before} of 400 set-ups had begun before the collection");
        assert_eq!(locks.count(), 0);
    }

    /// Two tasks that take name and sandbox in opposite order.
    #[tokio::test]
    async fn crosswise_wishes_do_not_wait_for_each_other() {
        let locks = Locks::default();
        let work = async |id: PodId| {
            for _ in 0..100 {
                let held = locks.pod(Operation::SetUp, &id, soon()).await.unwrap();
                tokio::task::yield_now().await;
                drop(held);
            }
        };
        let ids = [pod("a", "x"), pod("a", "y"), pod("b", "x"), pod("b", "y")];
        at_once(join_all(ids.map(work))).await;
        assert_eq!(locks.count(), 0);
    }
}
