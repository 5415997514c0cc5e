//! Stress: input that was written to do harm, or that was damaged on its way.
//!
//! The only answers to any of it are a result and an error object, in time, within bounds of memory. On an error
//! nothing may have changed; on success DEL with the same input takes back what was done.

use crate::rules::prelude::*;
use crate::stress::hostile_input::{self, Input};
use crate::stress::operations::{Operations, is_proper, within};
use crate::stress::raw_call::{self, RawCall};
use crate::testbed::Answer;
use crate::write_protection;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

pub(super) const CASES: &[Code] = &[
    ("hostile.config-is-answered/text", strange_text),
    ("hostile.config-is-answered/huge", huge_text),
    ("hostile.config-is-answered/types", wrong_types),
    ("hostile.config-is-answered/prev-result", wrong_prev_result),
    ("hostile.environment-is-answered", hostile_environment),
    ("hostile.names-lead-nowhere", names_lead_nowhere),
    ("hostile.error-changes-nothing/text", |testbed| changes_nothing(testbed, hostile_input::strange_texts)),
    ("hostile.error-changes-nothing/types", |testbed| {
        changes_nothing(testbed, |config| hostile_input::wrong_types(config, ""))
    }),
];

/// The number of inputs that share a look at the node.
const BATCH: usize = 16;
const ALONE: usize = 4;
/// The number of broken inputs that a finding shows.
const SHOWN: usize = 12;

/// Makes the surroundings of the node's folders empty and writable, so that a plugin that follows a path out of its
/// folders is seen.
fn lay_bait() {
    let laid = write_protection::lay_empty(Path::new("/var/lib"), "mode=0755");
    laid.unwrap_or_else(|errno| panic!("cannot mount a tmpfs on /var/lib: {errno}"));
    std::fs::create_dir("/var/lib/cni").unwrap_or_else(|error| panic!("cannot create /var/lib/cni: {error}"));
}

/// Every `nth` input, from a random one on: others ask all of them.
fn thinned<T>(inputs: Vec<T>, nth: usize, testbed: &Testbed) -> Vec<T> {
    let first = testbed.random().below(nth);
    inputs.into_iter().skip(first).step_by(nth).collect()
}

/// The container, config and operations of the cases.
struct Setup<'a> {
    operations: Operations<'a>,
    pod: Container,
    config: Value,
    deadline: Duration,
}

impl<'a> Setup<'a> {
    fn new(testbed: &'a Testbed) -> Result<Self, Stop> {
        lay_bait();
        let mut operations = Operations::new(testbed);
        operations.warm_up()?;
        let pod = operations.used_pod()?;
        let config = operations.config(0, Verb::Add, &pod.attachment(), None);
        raw_call::bound_memory();
        Ok(Self { operations, pod, config, deadline: testbed.call_deadline() })
    }

    fn testbed(&self) -> &'a Testbed {
        self.operations.testbed
    }

    fn call(&self, verb: Verb, stdin: Vec<u8>) -> RawCall {
        RawCall::new(verb, &self.pod.attachment(), stdin)
    }

    /// Makes a call; on success of ADD takes it back with the same input. What is wrong with the answers, if something is.
    fn answer(&self, call: &RawCall) -> Result<Result<Answer, String>, Stop> {
        let answer = match call.make(self.testbed(), self.deadline) {
            Ok(answer) => answer,
            Err(stop) => return Ok(Err(text(&stop))),
        };
        if let Err(stop) = is_proper(&answer) {
            self.undo();
            return Ok(Err(text(&stop)));
        }
        if call.verb == Verb::Add && answer.is_success() {
            let del = RawCall { verb: Verb::Del, ..call.clone() };
            let taken_back = del.make(self.testbed(), self.deadline).and_then(|answer| answer.succeeds());
            if let Err(stop) = taken_back {
                self.undo();
                return Ok(Err(format!("ADD succeeded, but of DEL {}", text(&stop))));
            }
        }
        Ok(Ok(answer))
    }

    /// DEL with a good config, so that one input does no harm to the next.
    fn undo(&self) {
        let del =
            self.call(Verb::Del, self.operations.config(0, Verb::Del, &self.pod.attachment(), None).to_string().into());
        del.make(self.testbed(), self.deadline).ok(); // what a broken call left may be beyond it
    }
}

