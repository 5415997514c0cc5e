//! Locks: a pod has one operation at a time, different pods run in parallel, garbage collection runs alone.
//!
//! Operations stand in one line, in the order of arrival. One may begin when none before it is in its way: so no two can wait for
//! each other, and a stream of set-ups cannot delay a collection without end. In the way of each other are operations of one pod name,
//! and of one sandbox: a pod that is started anew has the old name and a new sandbox, and the old sandbox may be taken down by its ID
//! alone. The line is in the memory of this process and ends with it: there is no lock file that could be stale.

use crate::pod::PodId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout_at;

/// The kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub task: Task,
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

/// The operations of one [`crate::Pods`].
#[derive(Debug, Default)]
pub(crate) struct Locks(Arc<Line>);

#[derive(Debug, Default)]
struct Line {
    tasks: Mutex<BTreeMap<u64, (Task, Option<Instant>)>>,
    /// Notified when an operation has ended or given up.
    shorter: Notify,
}

/// A place in the line and, once its turn has come, the permission to operate, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    line: Arc<Line>,
    number: u64,
}

impl Locks {
    /// Waits until an operation on the pod may begin.
    pub(crate) async fn pod(&self, operation: Operation, pod: &PodId, until: Instant) -> Result<Permit, Busy> {
        self.wait(Task { operation, pod: Some(pod.clone()) }, until).await
    }

    /// Waits until no operation runs, and lets none begin.
    pub(crate) async fn node(&self, until: Instant) -> Result<Permit, Busy> {
        self.wait(Task { operation: Operation::Gc, pod: None }, until).await
    }

    async fn wait(&self, task: Task, until: Instant) -> Result<Permit, Busy> {
        let begin = Instant::now();
        let permit = Permit::at_the_end_of(&self.0, task.clone());
        let turn = async {
            loop {
                // Made before the look, so that no change after it is missed.
                let shorter = self.0.shorter.notified();
                if permit.try_begin() {
                    return;
                }
                shorter.await;
            }
        };
        match timeout_at(until.into(), turn).await {
            Ok(()) => Ok(permit),
            Err(_) => Err(Busy { waited: begin.elapsed(), holders: permit.holders(), task }),
        }
    }
}

impl Line {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<u64, (Task, Option<Instant>)>> {
        // A panic elsewhere leaves the map consistent.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    fn at_the_end_of(line: &Arc<Line>, task: Task) -> Self {
        let mut tasks = line.tasks();
        let number = tasks.last_key_value().map_or(0, |(last, _)| last + 1);
        tasks.insert(number, (task, None));
        Self { line: line.clone(), number }
    }

    /// Begins unless an operation before this one is in its way.
    fn try_begin(&self) -> bool {
        let mut tasks = self.line.tasks();
        let Some((own, _)) = tasks.get(&self.number).cloned() else { return true };
        let is_free = tasks.range(..self.number).all(|(_, (other, _))| !own.is_in_the_way_of(other));
        if is_free {
            tasks.insert(self.number, (own, Some(Instant::now())));
        }
        is_free
    }

    /// Returns the running operations that block this one. It may also wait behind a collection that itself waits for others: then
    /// those others.
    fn holders(&self) -> Vec<(Task, Duration)> {
        let tasks = self.line.tasks();
        let own = tasks.get(&self.number).map(|(own, _)| own);
        let running = || tasks.values().filter_map(|(task, begun)| Some((task.clone(), begun.as_ref()?.elapsed())));
        let blocking = running().filter(|(task, _)| own.is_some_and(|own| own.is_in_the_way_of(task)));
        let blocking: Vec<_> = blocking.collect();
        if blocking.is_empty() { running().collect() } else { blocking }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.line.tasks().remove(&self.number);
        self.line.shorter.notify_waiters();
    }
}

impl Task {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (&self.pod, &other.pod) else { return true };
        // A tear-down by sandbox ID alone has no name, and shares none with others.
        let is_named = !one.name.is_empty() && (&one.namespace, &one.name) == (&other.namespace, &other.name);
        is_named || one.sandbox == other.sandbox
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn pod(name: &str, sandbox: &str) -> PodId {
        PodId::new("default", name, "", sandbox).unwrap()
    }

    fn in_ms(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    /// Returns a deadline that no test reaches.
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
        // One that is dropped while it waits leaves no place in the line either.
        let mut dropped = Box::pin(locks.node(soon()));
        assert!(tokio::time::timeout(Duration::ZERO, dropped.as_mut()).await.is_err());
        drop(dropped);
        drop(collection);
        assert_eq!(locks.0.tasks().len(), 0);
    }

    /// A stream of set-ups does not delay a collection.
    #[tokio::test]
    async fn a_set_up_waits_behind_a_waiting_collection() {
        let locks = Locks::default();
        let running = at_once(locks.pod(Operation::SetUp, &pod("web", "c1"), soon())).await.unwrap();
        let mut collection = Box::pin(locks.node(soon()));
        assert!(tokio::time::timeout(Duration::ZERO, collection.as_mut()).await.is_err());
        is_busy(locks.pod(Operation::SetUp, &pod("api", "c2"), in_ms(10)).await);
        drop(running);
        at_once(collection).await.unwrap();
    }
}
