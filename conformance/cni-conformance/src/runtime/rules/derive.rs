//! SPEC 3, Deriving request configuration from plugin configuration.

use super::{newest, rule};
use crate::finding::Stop;
use crate::rule::Source::Spec;
use crate::rule::Versions;
use crate::runtime::judge::{Heard, KEY};
use crate::runtime::look::{End, holds, only, order, previous, same};
use crate::runtime::stand::NETWORK;
use crate::runtime::{Case, Rule, Stand};
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
            newest("nested", |stand| {
                passes(stand, &json!({ "a": { "b": [[], {}, [{ "c": null }]] }, "": "", "d": false }))
            }),
            newest("texts", |stand| {
                passes(
                    stand,
                    &json!({ "html": "<a href='x'>&amp;</a>", "unicode": "zażółć 網路 🐳 \u{2028}\u{7f}\u{0}", "quote": "\"\\/" }),
                )
            }),
            newest("integers", |stand| {
                passes(
                    stand,
                    &json!({ "u": u64::MAX, "i": i64::MIN, "large": 12_345_678_901_234_567_890_u64, "odd": 9_007_199_254_740_993_u64 }),
                )
            }),
            newest("fractions", |stand| {
                passes(stand, &json!({ "third": 0.333_333_333_333_333_3, "small": 1e-7, "big": 1.5e300 }))
            }),
            newest("long-numbers", long_numbers),
            newest("known-keys", |stand| {
                passes(
                    stand,
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
            newest("ADD", |stand| capabilities_removed(stand, Verb::Add)),
            newest("CHECK", |stand| capabilities_removed(stand, Verb::Check)),
            newest("DEL", |stand| capabilities_removed(stand, Verb::Del)),
        ],
    ),
    rule(
        "derive.runtime-config",
        Spec(&["deriving/runtime-config"]),
        "runtimeConfig has the arguments of capabilities that the plugin object sets to true, and of no other.",
        &[
            newest("enabled", |stand| {
                runtime_config(stand, &json!({ "mac": true }), &json!({ "mac": "0a:00:00:00:00:09" }))
            }),
            newest("disabled", |stand| runtime_config(stand, &json!({ "mac": false }), &Value::Null)),
            newest("undeclared", |stand| runtime_config(stand, &json!({}), &Value::Null)),
            newest("not-given", |stand| runtime_config(stand, &json!({ "bandwidth": true }), &Value::Null)),
            newest("some", |stand| {
                let enabled = json!({ "mac": true, "portMappings": true, "ipRanges": false, "bandwidth": true });
                let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
                runtime_config(stand, &enabled, &json!({ "mac": "0a:00:00:00:00:09", "portMappings": ports }))
            }),
            newest("of-own-plugin", of_own_plugin),
            newest("CHECK", |stand| runtime_config_of(stand, Verb::Check)),
            newest("DEL", |stand| runtime_config_of(stand, Verb::Del)),
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

fn name_and_version(stand: &Stand) -> End {
    let mut object = stand.judge(1);
    object["name"] = json!("another");
    object["cniVersion"] = json!("0.2.0");
    stand.lay(&stand.list(&[object, stand.judge(2)]));
    stand.does(Verb::Add, &stand.request())?;
    let heard = stand.heard();
    order(&heard, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for call in &heard {
        same("name", &json!(NETWORK), &call.config()["name"])?;
        same("cniVersion", &json!(stand.version), &call.config()["cniVersion"])?;
    }
    Ok(())
}

/// What a judge with more keys of its own got with ADD.
fn with_keys(stand: &Stand, more: &Value) -> Result<(Value, Heard), Stop> {
    let mut object = stand.judge(1);
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    stand.lay(&stand.list(std::slice::from_ref(&object)));
    stand.does(Verb::Add, &stand.request())?;
    Ok((object, only(&stand.heard())?.clone()))
}

fn passes(stand: &Stand, more: &Value) -> End {
    let (object, heard) = with_keys(stand, more)?;
    let mut seen = heard.config();
    let own = seen.as_object_mut();
    own.into_iter().for_each(|own| own.retain(|key, _| !["name", "cniVersion", "prevResult"].contains(&key.as_str())));
    for (key, value) in object.as_object().into_iter().flatten() {
        same(&format!("key {key:?}"), value, seen.get(key).unwrap_or(&json!("(no such key)")))?;
    }
    same("the plugin object", &object, &seen)
}

/// Longer ones than any machine word: they can only be compared as text.
fn long_numbers(stand: &Stand) -> End {
    let (integer, fraction) = ("123456789012345678901234567890", "0.1234567890123456789012345678901");
    let kind = stand.judge(1);
    let text = format!(
        r#"{{"cniVersion":"{}","name":"{NETWORK}","plugins":[{{"type":{},"{KEY}":{},"integer":{integer},"fraction":{fraction}}}]}}"#,
        stand.version, kind["type"], kind[KEY]
    );
    stand.lay_text(&text);
    stand.does(Verb::Add, &stand.request())?;
    let heard = stand.heard();
    let stdin = &only(&heard)?.stdin;
    for number in [integer, fraction] {
        holds(stdin.contains(number), format!("{number} in stdin"), format!("it was {stdin}"))?;
    }
    Ok(())
}

/// More than a pipe holds.
fn many(stand: &Stand) -> End {
    let more: serde_json::Map<_, _> = (0..4000).map(|n| (format!("key-{n}"), json!("x".repeat(60)))).collect();
    let more = Value::Object(more);
    let (_, heard) = with_keys(stand, &more)?;
    let seen = heard.config();
    let missing = more.as_object().into_iter().flatten().filter(|(key, value)| seen.get(*key) != Some(value)).count();
    same("missing ones of 4000 keys", &0, &missing)
}

fn capabilities_removed(stand: &Stand, verb: Verb) -> End {
    let mut object = stand.judge(1);
    object["capabilities"] = json!({ "mac": true, "portMappings": false });
    stand.lay(&stand.list(&[object]));
    let request = stand.request();
    stand.does(Verb::Add, &request)?;
    if verb != Verb::Add {
        stand.does(verb, &request)?;
    }
    let heard = stand.heard_of(verb);
    let seen = only(&heard)?.config();
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

fn runtime_config(stand: &Stand, enabled: &Value, expected: &Value) -> End {
    stand.needs("capabilities")?;
    let mut object = stand.judge(1);
    object["capabilities"] = enabled.clone();
    stand.lay(&stand.list(&[object]));
    let mut request = stand.request();
    request.capabilities = Some(arguments());
    stand.does(Verb::Add, &request)?;
    let heard = stand.heard();
    let seen = only(&heard)?.config();
    match (expected, seen.get("runtimeConfig")) {
        (Value::Null, None) => Ok(()),
        // Empty says the same.
        (Value::Null, Some(Value::Object(empty))) if empty.is_empty() => Ok(()),
        (expected, seen) => same("runtimeConfig", expected, seen.unwrap_or(&Value::Null)),
    }
}

/// The same as with ADD.
fn runtime_config_of(stand: &Stand, verb: Verb) -> End {
    stand.needs("capabilities")?;
    let mut object = stand.judge(1);
    object["capabilities"] = json!({ "mac": true });
    stand.lay(&stand.list(&[object]));
    let mut request = stand.request();
    request.capabilities = Some(arguments());
    stand.does(Verb::Add, &request)?;
    stand.does(verb, &request)?;
    let heard = stand.heard_of(verb);
    let seen = only(&heard)?.config()["runtimeConfig"].clone();
    same(&format!("runtimeConfig of {verb}"), &json!({ "mac": arguments()["mac"] }), &seen)
}

fn of_own_plugin(stand: &Stand) -> End {
    stand.needs("capabilities")?;
    let (mut one, mut other) = (stand.judge(1), stand.judge(2));
    one["capabilities"] = json!({ "mac": true });
    other["capabilities"] = json!({ "ipRanges": true });
    stand.lay(&stand.list(&[one, other]));
    let mut request = stand.request();
    request.capabilities = Some(arguments());
    stand.does(Verb::Add, &request)?;
    let heard = stand.heard();
    order(&heard, &[(Verb::Add, 1), (Verb::Add, 2)])?;
    for (call, key) in heard.iter().zip(["mac", "ipRanges"]) {
        let seen = call.config()["runtimeConfig"].clone();
        same(&format!("runtimeConfig of plugin {}", call.place()), &json!({ key: arguments()[key] }), &seen)?;
    }
    Ok(())
}

fn no_first_result(stand: &Stand) -> End {
    stand.lay(&stand.list(&[stand.judge(1)]));
    stand.does(Verb::Add, &stand.request())?;
    let heard = stand.heard();
    let seen = only(&heard)?.config();
    let seen = seen.get("prevResult").filter(|previous| !previous.is_null());
    holds(seen.is_none(), "no prevResult", format!("it was {}", seen.unwrap_or(&Value::Null)))
}

fn result_of_the_one_before(stand: &Stand) -> End {
    if !crate::form::is_from(&stand.version, "0.3.0") {
        return Err(Stop::Skips("lists came with 0.3.0".to_owned()));
    }
    stand.lay_three();
    stand.does(Verb::Add, &stand.request())?;
    let heard = stand.heard_of(Verb::Add);
    same("plugins called", &3, &heard.len())?;
    heard.iter().zip(heard.iter().skip(1)).try_for_each(|(before, call)| previous(call, &before.result()))
}
