//! How long to wait before the next try.

use std::time::Duration;

/// Doubles from the first wait to five minutes, as a kubelet's.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    failures: u32,
}

const LONGEST: Duration = Duration::from_secs(300);

impl Backoff {
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, failures: 0 }
    }

    pub(crate) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// The wait after the failures so far.
    pub(crate) fn next_wait(&self) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_its_end_and_starts_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let mut seconds = Vec::new();
        for _ in 0..11 {
            backoff.fail();
            seconds.push(backoff.next_wait().as_secs());
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        backoff.reset();
        backoff.fail();
        assert_eq!(backoff.next_wait().as_secs(), 1);
    }
}
