//! Recovery from a disturbed call: DEL succeeds, nothing is left, and another container is served. The pool has one address,
//! so that the other container misses what the first one keeps.

use super::interruption_points::At;
use super::operations::{Operations, is_proper, within};
use crate::rules::prelude::*;
use crate::testbed::Answer;
use std::cell::RefCell;
use testns::trace::{Fate, Traced};

/// A node with two containers, each of which has been attached and detached once.
pub(crate) struct Recovery<'a> {
    pub(crate) operations: Operations<'a>,
    /// The container to which things happen.
    pub(crate) pod: Container,
    /// The container that needs the pool's only address afterwards.
    pub(crate) other: Container,
    /// The result of ADD that a runtime has kept: none if ADD failed, or once a DEL has succeeded.
    kept: RefCell<Option<Value>>,
}

impl<'a> Recovery<'a> {
    /// Sets it up, and remembers the testbed as it is then.
    pub(crate) fn new(testbed: &'a Testbed) -> Result<Self, Stop> {
        let mut operations = Operations::with_pool(testbed, 1);
        operations.warm_up()?;
        let (pod, other) = (operations.used_pod()?, operations.used_pod()?);
        operations.serves_again(&pod)?;
        testbed.remember();
        Ok(Self { operations, pod, other, kept: RefCell::default() })
    }

    /// ADD, or DEL after an ADD, in which something may happen to the call of one plugin; those before it succeed.
    pub(crate) fn disturb(
        &self,
        verb: Verb,
        index: usize,
        fate: Option<(usize, Fate)>,
    ) -> Result<(Traced, Answer), Stop> {
        let Self { operations, pod, .. } = self;
        let attachment = pod.attachment();
        self.kept.take();
        if verb == Verb::Add {
            let before = operations.testbed.add_until(index, &attachment)?;
            return operations.disturb(&operations.call(index, verb, &attachment, before.as_ref()), fate);
        }
        let result = operations.testbed.add(pod)?;
        self.kept.replace(Some(result.clone()));
        let call = |index| operations.call(index, verb, &attachment, Some(&result));
        for later in (index + 1..operations.testbed.plugin_count()).rev() {
            operations.testbed.make(&call(later))?.succeeds()?;
        }
        operations.disturb(&call(index), fate)
    }

    /// So many DELs that do not know what happened.
    pub(crate) fn del(&self, times: usize, at: &At<'_>) -> Result<(), Stop> {
        let kept = self.kept.borrow();
        (0..times).try_for_each(|_| {
            let done = self.operations.testbed.del(self.pod.attachment(), kept.as_ref());
            done.map_err(|stop| within(stop, &format!("of DEL after {at}")))
        })
    }

    /// Shows that a disturbed call was answered, if it lived to answer, and that so many DELs leave nothing of it.
    pub(crate) fn bears(&self, answer: Option<&Answer>, dels: usize, at: &At<'_>) -> Result<(), Stop> {
        answer.map_or(Ok(()), is_proper).map_err(|stop| within(stop, &format!("as {at}")))?;
        self.del(dels, at)?;
        self.operations.nothing_is_left(&format!("{at}, and DEL"))?;
        // Costly, and says little more where no address can be missed.
        match self.operations.is_pooled || at.point.is_multiple_of(8) {
            true => self.operations.others_are_served(&self.other, &at.to_string()),
            false => Ok(()),
        }
    }
}
