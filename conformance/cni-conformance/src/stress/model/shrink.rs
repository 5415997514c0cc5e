//! From a walk that failed to a few steps that show the same.

use super::{Model, Step, clear, empty};
use crate::finding::{Finding, Stop};
use crate::testbed::Testbed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use testns::Remains;

/// The longest time that shrinking tries to do without steps.
const PATIENCE: Duration = Duration::from_secs(30);

/// The fewest of some steps that still fail on an empty node, as far as they are found in time, and what is seen then.
/// `None` if the steps do not fail there. The calls on record afterwards are those of these steps.
pub(super) fn shrunk(testbed: &Testbed, steps: Vec<Step>) -> Option<(Vec<Step>, Finding)> {
    let (least, finding) = fewest(steps, |steps| failure(testbed, steps), PATIENCE)?;
    // Once more, for the calls.
    let finding = failure(testbed, &least).unwrap_or(finding);
    Some((least, finding))
}

/// Returns what is wrong after some steps on an empty node.
fn failure(testbed: &Testbed, steps: &[Step]) -> Option<Finding> {
    let replay = || {
        wipe(testbed);
        let mut model = Model::new(testbed)?;
        testbed.forget_calls();
        steps.iter().try_for_each(|step| model.replay(*step))
    };
    // Whatever the plugin left may also be in the way of wiping it.
    match catch_unwind(AssertUnwindSafe(replay)) {
        Ok(Err(Stop::Fails(finding))) => Some(finding),
        Ok(Ok(()) | Err(Stop::Skips(_))) | Err(_) => None,
    }
}

/// Leaves out halves, quarters and so on down to single ones of a list, as long as `fails` says that it still does.
fn fewest<T: Copy, F>(
    mut all: Vec<T>,
    mut fails: impl FnMut(&[T]) -> Option<F>,
    patience: Duration,
) -> Option<(Vec<T>, F)> {
    let start = Instant::now();
    let mut found = fails(&all)?;
    let mut some = all.len().div_ceil(2);
    while some > 0 && start.elapsed() < patience {
        let before = all.len();
        let mut place = 0;
        while place < all.len() && start.elapsed() < patience {
            let without: Vec<_> = all.iter().take(place).chain(all.iter().skip(place + some)).copied().collect();
            match fails(&without) {
                Some(failure) => (all, found) = (without, failure),
                None => place += some,
            }
        }
        // Single ones again and again, until none can be left out.
        some = if some == 1 && all.len() < before { 1 } else { some / 2 };
    }
    Some((all, found))
}

/// Makes the node what it was before its first container.
fn wipe(testbed: &Testbed) {
    for pod in testbed.pods().iter().filter(|pod| pod.namespace().path().exists()) {
        pod.leave(Remains::Gone);
    }
    clear(testbed);
    for folder in ["/run", "/var/lib/cni", "/etc/cni"] {
        empty(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::fewest;
    use std::time::Duration;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let fails = |list: &[u8]| (list.contains(&7) && list.contains(&70)).then_some(());
        let (least, ()) = fewest((0..100).collect(), fails, Duration::from_secs(60)).unwrap();
        assert_eq!(least, [7, 70]);
        assert!(fewest(vec![1, 2], fails, Duration::from_secs(60)).is_none());
        // Out of time, all of it is reported.
        assert_eq!(fewest((0..100).collect(), fails, Duration::ZERO).unwrap().0.len(), 100);
    }
}
