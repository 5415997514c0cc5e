//! When a process gets its event loop, and what is done where the kernel gives none.
//!
//! Creating one takes a fifth of the instructions of a short call, and most calls never wait, as the kernel answers a
//! netlink request while it is sent. So [`crate::run`] polls without one first, and creates it when the work waits.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use cni_spec::{CniError, Code};
use tokio::runtime::{Builder, Handle};

use crate::run::panic_text;

/// When a plugin has an event loop, which tokio's timers, sockets, processes and tasks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLoop {
    /// The event loop is made at the start of each verb.
    Always,
    /// At the first wait. For verbs that wait through [`crate::Delegate`], [`crate::interrupted`] and other functions
    /// that call [`ready`]; any other use of tokio before that panics.
    WhenWaiting,
}

thread_local! {
    /// Whether this thread polls without an event loop, so that tokio, which sets itself up for the question, need not be asked.
    static IS_WITHOUT: Cell<bool> = const { Cell::new(false) };
    /// Why this thread gets no event loop.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Waits until there is an event loop; the wait itself causes its creation.
///
/// # Errors
/// The kernel gives none (code 5).
pub async fn ready() -> Result<(), CniError> {
    let is_there = || !IS_WITHOUT.get() && Handle::try_current().is_ok();
    unless_refused(poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending })).await
}

/// The output of the work, which needs an event loop as soon as it waits.
///
/// # Errors
/// The kernel gives none (code 5).
pub async fn unless_refused<T>(work: impl Future<Output = T>) -> Result<T, CniError> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => REFUSED.with_borrow(|why| match why {
            Some(why) => Poll::Ready(Err(refused(why))),
            None => Poll::Pending,
        }),
    })
    .await
}

/// Waits until the event loop is there if the plugin's verbs rely on it.
pub(crate) async fn as_needed(wanted: EventLoop) -> Result<(), CniError> {
    match wanted {
        EventLoop::Always => ready().await,
        EventLoop::WhenWaiting => Ok(()),
    }
}

/// Polls the work to its end, in an event loop if it waits.
///
/// # Errors
/// The kernel gives no event loop, or does not let it wait; with the output of the work, whose every further wait has failed
/// ([`ready`]), if it has come to its end.
pub fn run<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, (CniError, Option<T>)> {
    if let Some(done) = poll_without(work.as_mut()) {
        return Ok(done);
    }
    match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(events) => {
            // tokio panics where it cannot wait. The event loop stays until the work has given up what it waits for.
            let waited = catch_unwind(AssertUnwindSafe(|| events.block_on(work.as_mut())));
            waited.map_err(|panic| give_up(&panic_text(&*panic), work))
        }
        Err(error) => Err(give_up(&error.to_string(), work)),
    }
}

fn give_up<T>(why: &str, work: Pin<&mut impl Future<Output = T>>) -> (CniError, Option<T>) {
    REFUSED.set(Some(why.to_owned()));
    let ended = poll_without(work);
    REFUSED.take();
    (refused(why), ended)
}

fn refused(why: &str) -> CniError {
    CniError::new(Code::IO, format!("cannot wait: the kernel gave no event loop: {why}"))
        .detail("Raise the node's limit of open files, or free memory.")
}

/// Polls the work as long as it is ready at once; `None` if it waits for an event.
fn poll_without<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    IS_WITHOUT.set(true);
    let done = loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            break Some(done);
        }
        if !woken.0.swap(false, Ordering::Relaxed) {
            break None;
        }
    };
    IS_WITHOUT.set(false);
    done
}

/// Whether the work that was polled last is ready again at once.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
