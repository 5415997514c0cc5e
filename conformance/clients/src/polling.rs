//! Waiting for changes of a runtime that it does not announce.

use std::time::{Duration, Instant};

/// Time for one step of a runtime.
pub const DEADLINE: Duration = Duration::from_secs(20);

const AGAIN: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer: for states of a runtime that it has no event for.
///
/// # Panics
/// When there is none within [`DEADLINE`].
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for {what}");
        std::thread::park_timeout(AGAIN);
    }
}
