//! Changing a ruleset that other processes change as well: look, change, and look again if it moved.

use netops::error::Result;
use netops::{Errno, OpError};

/// How often somebody else may come first.
const TRIES: usize = 16;

/// Whether the object looked at has come or gone since.
pub(crate) fn is_overtaken(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY | Errno::ERESTART))
}

/// Looks and changes until nobody has come between the two.
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
    fn only_being_overtaken_is_tried_again() {
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
