//! All or nothing: what a failed, cancelled or panicking plan has done is undone, newest first.
//!
//! A step pushes its undo before or together with its change. An undo is data, so it can be printed and compared. An
//! [`Undoer`] carries it out; it has the connections and delegates that this needs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};

use crate::error::OpError;
use crate::link::Link;
use crate::link_removal;
use crate::netlink_connection::Kernel;
use crate::watch::within;

/// The deadline of one undo.
pub const UNDO_DEADLINE: Duration = Duration::from_secs(30);

/// The deadline of one undo after an interruption. The runtime waits for the plugin to end, and calls DEL for what is
/// left.
pub const INTERRUPTED_UNDO_DEADLINE: Duration = Duration::from_secs(3);

/// Carries out undos.
pub trait Undoer {
    /// The undos. Their text appears in an error's `details`: `link vethab12 deleted`.
    type Undo: fmt::Display;
    /// A change that could not be undone. Its text, what is left on the node and why, appears in an error's `details`.
    type Left: fmt::Display;

    /// Undoes one change. A change that never happened, or that is already gone, counts as undone.
    ///
    /// # Errors
    /// The change is left on the node.
    fn undo(&self, undo: &Self::Undo) -> impl Future<Output = Result<(), Self::Left>>;
}

/// The undos of all changes so far.
#[derive(Debug)]
pub struct Txn<U> {
    undos: RefCell<Vec<U>>,
    last: RefCell<Option<U>>,
}

impl<U> Txn<U> {
    /// Adds the undo of the next change. Call it before the change, if the undo is known by then.
    pub fn push(&self, undo: U) {
        self.undos.borrow_mut().push(undo);
    }

    /// Sets the one undo that runs after all others, in place of the one that was set before.
    pub fn set_last(&self, undo: Option<U>) {
        self.last.replace(undo);
    }

    /// Gives a cancellation the chance to take effect. Netlink requests never yield, so without a checkpoint the plan
    /// would be cancelled only at its next wait.
    pub async fn checkpoint(&self) {
        let mut polled = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut polled, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }
}

/// A plan that did not succeed, and the state of the node afterwards.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed<E> {
    /// The reason.
    pub why: Why<E>,
    /// The changes that were undone, newest first.
    pub undone: Vec<String>,
    /// The changes that could not be undone, and why.
    pub left: Vec<String>,
}

/// The reason why a plan did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub enum Why<E> {
    /// A step failed.
    Error(E),
    /// The plan was cancelled.
    Cancelled,
}

impl<E> Failed<E> {
    /// A sentence each about what was undone and what is left, for an error's details. Empty if nothing was changed.
    #[must_use]
    pub fn aftermath(&self) -> String {
        let mut sentences = Vec::new();
        if !self.undone.is_empty() {
            sentences.push(format!("Undone: {}.", self.undone.join("; ")));
        }
        if !self.left.is_empty() {
            sentences.push(format!("Left behind: {}.", self.left.join("; ")));
        }
        sentences.join(" ")
    }
}

/// Runs `plan`. On an error, on a panic and if `cancel` completes first, it carries out the undos that were pushed.
///
/// # Errors
/// [`Failed`] with the plan's error. A panic continues after the undos.
pub async fn run<T, E, D: Undoer>(
    undoer: &D,
    cancel: impl Future<Output = ()>,
    plan: impl AsyncFnOnce(&Txn<D::Undo>) -> Result<T, E>,
) -> Result<T, Failed<E>> {
    run_and_keep(undoer, cancel, plan).await.map(|(done, _undos)| done)
}

/// As [`run`]; also returns the undos, oldest first, of a plan that succeeded: for a caller that may still have to take it back.
///
/// # Errors
/// As [`run`].
pub async fn run_and_keep<T, E, D: Undoer>(
    undoer: &D,
    cancel: impl Future<Output = ()>,
    plan: impl AsyncFnOnce(&Txn<D::Undo>) -> Result<T, E>,
) -> Result<(T, Vec<D::Undo>), Failed<E>> {
    let txn = Txn { undos: RefCell::default(), last: RefCell::default() };
    let outcome = {
        // After a panic only the undos are used, which every call of `txn` leaves in a valid state.
        let plan = AssertUnwindSafe(plan(&txn)).catch_unwind();
        match select(pin!(cancel), pin!(plan)).await {
            Either::Left(((), _plan)) => Ok(Err(Why::Cancelled)),
            Either::Right((outcome, _cancel)) => outcome.map(|done| done.map_err(Why::Error)),
        }
    };
    let undos: Vec<_> = txn.last.into_inner().into_iter().chain(txn.undos.into_inner()).collect();
    match outcome {
        Ok(Ok(done)) => Ok((done, undos)),
        Ok(Err(why)) => {
            let deadline = match &why {
                Why::Error(_) => UNDO_DEADLINE,
                Why::Cancelled => INTERRUPTED_UNDO_DEADLINE,
            };
            let (undone, left) = take_back(undoer, undos, deadline).await;
            Err(Failed { why, undone, left })
        }
        Err(panic) => {
            let (undone, left) = take_back(undoer, undos, UNDO_DEADLINE).await;
            tracing::error!(?undone, ?left, "the plan panicked");
            std::panic::resume_unwind(panic)
        }
    }
}

