//! SPEC 3, Deriving request configuration from plugin configuration.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, each, newest, spec};
use crate::runtime::assertions::{End, only, order, previous, same};
use crate::runtime::mock_plugin::{KEY, Received};
use crate::runtime::runtime_testbed::NETWORK;
use crate::runtime::{Rule, RuntimeTestbed};
use serde_json::{Value, json};
use testns::Verb;

pub(super) const RULES: &[Rule] = &[
    spec("derive.name-and-version", &["deriving/name-and-version"], RUNTIMES)
        .says("name and cniVersion are the list's, whatever a plugin object says.")
        .by(&[each("", name_and_version).does("A plugin object with a name and a cniVersion of its own.")]),
    spec("derive.name-and-version-to-1.0.0", &["deriving/name-and-version-1.0.0"], RUNTIMES)
        .says("name and cniVersion are the list's, whatever a plugin object says.")
        .by(&[each("", name_and_version).does("A plugin object with a name and a cniVersion of its own.")]),
    spec("derive.keys-pass", &["objects/more-keys"], RUNTIMES)
        .says("All other keys of a plugin object pass unaltered.")
        .by(&[
            newest("nested", |testbed| {
                passes(testbed, &json!({ "a": { "b": [[], {}, [{ "c": null }]] }, "": "", "d": false }))
            })
            .does("Objects and lists within each other, empty keys, null."),
            newest("texts", |testbed| {
                let unicode = "zażółć 網路 🐳 \u{2028}\u{7f}\u{0}";
                passes(testbed, &json!({ "html": "<a href='x'>&amp;</a>", "unicode": unicode, "quote": "\"\\/" }))
            })
            .does("Texts with signs of HTML, other scripts, control characters and quotes."),
            newest("integers", |testbed| {
                let (large, odd) = (12_345_678_901_234_567_890_u64, 9_007_199_254_740_993_u64);
                passes(testbed, &json!({ "u": u64::MAX, "i": i64::MIN, "large": large, "odd": odd }))
            })
            .does("The largest and smallest integers of 64 bits."),
            newest("fractions", |testbed| {
                passes(testbed, &json!({ "third": 0.333_333_333_333_333_3, "small": 1e-7, "big": 1.5e300 }))
            })
            .does("Fractions, small and large."),
            newest("long-numbers", long_numbers).does("Numbers of 30 digits, compared as text."),
            newest("known-keys", |testbed| {
                passes(
                    testbed,
                    &json!({
                        "ipam": { "type": "x", "routes": [{ "dst": "0.0.0.0/0" }] },
                        "dns": { "nameservers": ["10.1.0.1"] },
                        "args": { "cni": { "labels": [{ "key": "a", "value": "b" }] }, "mine": 1 },
                        "ipMasq": true,
                    }),
                )
            })
            .does("Keys that the specification knows."),
            newest("many", many).does("4000 keys, which are more than a pipe holds."),
        ]),
    spec("derive.capabilities-removed", &["deriving/capabilities"], RUNTIMES)
        .says("The key capabilities is not passed to a plugin.")
        .by(&[
            newest("ADD", |testbed| capabilities_removed(testbed, Verb::Add))
                .does("ADD of a plugin object with capabilities."),
            newest("CHECK", |testbed| capabilities_removed(testbed, Verb::Check)).does("The same with CHECK."),
            newest("DEL", |testbed| capabilities_removed(testbed, Verb::Del)).does("The same with DEL."),
        ]),
    spec("derive.runtime-config", &["deriving/runtime-config"], RUNTIMES)
        .says(
            "runtimeConfig has the arguments of capabilities that the plugin object sets to true, and of no \
              other.",
        )
        .by(&[
            newest("enabled", |testbed| {
                runtime_config(testbed, &json!({ "mac": true }), &json!({ "mac": "0a:00:00:00:00:09" }))
            })
            .does("A capability that is true."),
            newest("disabled", |testbed| runtime_config(testbed, &json!({ "mac": false }), &Value::Null))
                .does("A capability that is false."),
            newest("undeclared", |testbed| runtime_config(testbed, &json!({}), &Value::Null))
                .does("No capability, with arguments of three."),
            newest("not-given", |testbed| runtime_config(testbed, &json!({ "bandwidth": true }), &Value::Null))
                .does("A capability that is true, with no argument of it."),
            newest("some", |testbed| {
                let enabled = json!({ "mac": true, "portMappings": true, "ipRanges": false, "bandwidth": true });
                let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
                runtime_config(testbed, &enabled, &json!({ "mac": "0a:00:00:00:00:09", "portMappings": ports }))
            })
            .does("Three that are true and one that is not, with arguments of two and of it."),
            newest("of-own-plugin", of_own_plugin).does("Two plugins with a capability each."),
            newest("CHECK", |testbed| runtime_config_of(testbed, Verb::Check))
                .does("CHECK of a container that was added with an argument."),
            newest("DEL", |testbed| runtime_config_of(testbed, Verb::Del))
                .does("DEL of a container that was added with an argument."),
        ]),
    spec("derive.runtime-config-in-0.4.0", &["lists/runtime-config-0.4.0"], RUNTIMES)
        .says("runtimeConfig has no key but those of capabilities of the plugin object.")
        .by(&[
            before("1.0.0", "declared", |testbed| {
                runtime_config(testbed, &json!({ "mac": true }), &json!({ "mac": "0a:00:00:00:00:09" }))
            })
            .does("A capability that is true."),
            before("1.0.0", "undeclared", |testbed| runtime_config(testbed, &json!({}), &Value::Null))
                .does("No capability, with arguments of three."),
        ]),
    spec("derive.no-first-result", &["deriving/prev-result"], RUNTIMES)
        .says("The first plugin of ADD gets no prevResult.")
        .by(&[each("", no_first_result).does("ADD of a list of one.")]),
    spec("derive.result-of-the-one-before", &["deriving/prev-result"], RUNTIMES)
        .says("Each other plugin of ADD gets as prevResult what the one before it printed.")
        .by(&[each("", result_of_the_one_before).does("ADD of a list of three.")]),
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

/// The plugin object of a mock plugin with more keys of its own, and the call of ADD that it received.
fn with_keys(testbed: &RuntimeTestbed, more: &Value) -> Result<(Value, Received), Stop> {
    let mut object = testbed.plugin(1);
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    testbed.lay(&testbed.list(std::slice::from_ref(&object)));
    testbed.does(Verb::Add, &testbed.request())?;
    Ok((object, only(&testbed.received())?.clone()))
}

fn passes(testbed: &RuntimeTestbed, more: &Value) -> End {
    let (object, received) = with_keys(testbed, more)?;
    let mut seen = received.config();
    let own = seen.as_object_mut();
    own.into_iter().for_each(|own| own.retain(|key, _| !["name", "cniVersion", "prevResult"].contains(&key.as_str())));
    for (key, value) in object.as_object().into_iter().flatten() {
        same(&format!("key {key:?}"), value, seen.get(key).unwrap_or(&json!("(no such key)")))?;
    }
    same("the plugin object", &object, &seen)
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
    let received = testbed.received();
    let stdin = &only(&received)?.stdin;
    for number in [integer, fraction] {
        Finding::unless(stdin.contains(number), format!("{number} in stdin"), format!("it was {stdin}"))?;
    }
    Ok(())
}

/// More than a pipe holds.
fn many(testbed: &RuntimeTestbed) -> End {
    let more: serde_json::Map<_, _> = (0..4000).map(|n| (format!("key-{n}"), json!("x".repeat(60)))).collect();
    let more = Value::Object(more);
    let (_, received) = with_keys(testbed, &more)?;
    let seen = received.config();
    let missing = more.as_object().into_iter().flatten().filter(|(key, value)| seen.get(*key) != Some(value)).count();
    same("missing ones of 4000 keys", &0, &missing)
}

fn capabilities_removed(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let mut object = testbed.plugin(1);
    object["capabilities"] = json!({ "mac": true, "portMappings": false });
    testbed.lay(&testbed.list(&[object]));
    let request = testbed.request();
    testbed.does(Verb::Add, &request)?;
    if verb != Verb::Add {
        testbed.does(verb, &request)?;
    }
    let received = testbed.received_of(verb);
    let seen = only(&received)?.config();
    let seen = seen.get("capabilities");
    Finding::unless(seen.is_none(), "no key capabilities", format!("{verb} got {}", seen.unwrap_or(&Value::Null)))
}

fn arguments() -> Value {
    json!({
        "mac": "0a:00:00:00:00:09",
        "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }],
        "ipRanges": [[{ "subnet": "10.9.0.0/16" }]],
    })
}

fn runtime_config(testbed: &RuntimeTestbed, enabled: &Value, expected: &Value) -> End {
    testbed.needs("capabilities")?;
    let mut object = testbed.plugin(1);
    object["capabilities"] = enabled.clone();
    testbed.lay(&testbed.list(&[object]));
    let mut request = testbed.request();
    request.capabilities = Some(arguments());
    testbed.does(Verb::Add, &request)?;
    let received = testbed.received();
    let seen = only(&received)?.config();
    match (expected, seen.get("runtimeConfig")) {
        (Value::Null, None) => Ok(()),
        // Empty says the same.
        (Value::Null, Some(Value::Object(empty))) if empty.is_empty() => Ok(()),
        (expected, seen) => same("runtimeConfig", expected, seen.unwrap_or(&Value::Null)),
    }
}

/// The same as with ADD.
fn runtime_config_of(testbed: &RuntimeTestbed, verb: Verb) -> End {
    testbed.needs("capabilities")?;
    let mut object = testbed.plugin(1);
    object["capabilities"] = json!({ "mac": true });
    testbed.lay(&testbed.list(&[object]));
    let mut request = testbed.request();
    request.capabilities = Some(arguments());
    testbed.does(Verb::Add, &request)?;
    testbed.does(verb, &request)?;
    let received = testbed.received_of(verb);
    let seen = only(&received)?.config()["runtimeConfig"].clone();
    same(&format!("runtimeConfig of {verb}"), &json!({ "mac": arguments()["mac"] }), &seen)
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
    for (call, key) in received.iter().zip(["mac", "ipRanges"]) {
        let seen = call.config()["runtimeConfig"].clone();
        same(&format!("runtimeConfig of plugin {}", call.place()), &json!({ key: arguments()[key] }), &seen)?;
    }
    Ok(())
}

fn no_first_result(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Verb::Add, &testbed.request())?;
    let received = testbed.received();
    let seen = only(&received)?.config();
    let seen = seen.get("prevResult").filter(|previous| !previous.is_null());
    Finding::unless(seen.is_none(), "no prevResult", format!("it was {}", seen.unwrap_or(&Value::Null)))
}

fn result_of_the_one_before(testbed: &RuntimeTestbed) -> End {
    Stop::skip_if(!crate::spec_version::is_from(&testbed.version, "0.3.0"), "lists came with 0.3.0")?;
    testbed.lay_three();
    testbed.does(Verb::Add, &testbed.request())?;
    let received = testbed.received_of(Verb::Add);
    same("plugins called", &3, &received.len())?;
    received.iter().zip(received.iter().skip(1)).try_for_each(|(before, call)| previous(call, &before.result()))
}
