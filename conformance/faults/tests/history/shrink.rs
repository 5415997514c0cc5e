//! Makes a history that fails smaller: leaves out steps that are not needed for the failure.

use std::time::Instant;

use crate::step::History;

/// The smallest history found until the deadline for which `fails` holds, with the numbers of its steps in the whole one.
pub(crate) fn shrink(whole: &History, deadline: Instant, fails: impl Fn(&History) -> bool) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..whole.steps.len()).collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < kept.len() && Instant::now() < deadline {
            let without: Vec<_> = kept[..at].iter().chain(kept.iter().skip(at + size)).copied().collect();
            if fails(&whole.only(&without)) {
                kept = without;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    kept
}

impl History {
    /// The history of these steps only.
    pub(crate) fn only(&self, steps: &[usize]) -> Self {
        Self { steps: steps.iter().filter_map(|at| self.steps.get(*at)).copied().collect() }
    }
}
