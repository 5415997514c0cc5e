//! Behaviour that runtimes and operators rely on without any document: texts that they match, case of keys, exit codes.

use crate::profile::Role;
use crate::rules::prelude::*;
use serde_json::Map;

pub(super) const CASES: &[Code] = &[
    ("relied.words/gc", |testbed| gate(testbed, Verb::Gc)),
    ("relied.words/status", |testbed| gate(testbed, Verb::Status)),
    ("relied.words/no-such-file", no_such_file_text),
    ("relied.words/about", about_text),
    ("relied.exit-status-1", exits_with_1),
    ("relied.go-json/any-case", keys_in_any_case),
    ("relied.go-json/any-case-in-runtime-config", keys_of_runtime_config),
    ("relied.go-json/null", null_is_absent),
    ("relied.daemon-starts-again", daemon_starts_again),
];

pub(super) fn says(what: &str, text: &str, words: &str) -> Result<(), Stop> {
    Finding::unless(text.contains(words), format!("the words {words:?} in {what}"), format!("it is {text:?}"))
}

/// Of a verb that came with 1.1.0. Who speaks no 1.1.0 need not know it.
fn gate(testbed: &Testbed, verb: Verb) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call(Verb::Version, Attachment::none()))?.succeeds()?;
    let list = answer.get("supportedVersions").and_then(Value::as_array);
    Stop::skip_if(!list.is_some_and(|list| list.contains(&json!("1.1.0"))), "it speaks no version from 1.1.0 on")?;
    let error = testbed.make(&testbed.call(verb, Attachment::none()))?.fails_with(1)?;
    says("msg", &error.msg, &format!("config version does not allow {verb}"))
}

fn no_such_file_text(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.profile.role != Role::Interface, "it makes no interface, and may not need the namespace")?;
    let nowhere = Attachment { netns: "/run/netns/no-such-namespace".to_owned(), ..testbed.pod().attachment() };
    let answer = testbed.make(&testbed.call(Verb::Add, &nowhere))?;
    let error = answer.refused_by("add.needs-the-namespace").fails()?;
    says("the error", &format!("{}; {}", error.msg, error.details), "no such file or directory")
}

fn exits_with_1(testbed: &Testbed) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call_with(Verb::Add, "{", &testbed.pod()))?;
    let answer = answer.refused_by("parameters.config-is-one-json-object");
    let exit = answer.record().exit.unwrap_or(-1);
    Finding::unless(exit == 1, "exit status 1", format!("it is {exit}"))
        .map_err(|stop| stop.based_on(answer.basis_of_failure().filter(|_| exit == 0)))
}

fn about_text(testbed: &Testbed) -> Result<(), Stop> {
    let call = testbed.call_with(Verb::Version, "", Attachment::none()).without("CNI_COMMAND");
    let answer = testbed.make(&call)?;
    answer.prints_nothing()?;
    says("stderr", &answer.record().stderr, "CNI protocol versions supported: ")?;
    says("stderr", &answer.record().stderr, &testbed.version)
}

pub(super) fn is_oldest(result: &Value) -> Result<(), Stop> {
    let is_newer = ["interfaces", "ips"].iter().any(|key| result.get(*key).is_some());
    let version = result.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0");
    let is_oldest = !is_newer && ["", "0.1.0"].contains(&version);
    Finding::unless(is_oldest, "a result of 0.1.0", format!("the result is {result}"))
}

fn with_config<T>(testbed: &Testbed, change: impl FnOnce(&mut Map<String, Value>) -> T) -> Result<Value, Stop> {
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    config.as_object_mut().map(change);
    testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()
}

/// The same with some keys of the config capitalised: ADD has to give the same result.
fn capitalised(testbed: &Testbed, change: impl FnOnce(&mut Map<String, Value>)) -> Result<(), Stop> {
    let count = |result: &Value| {
        let length = |key: &str| result.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        (length("ips"), length("interfaces"), length("routes"))
    };
    let (plain, result) = (with_config(testbed, |_| ())?, with_config(testbed, change)?);
    Finding::unless(
        count(&plain) == count(&result),
        format!("as much as in {plain}"),
        format!("the result is {result}"),
    )
}

fn keys_in_any_case(testbed: &Testbed) -> Result<(), Stop> {
    // Of the plugin's own part the first level: below may be names of the user's choice.
    capitalised(testbed, |config| {
        if let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) {
            capitalise(ipam);
            for range in ipam.get_mut("Ranges").and_then(Value::as_array_mut).into_iter().flatten() {
                capitalise_each(range);
            }
        }
        capitalise(config);
    })
}

fn keys_of_runtime_config(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.config().get("runtimeConfig").is_none(), "its config enables no capability")?;
    capitalised(testbed, |config| {
        for value in config.get_mut("runtimeConfig").and_then(Value::as_object_mut).into_iter().flatten() {
            capitalise_each(value.1);
        }
    })
}

fn capitalise_each(value: &mut Value) {
    match value {
        Value::Object(object) => capitalise(object),
        Value::Array(values) => values.iter_mut().for_each(capitalise_each),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn capitalise(object: &mut Map<String, Value>) {
    *object = std::mem::take(object).into_iter().map(|(key, value)| (capital(&key), value)).collect();
}

fn capital(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn null_is_absent(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| {
        for key in ["runtimeConfig", "args", "dns", "prevResult", "capabilities"] {
            config.entry(key).or_insert(Value::Null);
        }
    })
    .map(drop)
}

fn daemon_starts_again(testbed: &Testbed) -> Result<(), Stop> {
    testbed.add(&testbed.pod())?;
    Stop::skip_if(testbed.end_daemons() == 0, "it has no daemon")?;
    match testbed.restart_daemons() {
        Some(status) => Err(Finding::new("a daemon that runs", format!("it ended with {status}")).into()),
        None => testbed.add(&testbed.pod()).map(drop),
    }
}
