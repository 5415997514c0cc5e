//! SPEC 2, STATUS.

use crate::rules::prelude::*;
use crate::testbed::Answer;

pub(super) const CASES: &[Code] = &[
    ("status.ready/with-a-container-attached", ready_with_a_container),
    ("status.not-ready/addresses-exhausted", |testbed| exhausted(testbed)?.fails().map(drop)),
    ("status.foresees-a-refused-add/delegate-missing", delegate_missing),
    ("status.foresees-a-refused-add/master-missing", master_missing),
    ("status.foresees-a-refused-add/bridge-is-no-bridge", bridge_is_no_bridge),
    ("status.not-ready-codes/addresses-exhausted", |testbed| has_code(&exhausted(testbed)?.refused_by(NOT_READY))),
    ("status.changes-nothing", changes_nothing),
];

const NOT_READY: &str = "status.not-ready";

fn ready_with_a_container(testbed: &Testbed) -> Result<(), Stop> {
    testbed.add(&testbed.pod())?;
    let answer = ask(testbed, &config(testbed))?;
    let next = testbed.pods().pop().unwrap_or_else(|| testbed.pod());
    Stop::skip_if(
        !answer.is_success() && testbed.add(&next).is_err(),
        "with one container it cannot serve another, and says so",
    )?;
    answer.succeeds().map(drop)
}

/// The config as the next pod's ADD would have it: what a profile lays for a pod is there.
fn config(testbed: &Testbed) -> Value {
    testbed.config_for(Verb::Status, &testbed.pod().attachment())
}

fn ask(testbed: &Testbed, config: &Value) -> Result<Answer, Stop> {
    testbed.make(&testbed.call_with(Verb::Status, config, Attachment::none()))
}

fn delegate_missing(testbed: &Testbed) -> Result<(), Stop> {
    foresees(testbed, &with_ipam(testbed, json!({ "type": "no-such-plugin" }))?)
}

/// Checks that STATUS fails where ADD does. What a plugin knows is not seen from outside, and what it should have known is.
fn foresees(testbed: &Testbed, config: &Value) -> Result<(), Stop> {
    if !ask(testbed, config)?.is_success() {
        return Ok(());
    }
    let pod = testbed.pods().pop().unwrap_or_else(|| testbed.pod());
    Finding::unless(
        testbed.make(&testbed.call_with(Verb::Add, config, &pod))?.is_success(),
        "an error of STATUS, as ADD fails",
        "STATUS succeeded",
    )
}

fn with_ipam(testbed: &Testbed, ipam: Value) -> Result<Value, Stop> {
    Stop::skip_if(testbed.config_with_kit_ipam().is_none(), "it delegates to no plugin")?;
    let mut config = config(testbed);
    if let Some(delegate) = testbed.profile.delegate_of(&mut config) {
        *delegate = ipam;
    }
    Ok(config)
}

fn has_code(answer: &Answer) -> Result<(), Stop> {
    let error = answer.fails()?;
    Finding::unless([50, 51].contains(&error.code), "code 50 or 51", format!("it printed {}", error.object))
}

/// STATUS when the only address of the range is taken.
fn exhausted(testbed: &Testbed) -> Result<Answer, Stop> {
    let mut config = config(testbed);
    Stop::skip_if(!testbed.profile.of_one_address(&mut config), "the kit does not know how to make its pool small")?;
    // A plugin may say so only where the config asks for it: runtimes call the node of a network that is not ready not ready
    // either, and its pods are evicted.
    if let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) {
        ipam.insert("reportExhausted".to_owned(), json!(true));
    }
    let pod = testbed.pods().pop().unwrap_or_else(|| testbed.pod());
    testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    ask(testbed, &config)
}

fn master_missing(testbed: &Testbed) -> Result<(), Stop> {
    let mut config = config(testbed);
    let master = config.get_mut("master").ok_or_else(|| Stop::skip("its config has no master"))?;
    *master = json!("no-such-link");
    foresees(testbed, &config)
}

fn bridge_is_no_bridge(testbed: &Testbed) -> Result<(), Stop> {
    let config = config(testbed);
    let name = config.get("bridge").and_then(Value::as_str).ok_or_else(|| Stop::skip("its config has no bridge"))?;
    let far_end = testbed.node.remote("far-end");
    testbed.node.host().add_veth(name, &far_end, "near");
    foresees(testbed, &config)
}

fn changes_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let config = config(testbed);
    let ask_and_compare = |may_stay: fn(&str) -> bool| {
        testbed.remember();
        ask(testbed, &config)?.succeeds()?;
        let left = testbed.left_behind();
        let changes: String = left.lines().filter(|line| !may_stay(line)).map(|line| format!("{line}\n")).collect();
        Finding::unless_differs(changes, "the node as before STATUS", "it differs")
    };
    // The first call of a boot may note in /run what it has found out of the kernel, but for links to it.
    ask_and_compare(|line| ["+ file /run/", "+ folder /run/"].iter().any(|start| line.starts_with(start)))?;
    ask_and_compare(|_| false)
}
