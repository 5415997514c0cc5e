//! Whole operations as a runtime makes them, with a config that differs from the profile's, and disturbed ones.

use crate::bench::{Answer, Bench};
use crate::finding::{Finding, Stop};
use crate::form;
use serde_json::{Value, json};
use testns::trace::{Fate, Traced};
use testns::{Attachment, Call, Container, Remains, Verb};

/// Makes operations on a bench.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator<'a> {
    pub(crate) bench: &'a Bench,
    /// The number of addresses in the pool, if the kit can say that.
    pool: Option<u32>,
    /// Whether CHECK succeeds when nothing is wrong: else it says nothing, and other rules say that it does not.
    has_check: bool,
}

impl<'a> Operator<'a> {
    /// An operator with the profile's own pool.
    pub(crate) fn new(bench: &'a Bench) -> Self {
        Self { bench, pool: None, has_check: false }
    }

    /// An operator with a pool of so many addresses; as large as ever if the kit does not know how to make it smaller.
    pub(crate) fn with_pool(bench: &'a Bench, addresses: u32) -> Self {
        Self { bench, pool: Some(addresses), has_check: false }
    }

    /// Whether the pool has the size that was asked for.
    pub(crate) fn is_pooled(&self) -> bool {
        let profile = &self.bench.profile;
        let sized = |index, size| profile.resize(&mut profile.config(index, &self.bench.version, 0), size);
        self.pool.is_some_and(|size| (0..self.bench.plugin_count()).any(|index| sized(index, size)))
    }

    /// The same operator, if its pool has the size that was asked for.
    pub(crate) fn or_skip(self) -> Result<Self, Stop> {
        match self.is_pooled() {
            true => Ok(self),
            false => Err(Stop::skip("the kit does not know how to make its pool small (PROFILES.md, pool.sizes)")),
        }
    }

    /// The config of a call.
    pub(crate) fn config(
        &self,
        index: usize,
        verb: Verb,
        attachment: &Attachment,
        prev_result: Option<&Value>,
    ) -> Value {
        // Before 0.4.0 runtimes had no result by the time of DEL.
        let prev_result = prev_result.filter(|_| verb != Verb::Del || form::is_from(&self.bench.version, "0.4.0"));
        let call = self.bench.call_plugin(index, verb, attachment, prev_result);
        let (_, _, stdin) = call.invocation(&self.bench.node);
        let mut config = serde_json::from_str(&stdin).unwrap_or_default();
        if let Some(addresses) = self.pool {
            self.bench.profile.resize(&mut config, addresses);
        }
        config
    }

    /// A call of one plugin.
    pub(crate) fn call(&self, index: usize, verb: Verb, attachment: &Attachment, prev_result: Option<&Value>) -> Call {
        let config = self.config(index, verb, attachment, prev_result);
        self.bench.call_executable(self.bench.profile.executable(index), verb, config, attachment)
    }

    /// ADD of the plugins from the first to before the `end`th; has to succeed. The last result.
    pub(crate) fn add_until(&self, end: usize, attachment: &Attachment) -> Result<Option<Value>, Stop> {
        let mut result = None;
        for index in 0..end {
            let call = self.call(index, Verb::Add, attachment, result.as_ref());
            result = Some(self.bench.make(&call)?.succeeds()?);
        }
        Ok(result)
    }

    /// ADD; has to succeed.
    pub(crate) fn add(&self, pod: &Container) -> Result<Value, Stop> {
        Ok(self.add_until(self.bench.plugin_count(), &pod.attachment())?.unwrap_or_default())
    }

    /// ADD, perhaps without success: then the answer of the plugin that failed.
    pub(crate) fn try_add(&self, attachment: &Attachment) -> Result<Result<Value, Answer>, Stop> {
        let mut result = None;
        for index in 0..self.bench.plugin_count() {
            let answer = self.bench.make(&self.call(index, Verb::Add, attachment, result.as_ref()))?;
            if !answer.is_success() {
                return Ok(Err(answer));
            }
            result = Some(answer.succeeds()?);
        }
        Ok(Ok(result.unwrap_or_default()))
    }

