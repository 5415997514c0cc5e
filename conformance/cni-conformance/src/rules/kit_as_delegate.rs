//! A plugin that delegates, with the kit's own IPAM plugin as the witness.

use super::attached::with_kit_ipam;
use crate::kit_ipam;
use crate::rules::prelude::*;
use crate::spec_version::is_from;
use crate::testbed::Answer;

/// A pod and a config with the kit's own IPAM plugin as delegate.
pub(super) struct KitAsDelegate<'a> {
    pub(super) testbed: &'a Testbed,
    pub(super) pod: Container,
    pub(super) config: Value,
}

impl<'a> KitAsDelegate<'a> {
    pub(super) fn new(testbed: &'a Testbed) -> Result<Self, Stop> {
        let pod = testbed.pod();
        let config = with_kit_ipam(testbed, Verb::Add, &pod.attachment(), &[])?;
        Ok(Self { testbed, pod, config })
    }

    /// The same, skipped where the delegate is asked for more than addresses.
    pub(super) fn of_ipam(testbed: &'a Testbed) -> Result<Self, Stop> {
        Stop::skip_if(testbed.profile.delegate.is_some(), "its delegate is no IPAM plugin")?;
        Self::new(testbed)
    }

    pub(super) fn set(&mut self, key: &str, value: Value) {
        if let Some(delegate) = self.testbed.profile.delegate_of(&mut self.config) {
            delegate[key] = value;
        }
    }

    /// A call, of a verb about containers about the pod.
    pub(super) fn call(&self, verb: Verb) -> Call {
        let about_pod = matches!(verb, Verb::Add | Verb::Del | Verb::Check);
        let attachment = if about_pod { self.pod.attachment() } else { Attachment::none() };
        self.testbed.call_with(verb, &self.config, attachment)
    }

    pub(super) fn make(&self, verb: Verb) -> Result<Answer, Stop> {
        self.testbed.make(&self.call(verb))
    }

    /// DEL as a runtime makes it, which has kept the result of ADD: whether it is needed is asked elsewhere.
    pub(super) fn del(&self, result: &Value) -> Call {
        match is_from(&self.testbed.version, "0.4.0") {
            true => self.call(Verb::Del).prev_result(result),
            false => self.call(Verb::Del),
        }
    }

    pub(super) fn add(&self) -> Result<Value, Stop> {
        self.make(Verb::Add)?.succeeds()
    }
}

/// Checks that the delegate is called with a verb: how often is not said.
pub(super) fn is_called(testbed: &Testbed, verb: &str) -> Result<(), Stop> {
    let verbs = testbed.ipam().verbs();
    let is_there = verbs.iter().any(|called| called == verb);
    Finding::unless(is_there, format!("{verb} of the IPAM plugin"), format!("its calls were {verbs:?}"))
}

/// Checks that each call of the delegate had these keys, but for VERSION.
pub(super) fn had(testbed: &Testbed, keys: &serde_json::Map<String, Value>) -> Result<(), Stop> {
    let calls = testbed.ipam().calls().into_iter().filter(|call| call.verb != "VERSION");
    let mut lacking = calls.filter(|call| keys.iter().any(|(key, value)| call.config()[key] != *value));
    Finding::unless_none(lacking.next(), |call| {
        (format!("{} of the IPAM plugin with {}", call.verb, json!(keys)), format!("it got {}", call.stdin))
    })
}

/// The delegate's call that belongs to an answer: that there is one is asked by other rules.
fn latest_call(testbed: &Testbed, answer: &Answer) -> Result<kit_ipam::IpamCall, Stop> {
    let verb = answer.record().verb();
    let call = testbed.ipam().calls().into_iter().rfind(|call| call.verb != "VERSION");
    let call = call.filter(|call| call.verb == verb);
    let basis = match verb {
        "GC" => "gc.forwards",
        "STATUS" => "status.forwards",
        _ => "delegation.forwards",
    };
    let none = || Finding::new(format!("{verb} of the IPAM plugin"), "it was not called").based_on(basis);
    call.ok_or_else(|| none().into())
}

/// Checks that the delegate's latest call had all variables of the call that was made.
pub(super) fn environment_is_of(testbed: &Testbed, answer: &Answer) -> Result<(), Stop> {
    let call = latest_call(testbed, answer)?;
    for (name, value) in &answer.record().environment {
        let got = call.environment.get(name);
        let seen = got.map_or("it is not there".to_owned(), |got| format!("it is {got:?}"));
        Finding::unless(got == Some(value), format!("{name}={value} in the delegate's environment"), seen)?;
    }
    Ok(())
}

/// Checks that the delegate's latest call had the config of the call that was made.
pub(super) fn config_is_of(testbed: &Testbed, answer: &Answer) -> Result<(), Stop> {
    let call = latest_call(testbed, answer)?;
    let sent: Value = serde_json::from_str(&answer.record().stdin).unwrap_or_default();
    Finding::unless(call.config() == sent, format!("the config {sent}"), format!("the delegate got {}", call.stdin))
}

/// Whether DEL has freed all that the kit's IPAM plugin gave.
pub(super) fn nothing_held(testbed: &Testbed) -> Result<(), Stop> {
    let held = testbed.ipam().held();
    Finding::unless(held.is_empty(), "DEL of the IPAM plugin", format!("it still holds an address for {held:?}"))
}
