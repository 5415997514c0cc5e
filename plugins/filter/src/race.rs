//! Changes a ruleset that other processes change, too: reads it, changes it, and starts again if it has changed in
//! between.

use std::time::Duration;

use netops::error::Result;
use netops::lock::Lock;
use netops::{Errno, OpError};

/// The number of attempts.
const TRIES: usize = 16;
/// The lock of the node that stands for a turn.
const QUEUE: &str = "packet-filter";
/// How long to wait in the queue: each of those before takes some milliseconds. One that is stopped must not stop the node.
const QUEUE_DEADLINE: Duration = Duration::from_secs(10);

/// Takes a turn among the plugins' processes that read the ruleset and then change it. Without turns, each of many readers
/// slows the others down, all but one of them have read in vain, and one may never get through. The kernel guards the change
/// itself, so a failure is only logged.
pub(crate) fn queue() -> Option<Lock> {
    let taken = Lock::of_node(QUEUE, QUEUE_DEADLINE);
    taken.inspect_err(|error| tracing::warn!(%error, "changing the packet filter out of turn")).ok()
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
