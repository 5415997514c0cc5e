//! SPEC 3, Deriving request configuration from plugin configuration.

use super::{newest, old, rule};
use crate::finding::Stop;
use crate::rule::Source::Spec;
use crate::rule::Versions;
use crate::runtime::look::{End, holds, only, order, previous, same};
use crate::runtime::mock_plugin::{KEY, Received};
use crate::runtime::runtime_bench::NETWORK;
use crate::runtime::{Case, Rule, RuntimeBench};
use serde_json::{Value, json};
use testns::Verb;

pub(super) const RULES: &[Rule] = &[
    rule(
        "derive.name-and-version",
        Spec(&["deriving/name-and-version"]),
        "name and cniVersion are the list's, whatever a plugin object says.",
        &[Case { name: "", versions: Versions::Each, run: name_and_version }],
    ),
    rule(
        "derive.name-and-version-to-1.0.0",
        Spec(&["deriving/name-and-version-1.0.0"]),
        "name and cniVersion are the list's, whatever a plugin object says.",
        &[Case { name: "", versions: Versions::Each, run: name_and_version }],
    ),
    rule(
        "derive.keys-pass",
        Spec(&["objects/more-keys"]),
        "All other keys of a plugin object pass unaltered.",
        &[
            newest("nested", |bench| {
                passes(bench, &json!({ "a": { "b": [[], {}, [{ "c": null }]] }, "": "", "d": false }))
            }),
            newest("texts", |bench| {
                passes(
                    bench,
                    &json!({ "html": "<a href='x'>&amp;</a>", "unicode": "zażółć 網路 🐳 \u{2028}\u{7f}\u{0}", "quote": "\"\\/" }),
                )
            }),
            newest("integers", |bench| {
                passes(
                    bench,
                    &json!({ "u": u64::MAX, "i": i64::MIN, "large": 12_345_678_901_234_567_890_u64, "odd": 9_007_199_254_740_993_u64 }),
                )
            }),
            newest("fractions", |bench| {
                passes(bench, &json!({ "third": 0.333_333_333_333_333_3, "small": 1e-7, "big": 1.5e300 }))
            }),
            newest("long-numbers", long_numbers),
            newest("known-keys", |bench| {
                passes(
                    bench,
                    &json!({
                        "ipam": { "type": "x", "routes": [{ "dst": "0.0.0.0/0" }] },
                        "dns": { "nameservers": ["10.1.0.1"] },
                        "args": { "cni": { "labels": [{ "key": "a", "value": "b" }] }, "mine": 1 },
                        "ipMasq": true,
                    }),
                )
            }),
            newest("many", many),
        ],
    ),
    rule(
        "derive.capabilities-removed",
        Spec(&["deriving/capabilities"]),
        "The key capabilities is not passed to a plugin.",
        &[
            newest("ADD", |bench| capabilities_removed(bench, Verb::Add)),
            newest("CHECK", |bench| capabilities_removed(bench, Verb::Check)),
            newest("DEL", |bench| capabilities_removed(bench, Verb::Del)),
        ],
    ),
    rule(
        "derive.runtime-config",
        Spec(&["deriving/runtime-config"]),
        "runtimeConfig has the arguments of capabilities that the plugin object sets to true, and of no other.",
        &[
            newest("enabled", |bench| {
                runtime_config(bench, &json!({ "mac": true }), &json!({ "mac": "0a:00:00:00:00:09" }))
            }),
            newest("disabled", |bench| runtime_config(bench, &json!({ "mac": false }), &Value::Null)),
            newest("undeclared", |bench| runtime_config(bench, &json!({}), &Value::Null)),
            newest("not-given", |bench| runtime_config(bench, &json!({ "bandwidth": true }), &Value::Null)),
            newest("some", |bench| {
                let enabled = json!({ "mac": true, "portMappings": true, "ipRanges": false, "bandwidth": true });
                let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
                runtime_config(bench, &enabled, &json!({ "mac": "0a:00:00:00:00:09", "portMappings": ports }))
            }),
            newest("of-own-plugin", of_own_plugin),
            newest("CHECK", |bench| runtime_config_of(bench, Verb::Check)),
            newest("DEL", |bench| runtime_config_of(bench, Verb::Del)),
        ],
    ),
    rule(
        "derive.runtime-config-in-0.4.0",
        Spec(&["lists/runtime-config-0.4.0"]),
        "runtimeConfig has no key but those of capabilities of the plugin object.",
        &[
            old("declared", "1.0.0", |bench| {
                runtime_config(bench, &json!({ "mac": true }), &json!({ "mac": "0a:00:00:00:00:09" }))
            }),
            old("undeclared", "1.0.0", |bench| runtime_config(bench, &json!({}), &Value::Null)),
        ],
    ),
    rule(
        "derive.no-first-result",
        Spec(&["deriving/prev-result"]),
        "The first plugin of ADD gets no prevResult.",
        &[Case { name: "", versions: Versions::Each, run: no_first_result }],
    ),
    rule(
        "derive.result-of-the-one-before",
        Spec(&["deriving/prev-result"]),
        "Each other plugin of ADD gets as prevResult what the one before it printed.",
        &[Case { name: "", versions: Versions::Each, run: result_of_the_one_before }],
    ),
];

