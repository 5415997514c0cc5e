//! Whole operations as a runtime makes them, with a config that differs from the profile's, and disturbed ones.

use crate::rules::prelude::*;
use crate::spec_version;
use crate::testbed::Answer;
use testns::trace::{Fate, Traced};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Operations<'a> {
    pub(crate) testbed: &'a Testbed,
    /// Whether the pool has the size that was asked for.
    pub(crate) is_pooled: bool,
    /// Whether CHECK succeeds when nothing is wrong: else it says nothing, and other rules say that it does not.
    has_check: bool,
}

impl<'a> Operations<'a> {
    /// Operations with the profile's own pool.
    pub(crate) fn new(testbed: &'a Testbed) -> Self {
        Self { testbed, is_pooled: false, has_check: false }
    }

    /// Operations with a pool of so many addresses. The pool keeps its size if the kit cannot resize it.
    pub(crate) fn with_pool(testbed: &'a Testbed, addresses: u32) -> Self {
        Self { is_pooled: testbed.set_pool(addresses), ..Self::new(testbed) }
    }

    pub(crate) fn config(
        &self,
        index: usize,
        verb: Verb,
        attachment: &Attachment,
        prev_result: Option<&Value>,
    ) -> Value {
        self.testbed.config_after(index, verb, attachment, self.result_for(verb, prev_result))
    }

    pub(crate) fn call(&self, index: usize, verb: Verb, attachment: &Attachment, prev_result: Option<&Value>) -> Call {
        self.testbed.call_plugin(index, verb, attachment, self.result_for(verb, prev_result))
    }

    fn result_for<'v>(&self, verb: Verb, result: Option<&'v Value>) -> Option<&'v Value> {
        if verb == Verb::Del { self.testbed.result_for_del(result) } else { result }
    }

    /// CHECK, where there is one that succeeded in [`Operations::warm_up`]; has to succeed.
    pub(crate) fn check(&self, attachment: &Attachment, result: &Value) -> Result<(), Stop> {
        match self.has_check {
            true => self.testbed.check(attachment, result),
            false => Ok(()),
        }
    }

    /// ADD and DEL of a container that then goes: what stays for the next one is there from now on.
    pub(crate) fn warm_up(&mut self) -> Result<(), Stop> {
        let pod = self.testbed.pod();
        let result = self.testbed.add(&pod)?;
        self.has_check =
            spec_version::is_from(&self.testbed.version, "0.4.0") && self.testbed.check(&pod, &result).is_ok();
        self.testbed.del(pod.attachment(), Some(&result))?;
        pod.leave(Remains::Gone);
        Ok(())
    }

    /// A container whose namespace has been used once: what that changes in it for good is no leak.
    pub(crate) fn used_pod(&self) -> Result<Container, Stop> {
        let pod = self.testbed.pod();
        let result = self.testbed.add(&pod)?;
        self.testbed.del(pod.attachment(), Some(&result))?;
        Ok(pod)
    }

    /// Skips a plugin that does not serve a container that came and went: that is found by `add.follows-del`, and whatever
    /// is to happen to the plugin has not happened yet.
    pub(crate) fn serves_again(&self, pod: &Container) -> Result<(), Stop> {
        match self.testbed.try_add(&pod.attachment())? {
            Ok(result) => self.testbed.del(pod.attachment(), Some(&result)),
            Err(_) => Err(Stop::skip("its ADD fails for a container that came and went before")),
        }
    }

    /// Shows that nothing is missing for another container.
    pub(crate) fn others_are_served(&self, other: &Container, after: &str) -> Result<(), Stop> {
        let served = || {
            let result = self.testbed.add(other)?;
            self.check(&other.attachment(), &result)?;
            self.testbed.del(other.attachment(), Some(&result))
        };
        served().map_err(|stop| within(stop, &format!("for another container, after {after}")))
    }

    pub(crate) fn disturb(&self, call: &Call, fate: Option<(usize, Fate)>) -> Result<(Traced, Answer), Stop> {
        let traced = call.try_traced(&self.testbed.node, fate);
        let answer = self.testbed.record(call, traced.as_ref().map(|traced| &traced.reply.output))?;
        traced.map(|traced| (traced, answer)).ok_or_else(|| Stop::Skips("the call did not end".to_owned()))
    }

    /// Shows that nothing is left since the testbed was remembered.
    pub(crate) fn nothing_is_left(&self, after: &str) -> Result<(), Stop> {
        match self.testbed.left_behind() {
            left if left.is_empty() => Ok(()),
            left => Err(Finding::new(format!("the node as before, after {after}"), "something is left")
                .with_diff(left)
                .into()),
        }
    }
}

/// Says in a finding when it was found.
pub(crate) fn within(stop: Stop, when: &str) -> Stop {
    match stop {
        Stop::Fails(mut finding) => {
            finding.expected = format!("{} {when}", finding.expected);
            Stop::Fails(finding)
        }
        skips @ Stop::Skips(_) => skips,
    }
}

/// Checks that an answer is a result or a proper error object, whichever.
pub(crate) fn is_proper(answer: &Answer) -> Result<(), Stop> {
    match answer.is_success() {
        true => answer.succeeds().map(drop),
        false => answer.fails().map(drop),
    }
}