fn text(stop: &Stop) -> String {
    match stop {
        Stop::Fails(finding) => shortened(&finding.to_string()),
        Stop::Skips(why) => why.clone(),
    }
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 400;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The inputs that were not answered as they should be, in one finding.
#[derive(Default)]
struct Broken {
    inputs: Vec<String>,
    tried: usize,
}

impl Broken {
    /// Reports an input; the calls of one that is as it should be are forgotten.
    fn record(&mut self, testbed: &Testbed, name: &str, answered: Result<Answer, String>) -> bool {
        self.tried += 1;
        match answered {
            Err(what) => {
                self.inputs.push(format!("{name}: {what}"));
                false
            }
            Ok(_) => {
                if self.inputs.is_empty() {
                    testbed.forget_calls();
                }
                true
            }
        }
    }

    fn finish(self, expected: &str) -> Result<(), Stop> {
        let Self { inputs, tried } = self;
        if inputs.is_empty() {
            return Ok(());
        }
        let shown: Vec<_> = inputs.iter().take(SHOWN).map(String::as_str).collect();
        let seen = format!("{} of {tried} inputs had another answer; {}", inputs.len(), shown.join("; "));
        Err(Finding::new(expected, seen).into())
    }
}

const ANSWERED: &str = "a result or an error object for any input";

fn all_answered(setup: &Setup<'_>, verb: Verb, inputs: Vec<Input<Vec<u8>>>) -> Result<(), Stop> {
    let mut broken = Broken::default();
    for Input { name, value } in inputs {
        let answered = setup.answer(&setup.call(verb, value))?;
        broken.record(setup.testbed(), &format!("{verb}, {name}"), answered);
    }
    broken.finish(ANSWERED)
}

fn strange_text(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    all_answered(&setup, Verb::Add, hostile_input::strange_texts(&setup.config))?;
    all_answered(&setup, Verb::Del, hostile_input::strange_texts(&setup.config))
}

fn wrong_types(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    // prevResult has a case of its own.
    let mut config = setup.config.clone();
    let prev_result = config.as_object_mut().and_then(|config| config.shift_remove("prevResult"));
    let mut inputs = hostile_input::wrong_types(&config, "");
    if let Some(result) = prev_result {
        for input in &mut inputs {
            let text = String::from_utf8_lossy(&input.value).into_owned();
            input.value = text.replacen('{', &format!("{{\"prevResult\":{result},"), 1).into_bytes();
        }
    }
    all_answered(&setup, Verb::Add, inputs)
}

fn huge_text(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    let mut broken = Broken::default();
    for Input { name, value } in hostile_input::huge_texts(&setup.config) {
        let answered = setup.answer(&setup.call(Verb::Add, value()))?;
        broken.record(testbed, &name, answered);
    }
    broken.finish(ANSWERED)
}

fn wrong_prev_result(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    setup.operations.serves_again(&setup.pod)?;
    let attachment = setup.pod.attachment();
    let result = setup.operations.testbed.add(&setup.pod)?;
    let mut broken = Broken::default();
    let config = setup.operations.config(0, Verb::Check, &attachment, Some(&result));
    for Input { name, value } in hostile_input::wrong_types(&config, "/prevResult") {
        let answered = setup.answer(&setup.call(Verb::Check, value))?;
        broken.record(testbed, &format!("CHECK, {name}"), answered);
    }
    setup.operations.testbed.del(&attachment, Some(&result))?;
    let verbs: &[Verb] = if testbed.profile.is_chained() { &[Verb::Add, Verb::Del] } else { &[Verb::Del] };
    let prev_result =
        if testbed.profile.is_chained() { testbed.prev_result(&setup.pod.attachment()) } else { Some(result) };
    for verb in verbs {
        let config = setup.operations.config(0, *verb, &attachment, prev_result.as_ref());
        for Input { name, value } in thinned(hostile_input::wrong_types(&config, "/prevResult"), 3, testbed) {
            let answered = setup.answer(&setup.call(*verb, value))?;
            broken.record(testbed, &format!("{verb}, {name}"), answered);
        }
    }
    broken.finish(ANSWERED)
}

fn named(setup: &Setup<'_>, verb: Verb) -> Vec<Input<RawCall>> {
    let config = setup.operations.config(0, verb, &setup.pod.attachment(), None).to_string();
    let call = || setup.call(verb, config.clone().into_bytes());
    let mut calls = Vec::new();
    for variable in ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS", "CNI_PATH", "CNI_COMMAND"] {
        for name in hostile_input::hostile_names() {
            let shown = shortened(&String::from_utf8_lossy(&name));
            let what = format!("{verb}, {variable}={shown:?}");
            calls.push(Input::new(what, call().variable(variable, OsString::from_vec(name))));
        }
    }
    for netns in ["/proc/self/ns/mnt", "/proc/self/ns/net", "/dev/null", "/etc", "/proc/1/ns/net", "/run/testns"] {
        calls.push(Input::new(format!("{verb}, CNI_NETNS={netns:?}"), call().variable("CNI_NETNS", netns)));
    }
    for args in [
        "IP=../../x;IgnoreUnknown=1",
        "=;=;=",
        ";;;",
        "IP",
        "IP=10.77.0.9=7",
        "MAC=zz;IP=",
        "A=1;A=2;IgnoreUnknown=yes",
    ] {
        calls.push(Input::new(format!("{verb}, CNI_ARGS={args:?}"), call().variable("CNI_ARGS", args)));
    }
    let many = (0..2000).fold(call(), |call, number| call.variable(&format!("CNI_X{number}"), "x".repeat(40)));
    calls.push(Input::new(format!("{verb}, 2000 variables"), many));
    calls
}

fn hostile_environment(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    let mut broken = Broken::default();
    for verb in [Verb::Add, Verb::Del] {
        for Input { name, value } in named(&setup, verb) {
            let answered = setup.answer(&value)?;
            broken.record(testbed, &name, answered);
        }
    }
    broken.finish(ANSWERED)
}

