//! The only way in which this crate fails: a panic with a whole sentence.

use std::fmt::Display;

/// Returns the value or ends the test with a message about what could not be done and why.
pub(crate) trait Must<T> {
    /// Panics with `cannot WHAT: WHY`.
    fn must(self, what: impl Display) -> T;
}

impl<T, E: Display> Must<T> for Result<T, E> {
    #[track_caller]
    fn must(self, what: impl Display) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("cannot {what}: {error}"),
        }
    }
}

impl<T> Must<T> for Option<T> {
    #[track_caller]
    fn must(self, what: impl Display) -> T {
        match self {
            Some(value) => value,
            None => panic!("cannot {what}: there is none"),
        }
    }
}
