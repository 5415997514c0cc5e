//! The scene of most stress rules: a node on which the plugin has worked before, and a pool of one address,
//! so that a container that keeps too much is missed by the next one.

use super::interruption_points::At;
use super::operator::{Operator, is_proper, within};
use crate::bench::{Answer, Bench};
use crate::finding::Stop;
use serde_json::Value;
use std::cell::RefCell;
use testns::trace::{Fate, Traced};
use testns::{Container, Verb};

/// A node with two containers, each of which has been attached and detached once.
pub(crate) struct Scene<'a> {
    pub(crate) operator: Operator<'a>,
    /// The container to which things happen.
    pub(crate) pod: Container,
    /// The container that needs the pool's only address afterwards.
    pub(crate) other: Container,
    /// The result of ADD that a runtime has kept: none if ADD failed, or once a DEL has succeeded.
    kept: RefCell<Option<Value>>,
}

impl<'a> Scene<'a> {
    /// Lays it, and remembers the bench as it is then.
    pub(crate) fn new(bench: &'a Bench) -> Result<Self, Stop> {
        let mut operator = Operator::with_pool(bench, 1);
        operator.warm_up()?;
        let (pod, other) = (operator.used_pod()?, operator.used_pod()?);
        operator.serves_again(&pod)?;
        bench.remember();
        Ok(Self { operator, pod, other, kept: RefCell::default() })
    }

    /// ADD, or DEL after an ADD, in which something may happen to the call of one plugin; those before it succeed.
    pub(crate) fn disturb(
        &self,
        verb: Verb,
        index: usize,
        fate: Option<(usize, Fate)>,
    ) -> Result<(Traced, Answer), Stop> {
        let Self { operator, pod, .. } = self;
        let attachment = pod.attachment();
        self.kept.take();
        if verb == Verb::Add {
            let before = operator.bench.add_until(index, &attachment)?;
            return operator.disturb(&operator.call(index, verb, &attachment, before.as_ref()), fate);
        }
        let result = operator.bench.add(pod)?;
        self.kept.replace(Some(result.clone()));
        let call = |index| operator.call(index, verb, &attachment, Some(&result));
        for later in (index + 1..operator.bench.plugin_count()).rev() {
            operator.bench.make(&call(later))?.succeeds()?;
        }
        operator.disturb(&call(index), fate)
    }

    /// So many DELs that do not know what happened.
    pub(crate) fn del(&self, times: usize, at: &At<'_>) -> Result<(), Stop> {
        let kept = self.kept.borrow();
        (0..times).try_for_each(|_| {
            let done = self.operator.bench.del(self.pod.attachment(), kept.as_ref());
            done.map_err(|stop| within(stop, &format!("of DEL after {at}")))
        })
    }

    /// Shows that a disturbed call was answered, if it lived to answer, and that so many DELs leave nothing of it.
    pub(crate) fn bears(&self, answer: Option<&Answer>, dels: usize, at: &At<'_>) -> Result<(), Stop> {
        answer.map_or(Ok(()), is_proper).map_err(|stop| within(stop, &format!("as {at}")))?;
        self.del(dels, at)?;
        self.operator.nothing_is_left(&format!("{at}, and DEL"))?;
        // Costly, and says little more where no address can be missed.
        match self.operator.is_pooled || at.point.is_multiple_of(8) {
            true => self.operator.others_are_served(&self.other, &at.to_string()),
            false => Ok(()),
        }
    }
}
