//! All or nothing: what a failed, cancelled or panicking plan has done is taken back, newest first.
//!
//! A step pushes its undo before or together with its change. An undo is data, so it can be printed and
//! compared; an [`Undoer`] carries it out, and knows the connections and delegates it takes. Callers add
//! kinds of their own by an enum around [`NodeUndo`].

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};

use crate::error::OpError;
use crate::kernel::Kernel;
use crate::link::Link;
use crate::unlink;
use crate::watch::within;

/// How long one undo may take.
pub const UNDO_DEADLINE: Duration = Duration::from_secs(30);

/// The same after an interruption. Whoever asked the process to end waits for it, and removes by DEL what is left.
pub const INTERRUPTED_UNDO_DEADLINE: Duration = Duration::from_secs(3);

/// Carries out undos.
pub trait Undoer {
    /// The kinds of undo. Their text is what `details` says was undone: `link vethab12 deleted`.
    type Undo: fmt::Display;

    /// Takes one change back. A change that never happened, or is already gone, is taken back.
    ///
    /// # Errors
    /// What is left on the node, and why.
    fn undo(&self, undo: &Self::Undo) -> impl Future<Output = Result<(), String>>;
}

/// What was done so far, as what would take it back.
#[derive(Debug)]
pub struct Txn<U> {
    undos: RefCell<Vec<U>>,
}

impl<U> Txn<U> {
    /// Notes how to take the next change back. Call it before the change wherever its undo is known by then.
    pub fn push(&self, undo: U) {
        self.undos.borrow_mut().push(undo);
    }

    /// Forgets the newest undo: the change it belongs to did not happen after all.
    pub fn forget_newest(&self) {
        drop(self.undos.borrow_mut().pop());
    }

    /// Lets a cancellation through. Netlink requests do not wait, so without it a cancelled plan would
    /// only notice at its next wait.
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

/// A plan that did not succeed, and what became of the node.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed<E> {
    /// Why.
    pub why: Why<E>,
    /// What was taken back, newest first.
    pub undone: Vec<String>,
    /// What could not be taken back, and why.
    pub left: Vec<String>,
}

/// Why a plan did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub enum Why<E> {
    /// A step failed.
    Error(E),
    /// The plan was told to stop.
    Cancelled,
}

impl<E> Failed<E> {
    /// One sentence each on what was undone and what is left, for an error's details; empty if nothing was done.
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

/// Runs `plan`; on error, on panic and when `cancel` completes first, takes back what it pushed.
///
/// # Errors
/// [`Failed`] with the plan's error. A panic goes on after the undos.
pub async fn run<T, E, D: Undoer>(
    undoer: &D,
    cancel: impl Future<Output = ()>,
    plan: impl AsyncFnOnce(&Txn<D::Undo>) -> Result<T, E>,
) -> Result<T, Failed<E>> {
    let txn = Txn { undos: RefCell::new(Vec::new()) };
    let outcome = {
        // A panic leaves only `undos` behind, which every push keeps whole.
        let plan = AssertUnwindSafe(plan(&txn)).catch_unwind();
        match select(pin!(cancel), pin!(plan)).await {
            Either::Left(((), _plan)) => Ok(Err(Why::Cancelled)),
            Either::Right((outcome, _cancel)) => outcome.map(|done| done.map_err(Why::Error)),
        }
    };
    let undos = txn.undos.into_inner();
    match outcome {
        Ok(Ok(done)) => Ok(done),
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

async fn take_back<D: Undoer>(undoer: &D, mut undos: Vec<D::Undo>, deadline: Duration) -> (Vec<String>, Vec<String>) {
    let (mut undone, mut left) = (Vec::new(), Vec::new());
    while let Some(undo) = undos.pop() {
        // An undo that panics must not keep the others from running.
        let work = pin!(AssertUnwindSafe(undoer.undo(&undo)).catch_unwind());
        match within(deadline, work).await {
            Some(Ok(Ok(()))) => undone.push(undo.to_string()),
            Some(Ok(Err(why))) => left.push(why),
            Some(Err(_panic)) => left.push(format!("not done for a defect: {undo}")),
            None => left.push(format!("not done within {deadline:?}: {undo}")),
        }
    }
    (undone, left)
}

/// Undos of changes to the node's own namespace. What lies in a container's namespace goes with its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeUndo {
    /// Deletes a link; of a veth, both ends.
    DeleteLink(Link),
}

impl fmt::Display for NodeUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteLink(link) => write!(f, "link {} deleted", link.name),
        }
    }
}

impl NodeUndo {
    /// Takes the change back.
    ///
    /// # Errors
    /// As the kernel refuses; absence is success.
    pub fn run(&self, net: &Kernel) -> Result<(), OpError> {
        let done = match self {
            Self::DeleteLink(link) => net.run(unlink::request(&link.into())),
        };
        match done {
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

        async fn undo(&self, undo: &&'static str) -> Result<(), String> {
            self.0.borrow_mut().push((*undo).to_owned());
            match *undo {
                "stuck" => Err("stuck stays".into()),
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
    fn success_undoes_nothing() {
        let book = Book::default();
        let done = block_on(run(&book, std::future::pending(), async |txn| {
            txn.push("a");
            Ok::<_, ()>(7)
        }));
        assert_eq!(done, Ok(7));
        assert!(book.0.borrow().is_empty());
    }

    #[test]
    fn an_error_undoes_newest_first_past_failures_and_panics() {
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
    fn a_panic_goes_on_after_the_undos() {
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
