//! From a walk that failed to a few steps that show the same.

use super::{Model, Step, clear, empty};
use crate::rules::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The longest time that shrinking tries to do without steps.
const PATIENCE: Duration = Duration::from_secs(30);

/// Some steps that fail on an empty node, without those that are not needed for that as far as they are found in time, and what is
/// seen then. `None` if the steps do not fail there. The calls on record afterwards are those of these steps.
pub(super) fn shrunk(testbed: &Testbed, mut steps: Vec<Step>) -> Option<(Vec<Step>, Finding)> {
    let start = Instant::now();
    let mut finding = failure(testbed, &steps)?;
    let mut count = usize::MAX;
    // A step that needs an earlier one goes before it, and one that made up for an earlier one after it.
    while steps.len() < count {
        count = steps.len();
        for place in (0..count).rev() {
            let mut without = steps.clone();
            without.remove(place);
            if start.elapsed() < PATIENCE
                && let Some(seen) = failure(testbed, &without)
            {
                (steps, finding) = (without, seen);
            }
        }
    }
    // Once more, for the calls.
    let finding = failure(testbed, &steps).unwrap_or(finding);
    Some((steps, finding))
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
