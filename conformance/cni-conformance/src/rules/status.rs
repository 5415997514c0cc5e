//! SPEC 2, STATUS.

use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::Role;
use crate::rule::{Rule, relied, since, spec};
use crate::testbed::{Answer, Testbed};
use serde_json::{Value, json};
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("status.ready", &["status/ready"], Role::PLUGINS)
        .says("STATUS succeeds if ADD can be served; it is asked about no container.")
        .by(&[
            since("1.1.0", "before-any-add", ready).does("STATUS before any ADD."),
            since("1.1.0", "with-a-container-attached", ready_with_a_container)
                .does("STATUS with a container; it may fail where a second ADD does."),
        ]),
    spec("status.not-ready", &["status/services", "status/exhausted"], Role::PLUGINS)
        .says("STATUS fails if a daemon that the plugin relies on is away, or no address is left.")
        .by(&[
            since("1.1.0", "addresses-exhausted", |testbed| exhausted(testbed)?.fails().map(drop))
                .does("STATUS when the pool's one address is taken."),
            since("1.1.0", "daemon-away", daemon_away).does("STATUS when the daemon is ended."),
        ]),
    relied(
        "status.foresees-a-refused-add",
        "containerd and CRI-O, which start pods while STATUS succeeds",
        Role::PLUGINS,
    )
    .says("After a STATUS that succeeded, ADD is not refused for want of a delegate, a master or a bridge.")
    .by(&[
        since("1.1.0", "delegate-missing", delegate_missing)
            .does("STATUS with a delegate that there is not; if it succeeds, ADD has to."),
        since("1.1.0", "master-missing", master_missing).does("The same with a master that there is not."),
        since("1.1.0", "bridge-is-no-bridge", bridge_is_no_bridge).does("The same where a veth has the bridge's name."),
    ]),
    spec("status.not-ready-codes", &["status/codes"], Role::PLUGINS)
        .says("STATUS that fails has code 50, or 51 if existing containers are affected.")
        .by(&[
            since("1.1.0", "delegate-missing", delegate_missing_code)
                .does("The code of STATUS with a delegate that there is not."),
            since("1.1.0", "delegate-not-ready", delegate_not_ready_code)
                .does("The code of STATUS with a delegate that fails with 50."),
            since("1.1.0", "addresses-exhausted", |testbed| has_code(&exhausted(testbed)?.refused_by(NOT_READY)))
                .does("The code of STATUS when the pool's one address is taken."),
        ]),
    spec("status.forwards", &["status/delegates"], &[Role::Interface])
        .says("STATUS is asked of the plugins that the plugin delegates to.")
        .by(&[since("1.1.0", "", forwards).does("STATUS with the kit's own delegate, which has to be asked.")]),
    spec("status.delegate-not-ready", &["status/delegates-error"], &[Role::Interface])
        .says("STATUS fails if that of a delegate does.")
        .by(&[
            since("1.1.0", "code-50", |testbed| delegate_not_ready(testbed, 50))
                .does("STATUS with a delegate that fails with 50."),
            since("1.1.0", "code-51", |testbed| delegate_not_ready(testbed, 51))
                .does("STATUS with a delegate that fails with 51."),
        ]),
    spec("status.is-not-needed", &["status/others-come"], &[Role::Interface])
        .says("STATUS informs only: other operations come even after it has failed.")
        .by(&[since("1.1.0", "", is_not_needed)
            .does("STATUS fails for its delegate; then ADD, CHECK and DEL have to succeed.")]),
    relied("status.changes-nothing", "runtimes, which ask again and again", Role::PLUGINS)
        .says("STATUS leaves the node as it is.")
        .by(&[since("1.1.0", "", changes_nothing)
            .does("STATUS twice; the node is compared with before. The first may lay files in /run.")]),
    spec("status.cni-path-is-optional", &["status/optional"], Role::PLUGINS)
        .says("STATUS needs no CNI_PATH where it delegates to no plugin.")
        .by(&[since("1.1.0", "", without_cni_path).does("STATUS without CNI_PATH.")]),
];

const NOT_READY: &str = "status.not-ready";
const DELEGATE_NOT_READY: &str = "status.delegate-not-ready";

fn ready(testbed: &Testbed) -> Result<(), Stop> {
    ask(testbed, &config(testbed))?.succeeds().map(drop)
}

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

fn daemon_away(testbed: &Testbed) -> Result<(), Stop> {
    let config = config(testbed);
    match testbed.end_daemons() {
        0 => Err(Stop::skip("it has no daemon")),
        _ => ask(testbed, &config)?.fails().map(drop),
    }
}

fn delegate_missing_code(testbed: &Testbed) -> Result<(), Stop> {
    has_code(
        &ask(testbed, &with_ipam(testbed, json!({ "type": "no-such-plugin" }))?)?
            .refused_by("status.foresees-a-refused-add"),
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

fn forwards(testbed: &Testbed) -> Result<(), Stop> {
    ask(testbed, &kit_ipam(testbed)?)?.succeeds()?;
    let verbs = testbed.ipam().verbs();
    Finding::unless(
        verbs.contains(&"STATUS".to_owned()),
        "STATUS of the IPAM plugin",
        format!("its calls were {verbs:?}"),
    )
}

fn kit_ipam(testbed: &Testbed) -> Result<Value, Stop> {
    let mut kit = testbed.config_with_kit_ipam().ok_or_else(|| Stop::skip("it delegates to no plugin"))?;
    let delegate = testbed.profile.delegate_of(&mut kit).cloned();
    with_ipam(testbed, delegate.unwrap_or_default())
}

fn out_of_order(testbed: &Testbed, code: u64) {
    testbed.ipam().order(Verb::Status, Some(Order::Fail { code, msg: "kit-ipam is out of order".to_owned() }));
}

fn delegate_not_ready(testbed: &Testbed, code: u64) -> Result<(), Stop> {
    let config = kit_ipam(testbed)?;
    out_of_order(testbed, code);
    ask(testbed, &config)?.refused_by("status.forwards").fails().map(drop)
}

fn delegate_not_ready_code(testbed: &Testbed) -> Result<(), Stop> {
    let config = kit_ipam(testbed)?;
    out_of_order(testbed, 50);
    has_code(&ask(testbed, &config)?.refused_by(DELEGATE_NOT_READY))
}

fn is_not_needed(testbed: &Testbed) -> Result<(), Stop> {
    let config = kit_ipam(testbed)?;
    out_of_order(testbed, 50);
    ask(testbed, &config)?.refused_by(DELEGATE_NOT_READY).fails()?;
    let pod = testbed.pods().pop().unwrap_or_else(|| testbed.pod());
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    testbed.make(&testbed.call_with(Verb::Check, &config, &pod).prev_result(&result))?.succeeds()?;
    testbed.make(&testbed.call_with(Verb::Del, &config, &pod).prev_result(&result))?.succeeds().map(drop)
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

fn without_cni_path(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.config_with_kit_ipam().is_some(), "it delegates")?;
    let call = testbed.call_with(Verb::Status, config(testbed), Attachment::none()).without("CNI_PATH");
    testbed.make(&call)?.succeeds().map(drop)
}