/// Carries out undos, the last of the list first, each with this deadline; an undo that panics does not prevent the others. Returns
/// what was undone and what is left, in the order of the work.
pub async fn take_back<D: Undoer>(
    undoer: &D,
    mut undos: Vec<D::Undo>,
    deadline: Duration,
) -> (Vec<String>, Vec<String>) {
    let (mut undone, mut left) = (Vec::new(), Vec::new());
    while let Some(undo) = undos.pop() {
        let work = pin!(AssertUnwindSafe(undoer.undo(&undo)).catch_unwind());
        match within(deadline, work).await {
            Some(Ok(Ok(()))) => undone.push(undo.to_string()),
            Some(Ok(Err(why))) => left.push(why.to_string()),
            Some(Err(_panic)) => left.push(format!("not done for a defect: {undo}")),
            None => left.push(format!("not done within {deadline:?}: {undo}")),
        }
    }
    (undone, left)
}

/// The undo of a link that was made in the host's namespace: it is deleted, for a veth with both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteLink(pub Link);

impl fmt::Display for DeleteLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} deleted", self.0.name)
    }
}

impl DeleteLink {
    /// Undoes the change.
    ///
    /// # Errors
    /// As the kernel refuses; if the link is gone already, this succeeds.
    pub fn run(&self, net: &Kernel) -> Result<(), OpError> {
        match net.run(link_removal::request(&(&self.0).into())) {
            Err(error) if error.is_absent() => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Book(RefCell<Vec<String>>);

    impl Undoer for Book {
        type Undo = &'static str;
        type Left = &'static str;

        async fn undo(&self, undo: &&'static str) -> Result<(), &'static str> {
            self.0.borrow_mut().push((*undo).to_owned());
            match *undo {
                "stuck" => Err("stuck stays"),
                "broken" => panic!("broken"),
                _ => Ok(()),
            }
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(work)
    }

    #[test]
    fn after_an_error_all_undos_run_newest_first_even_if_some_fail_or_panic() {
        let book = Book::default();
        let failed = block_on(run(&book, std::future::pending(), async |txn| {
            for undo in ["a", "broken", "stuck", "b"] {
                txn.push(undo);
            }
            Err::<(), _>("no")
        }))
        .unwrap_err();
        assert_eq!(failed.why, Why::Error("no"));
        assert_eq!(failed.undone, ["b", "a"]);
        assert_eq!(failed.left, ["stuck stays", "not done for a defect: broken"]);
        assert_eq!(*book.0.borrow(), ["b", "stuck", "broken", "a"]);
        let text = "Undone: b; a. Left behind: stuck stays; not done for a defect: broken.";
        assert_eq!(failed.aftermath(), text);
    }

    #[test]
    fn a_cancelled_plan_is_undone_at_its_next_checkpoint() {
        let book = Book::default();
        let steps = RefCell::new(0);
        let cancel = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            match *steps.borrow() {
                3.. => std::task::Poll::Ready(()),
                _ => std::task::Poll::Pending,
            }
        });
        let failed = block_on(run(&book, cancel, async |txn| {
            loop {
                txn.push("step");
                *steps.borrow_mut() += 1;
                txn.checkpoint().await;
                if *steps.borrow() > 100 {
                    return Err::<(), _>("never cancelled");
                }
            }
        }))
        .unwrap_err();
        assert_eq!(failed.why, Why::Cancelled);
        assert_eq!(failed.undone.len(), 3);
    }

    #[test]
    fn a_panic_continues_after_the_undos() {
        let book = Book::default();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            block_on(run(&book, std::future::pending(), async |txn| {
                txn.push("a");
                if book.0.borrow().is_empty() {
                    panic!("defect");
                }
                Ok::<_, ()>(())
            }))
        }));
        assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "defect");
        assert_eq!(*book.0.borrow(), ["a"]);
    }
}
