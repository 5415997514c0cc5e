//! SPEC 3, Deriving request configuration from plugin configuration.

use crate::rules::prelude::*;
use crate::runtime::RuntimeTestbed;
use crate::runtime::assertions::{End, each, order, previous, runs, same};
use crate::runtime::mock_plugin::{KEY, Received};
use crate::runtime::runtime_testbed::NETWORK;

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("derive.name-and-version", name_and_version),
    ("derive.name-and-version-to-1.0.0", name_and_version),
    ("derive.long-numbers-pass", long_numbers),
    ("derive.keys-pass/many", many),
    ("derive.runtime-config/of-own-plugin", of_own_plugin),
    ("derive.no-first-result", no_first_result),
    ("derive.result-of-the-one-before", result_of_the_one_before),
];

fn name_and_version(testbed: &RuntimeTestbed) -> End {
    let mut object = testbed.plugin(1);
    object["name"] = json!("another");
    object["cniVersion"] = json!("0.2.0");
    testbed.lay(&testbed.list(&[object, testbed.plugin(2)]));
    testbed.does(Verb::Add, &testbed.request())?;
    let received = testbed.received();
    order(&received, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for call in &received {
        same("name", &json!(NETWORK), &call.config()["name"])?;
        same("cniVersion", &json!(testbed.version), &call.config()["cniVersion"])?;
    }
    Ok(())
}

/// ADD of a mock plugin with more keys of its own; the calls that it received.
fn with_keys(testbed: &RuntimeTestbed, more: &Value) -> Result<Vec<Received>, Stop> {
    let mut object = testbed.plugin(1);
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    testbed.lay(&testbed.list(std::slice::from_ref(&object)));
    testbed.does(Verb::Add, &testbed.request())?;
    Ok(testbed.received_of(Verb::Add))
}

/// Longer ones than any machine word: they can only be compared as text.
fn long_numbers(testbed: &RuntimeTestbed) -> End {
    let (integer, fraction) = ("123456789012345678901234567890", "0.1234567890123456789012345678901");
    let kind = testbed.plugin(1);
    let text = format!(
        r#"{{"cniVersion":"{}","name":"{NETWORK}","plugins":[{{"type":{},"{KEY}":{},"integer":{integer},"fraction":{fraction}}}]}}"#,
        testbed.version, kind["type"], kind[KEY]
    );
    testbed.lay_text(&text);
    testbed.does(Verb::Add, &testbed.request())?;
    each(&testbed.received_of(Verb::Add), |Received { stdin, .. }| {
        let lost = [integer, fraction].into_iter().find(|number| !stdin.contains(number));
        Finding::unless(lost.is_none(), format!("{} in stdin", lost.unwrap_or_default()), format!("it was {stdin}"))
    })
}

/// More than a pipe holds.
fn many(testbed: &RuntimeTestbed) -> End {
    let more: serde_json::Map<_, _> = (0..4000).map(|n| (format!("key-{n}"), json!("x".repeat(60)))).collect();
    let more = Value::Object(more);
    each(&with_keys(testbed, &more)?, |call| {
        let seen = call.config();
        let keys = more.as_object().into_iter().flatten();
        let missing = keys.filter(|(key, value)| seen.get(*key) != Some(value)).count();
        same("missing ones of 4000 keys", &0, &missing)
    })
}

fn arguments() -> Value {
    json!({
        "mac": "0a:00:00:00:00:09",
        "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }],
        "ipRanges": [[{ "subnet": "10.9.0.0/16" }]],
    })
}

fn of_own_plugin(testbed: &RuntimeTestbed) -> End {
    testbed.needs("capabilities")?;
    let (mut one, mut other) = (testbed.plugin(1), testbed.plugin(2));
    one["capabilities"] = json!({ "mac": true });
    other["capabilities"] = json!({ "ipRanges": true });
    testbed.lay(&testbed.list(&[one, other]));
    let mut request = testbed.request();
    request.capabilities = Some(arguments());
    testbed.does(Verb::Add, &request)?;
    let received = testbed.received();
    order(&received, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for call in received.iter().filter(|call| call.verb() == "ADD") {
        let key = if call.place() == 1 { "mac" } else { "ipRanges" };
        let seen = call.config()["runtimeConfig"].clone();
        same(&format!("runtimeConfig of plugin {}", call.place()), &json!({ key: arguments()[key] }), &seen)?;
    }
    Ok(())
}

fn no_first_result(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Verb::Add, &testbed.request())?;
    each(&testbed.received_of(Verb::Add), |call| {
        let config = call.config();
        let seen = config.get("prevResult").filter(|previous| !previous.is_null());
        Finding::unless(seen.is_none(), "no prevResult", format!("it was {}", seen.unwrap_or(&Value::Null)))
    })
}

fn result_of_the_one_before(testbed: &RuntimeTestbed) -> End {
    Stop::skip_if(!crate::spec_version::is_from(&testbed.version, "0.3.0"), "lists came with 0.3.0")?;
    testbed.lay_three();
    testbed.does(Verb::Add, &testbed.request())?;
    let received = testbed.received_of(Verb::Add);
    order(&received, &[(Verb::Add, 1), (Verb::Add, 2), (Verb::Add, 3)])?;
    runs(&received)
        .into_iter()
        .flat_map(|run| run.iter().zip(run.iter().skip(1)))
        .try_for_each(|(before, call)| previous(call, &before.result()))
}