/// Files whose content a path that leads elsewhere would change, or whose place it would take.
const WITNESSES: [&str; 4] = ["/run/x", "/var/lib/x", "/var/lib/cni/x", "/run/owned"];

fn names_lead_nowhere(testbed: &Testbed) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    let path = "../../../../../../../../run/owned";
    let mut calls: Vec<Input<RawCall>> =
        [Verb::Add, Verb::Del].into_iter().flat_map(|verb| named(&setup, verb)).collect();
    // Every text of the config but the folders that it may name, which are its owner's to choose.
    let names: Vec<_> = hostile_input::places(&setup.config)
        .into_iter()
        .filter(|place| setup.config.pointer(place).is_some_and(Value::is_string) && !place.ends_with("Dir"))
        .collect();
    for verb in [Verb::Add, Verb::Del] {
        for place in &names {
            for name in [path, "/run/owned", "..", "../x", "x/../../../../../../run/owned"] {
                let mut config = setup.config.clone();
                if let Some(value) = config.pointer_mut(place) {
                    *value = json!(name);
                }
                calls.push(Input::new(
                    format!("{verb}, {place} = {name:?}"),
                    setup.call(verb, config.to_string().into()),
                ));
            }
        }
    }
    let there = || WITNESSES.iter().map(|path| (*path, std::fs::read(path).ok())).collect::<Vec<_>>();
    let mut broken = Broken::default();
    // Once without the files, once with: what is not made could still be emptied or removed.
    for content in [None, Some("a file of another owner")] {
        for path in WITNESSES {
            match content {
                Some(content) => {
                    std::fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {path}: {error}"))
                }
                None => assert!(!Path::new(path).exists(), "{path} is there already"),
            }
        }
        let before = there();
        for Input { name, value } in &calls {
            let answered = setup.answer(value)?.map_err(|_another_rules| ());
            let after = there();
            let changed = before.iter().zip(&after).find(|(before, after)| before != after).map(|((path, _), _)| *path);
            let verdict = changed.map_or_else(|| answered.ok().map(Ok), |path| Some(Err(format!("it changed {path}"))));
            if let Some(verdict) = verdict {
                broken.record(testbed, name, verdict);
            }
            if changed.is_some() {
                return broken.finish("files of others as before");
            }
        }
    }
    broken.finish("files of others as before")
}

/// Sends batches of inputs; where a batch that failed has changed the node, one by one.
fn changes_nothing(testbed: &Testbed, inputs: impl Fn(&Value) -> Vec<Input<Vec<u8>>>) -> Result<(), Stop> {
    let setup = Setup::new(testbed)?;
    setup.operations.serves_again(&setup.pod)?;
    let inputs = thinned(inputs(&setup.config), 3, testbed);
    testbed.remember();
    // The first ones alone: what comes with the first refusal and then stays looks like what a success leaves.
    let (first, rest) = inputs.split_at(inputs.len().min(ALONE));
    for batch in first.chunks(1).chain(rest.chunks(BATCH)) {
        let of_batch = trace(&setup, batch)?;
        if matches!(of_batch, Trace::None) {
            continue;
        }
        for input in batch {
            setup.undo();
            testbed.remember();
            testbed.forget_calls();
            if let Trace::OfRefused(left) = trace(&setup, std::slice::from_ref(input))? {
                return Err(has_a_trace(&format!("the input being {}", input.name), left));
            }
        }
        if let Trace::OfRefused(left) = of_batch {
            // The trace comes with the first refusal only, and is there from then on.
            let names: Vec<_> = batch.iter().map(|input| input.name.as_str()).collect();
            return Err(has_a_trace(&format!("the input being one of these: {}", names.join("; ")), left));
        }
        setup.undo();
        testbed.remember();
    }
    Ok(())
}

fn has_a_trace(when: &str, left: String) -> Stop {
    Finding::new("a refused ADD without a trace", format!("something changed, {when}")).with_diff(left).into()
}

/// The trace that inputs left.
enum Trace {
    None,
    /// Something, after one that succeeded: what that leaves after DEL, a bridge of another name perhaps, is no matter
    /// here.
    OfSucceeded,
    /// These lines, after refusals only.
    OfRefused(String),
}

fn trace(setup: &Setup<'_>, batch: &[Input<Vec<u8>>]) -> Result<Trace, Stop> {
    let testbed = setup.testbed();
    for Input { value, .. } in batch {
        let succeeds = setup.answer(&setup.call(Verb::Add, value.clone()))?.is_ok_and(|answer| answer.is_success());
        if succeeds {
            setup.operations.testbed.del(&setup.pod, None).map_err(|stop| within(stop, "of DEL with a good config"))?;
            if !testbed.left_behind().is_empty() && batch.len() > 1 {
                return Ok(Trace::OfSucceeded);
            }
            testbed.remember();
        }
    }
    let left = testbed.left_behind();
    Ok(if left.is_empty() { Trace::None } else { Trace::OfRefused(left) })
}