fn name_and_version(bench: &RuntimeBench) -> End {
    let mut object = bench.plugin(1);
    object["name"] = json!("another");
    object["cniVersion"] = json!("0.2.0");
    bench.lay(&bench.list(&[object, bench.plugin(2)]));
    bench.does(Verb::Add, &bench.request())?;
    let received = bench.received();
    order(&received, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for call in &received {
        same("name", &json!(NETWORK), &call.config()["name"])?;
        same("cniVersion", &json!(bench.version), &call.config()["cniVersion"])?;
    }
    Ok(())
}

/// The plugin object of a mock plugin with more keys of its own, and the call of ADD that it received.
fn with_keys(bench: &RuntimeBench, more: &Value) -> Result<(Value, Received), Stop> {
    let mut object = bench.plugin(1);
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    bench.lay(&bench.list(std::slice::from_ref(&object)));
    bench.does(Verb::Add, &bench.request())?;
    Ok((object, only(&bench.received())?.clone()))
}

fn passes(bench: &RuntimeBench, more: &Value) -> End {
    let (object, received) = with_keys(bench, more)?;
    let mut seen = received.config();
    let own = seen.as_object_mut();
    own.into_iter().for_each(|own| own.retain(|key, _| !["name", "cniVersion", "prevResult"].contains(&key.as_str())));
    for (key, value) in object.as_object().into_iter().flatten() {
        same(&format!("key {key:?}"), value, seen.get(key).unwrap_or(&json!("(no such key)")))?;
    }
    same("the plugin object", &object, &seen)
}

/// Longer ones than any machine word: they can only be compared as text.
fn long_numbers(bench: &RuntimeBench) -> End {
    let (integer, fraction) = ("123456789012345678901234567890", "0.1234567890123456789012345678901");
    let kind = bench.plugin(1);
    let text = format!(
        r#"{{"cniVersion":"{}","name":"{NETWORK}","plugins":[{{"type":{},"{KEY}":{},"integer":{integer},"fraction":{fraction}}}]}}"#,
        bench.version, kind["type"], kind[KEY]
    );
    bench.lay_text(&text);
    bench.does(Verb::Add, &bench.request())?;
    let received = bench.received();
    let stdin = &only(&received)?.stdin;
    for number in [integer, fraction] {
        holds(stdin.contains(number), format!("{number} in stdin"), format!("it was {stdin}"))?;
    }
    Ok(())
}

/// More than a pipe holds.
fn many(bench: &RuntimeBench) -> End {
    let more: serde_json::Map<_, _> = (0..4000).map(|n| (format!("key-{n}"), json!("x".repeat(60)))).collect();
    let more = Value::Object(more);
    let (_, received) = with_keys(bench, &more)?;
    let seen = received.config();
    let missing = more.as_object().into_iter().flatten().filter(|(key, value)| seen.get(*key) != Some(value)).count();
    same("missing ones of 4000 keys", &0, &missing)
}

fn capabilities_removed(bench: &RuntimeBench, verb: Verb) -> End {
    let mut object = bench.plugin(1);
    object["capabilities"] = json!({ "mac": true, "portMappings": false });
    bench.lay(&bench.list(&[object]));
    let request = bench.request();
    bench.does(Verb::Add, &request)?;
    if verb != Verb::Add {
        bench.does(verb, &request)?;
    }
    let received = bench.received_of(verb);
    let seen = only(&received)?.config();
    let seen = seen.get("capabilities");
    holds(seen.is_none(), "no key capabilities", format!("{verb} got {}", seen.unwrap_or(&Value::Null)))
}

fn arguments() -> Value {
    json!({
        "mac": "0a:00:00:00:00:09",
        "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }],
        "ipRanges": [[{ "subnet": "10.9.0.0/16" }]],
    })
}

fn runtime_config(bench: &RuntimeBench, enabled: &Value, expected: &Value) -> End {
    bench.needs("capabilities")?;
    let mut object = bench.plugin(1);
    object["capabilities"] = enabled.clone();
    bench.lay(&bench.list(&[object]));
    let mut request = bench.request();
    request.capabilities = Some(arguments());
    bench.does(Verb::Add, &request)?;
    let received = bench.received();
    let seen = only(&received)?.config();
    match (expected, seen.get("runtimeConfig")) {
        (Value::Null, None) => Ok(()),
        // Empty says the same.
        (Value::Null, Some(Value::Object(empty))) if empty.is_empty() => Ok(()),
        (expected, seen) => same("runtimeConfig", expected, seen.unwrap_or(&Value::Null)),
    }
}

/// The same as with ADD.
fn runtime_config_of(bench: &RuntimeBench, verb: Verb) -> End {
    bench.needs("capabilities")?;
    let mut object = bench.plugin(1);
    object["capabilities"] = json!({ "mac": true });
    bench.lay(&bench.list(&[object]));
    let mut request = bench.request();
    request.capabilities = Some(arguments());
    bench.does(Verb::Add, &request)?;
    bench.does(verb, &request)?;
    let received = bench.received_of(verb);
    let seen = only(&received)?.config()["runtimeConfig"].clone();
    same(&format!("runtimeConfig of {verb}"), &json!({ "mac": arguments()["mac"] }), &seen)
}

fn of_own_plugin(bench: &RuntimeBench) -> End {
    bench.needs("capabilities")?;
    let (mut one, mut other) = (bench.plugin(1), bench.plugin(2));
    one["capabilities"] = json!({ "mac": true });
    other["capabilities"] = json!({ "ipRanges": true });
    bench.lay(&bench.list(&[one, other]));
    let mut request = bench.request();
    request.capabilities = Some(arguments());
    bench.does(Verb::Add, &request)?;
    let received = bench.received();
    order(&received, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for (call, key) in received.iter().zip(["mac", "ipRanges"]) {
        let seen = call.config()["runtimeConfig"].clone();
        same(&format!("runtimeConfig of plugin {}", call.place()), &json!({ key: arguments()[key] }), &seen)?;
    }
    Ok(())
}

fn no_first_result(bench: &RuntimeBench) -> End {
    bench.lay(&bench.list(&[bench.plugin(1)]));
    bench.does(Verb::Add, &bench.request())?;
    let received = bench.received();
    let seen = only(&received)?.config();
    let seen = seen.get("prevResult").filter(|previous| !previous.is_null());
    holds(seen.is_none(), "no prevResult", format!("it was {}", seen.unwrap_or(&Value::Null)))
}

fn result_of_the_one_before(bench: &RuntimeBench) -> End {
    if !crate::form::is_from(&bench.version, "0.3.0") {
        return Err(Stop::Skips("lists came with 0.3.0".to_owned()));
    }
    bench.lay_three();
    bench.does(Verb::Add, &bench.request())?;
    let received = bench.received_of(Verb::Add);
    same("plugins called", &3, &received.len())?;
    received.iter().zip(received.iter().skip(1)).try_for_each(|(before, call)| previous(call, &before.result()))
}
