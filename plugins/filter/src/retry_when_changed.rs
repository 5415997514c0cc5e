//! Changes a ruleset that other processes change, too: reads it, changes it, and starts again if it has changed in
//! between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netops::error::Result;
use netops::lock::Lock;
use netops::{Errno, OpError};

/// The number of attempts.
const TRIES: usize = 16;
/// The lock of the node that stands for a turn.
const QUEUE: &str = "packet-filter";
/// The time to wait in the queue: each of those before takes some milliseconds, on a busy machine a tenth of a second.
const QUEUE_DEADLINE: Duration = Duration::from_secs(30);
/// True once this process has waited in vain: the holder of the lock is stopped or stuck, and must not stop it once for each table.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Takes a turn among the plugins' processes that read the ruleset and then change it. Without turns, each of many readers
/// slows the others down, all but one of them have read in vain, and one may never get through. The kernel guards the change
/// itself, so a failure is only logged.
pub(crate) fn queue() -> Option<Lock> {
    if IS_STUCK.load(Ordering::Relaxed) {
        return None;
    }
    let out_of_turn = |error: &OpError| {
        tracing::warn!(%error, "changing the packet filter out of turn");
        IS_STUCK.store(true, Ordering::Relaxed);
    };
    Lock::of_node(QUEUE, QUEUE_DEADLINE).inspect_err(out_of_turn).ok()
}

/// Whether the error says that the object appeared or disappeared since it was read.
pub(crate) fn is_overtaken(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY | Errno::ERESTART))
}

/// Reads and changes until no other process has changed the ruleset in between.
pub(crate) fn retry<T>(mut look_and_change: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match look_and_change() {
            Err(error) if is_overtaken(&error) => {}
            done => return done,
        }
    }
    look_and_change()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_changed_ruleset_is_retried() {
        for (errno, expected) in [(Errno::ENOENT, 3), (Errno::EEXIST, 3), (Errno::EPERM, 1)] {
            let mut tries = 0;
            let outcome = retry(|| {
                tries += 1;
                if tries < 3 { Err(OpError::errno("create", "it", errno)) } else { Ok(()) }
            });
            assert_eq!((tries, outcome.is_ok()), (expected, expected == 3), "{errno}");
        }
    }
}