    /// DEL, with the result of ADD if there is one; has to succeed.
    pub(crate) fn del(&self, attachment: &Attachment, result: Option<&Value>) -> Result<(), Stop> {
        for index in (0..self.bench.plugin_count()).rev() {
            self.bench.make(&self.call(index, Verb::Del, attachment, result))?.succeeds()?;
        }
        Ok(())
    }

    /// CHECK, where there is one that succeeded in [`Operator::warm_up`]; has to succeed.
    pub(crate) fn check(&self, attachment: &Attachment, result: &Value) -> Result<(), Stop> {
        match self.has_check {
            true => self.check_each(attachment, result),
            false => Ok(()),
        }
    }

    fn check_each(&self, attachment: &Attachment, result: &Value) -> Result<(), Stop> {
        for index in 0..self.bench.plugin_count() {
            self.bench.make(&self.call(index, Verb::Check, attachment, Some(result)))?.succeeds()?;
        }
        Ok(())
    }

    /// Calls of GC that leave these attachments alone, one for each plugin.
    pub(crate) fn gc_calls(&self, valid: &[Attachment]) -> Vec<Call> {
        let entry = |a: &Attachment| json!({ "containerID": a.container_id, "ifname": a.ifname });
        let valid: Vec<_> = valid.iter().map(entry).collect();
        let call = |index| {
            let mut config = self.config(index, Verb::Gc, &Attachment::none(), None);
            config["cni.dev/valid-attachments"] = json!(valid);
            self.bench.call_executable(self.bench.profile.executable(index), Verb::Gc, config, Attachment::none())
        };
        (0..self.bench.plugin_count()).map(call).collect()
    }

    /// ADD and DEL of a container that then goes: what stays for the next one is there from now on.
    pub(crate) fn warm_up(&mut self) -> Result<(), Stop> {
        let pod = self.bench.pod();
        let result = self.add(&pod)?;
        self.has_check =
            form::is_from(&self.bench.version, "0.4.0") && self.check_each(&pod.attachment(), &result).is_ok();
        self.del(&pod.attachment(), Some(&result))?;
        pod.leave(Remains::Gone);
        Ok(())
    }

    /// A container whose namespace has been used once: what that changes in it for good is no leak.
    pub(crate) fn used_pod(&self) -> Result<Container, Stop> {
        let pod = self.bench.pod();
        let result = self.add(&pod)?;
        self.del(&pod.attachment(), Some(&result))?;
        Ok(pod)
    }

    /// Skips a plugin that does not serve a container that came and went: that is found by `add.follows-del`, and whatever
    /// is to happen to the plugin has not happened yet.
    pub(crate) fn serves_again(&self, pod: &Container) -> Result<(), Stop> {
        match self.try_add(&pod.attachment())? {
            Ok(result) => self.del(&pod.attachment(), Some(&result)),
            Err(_) => Err(Stop::skip("its ADD fails for a container that came and went before")),
        }
    }

    /// Shows that nothing is missing for another container.
    pub(crate) fn others_are_served(&self, other: &Container, after: &str) -> Result<(), Stop> {
        let served = || {
            let result = self.add(other)?;
            self.check(&other.attachment(), &result)?;
            self.del(&other.attachment(), Some(&result))
        };
        served().map_err(|stop| within(stop, &format!("for another container, after {after}")))
    }

    /// Makes a call with a fate and records it.
    pub(crate) fn disturb(&self, call: &Call, fate: Option<(usize, Fate)>) -> Result<(Traced, Answer), Stop> {
        let traced = call.try_traced(&self.bench.node, fate);
        let answer = self.bench.record(call, traced.as_ref().map(|traced| &traced.reply.output))?;
        traced.map(|traced| (traced, answer)).ok_or_else(|| Stop::Skips("the call did not end".to_owned()))
    }

    /// Shows that nothing is left since the bench was remembered.
    pub(crate) fn nothing_is_left(&self, after: &str) -> Result<(), Stop> {
        match self.bench.left_behind() {
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
