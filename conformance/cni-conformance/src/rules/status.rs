//! SPEC 2, STATUS.

use crate::bench::{Answer, Bench};
use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::Role;
use crate::rule::{Case, Proof, Rule, Source, Versions};
use serde_json::{Value, json};
use testns::{Attachment, Verb};

/// The versions with STATUS.
const STATUS: Versions = Versions::From("1.1.0");

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "status.ready",
        source: Source::Spec(&["status/ready"]),
        sentence: "STATUS succeeds if ADD can be served; it is asked about no container.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            Case { name: "before-any-add", versions: STATUS, run: ready },
            Case { name: "with-a-container-attached", versions: STATUS, run: ready_with_a_container },
        ]),
    },
    Rule {
        id: "status.not-ready",
        source: Source::Spec(&["status/services", "status/exhausted"]),
        sentence: "STATUS fails if a daemon that the plugin relies on is away, or no address is left.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            Case { name: "addresses-exhausted", versions: STATUS, run: addresses_exhausted },
            Case { name: "daemon-away", versions: STATUS, run: daemon_away },
        ]),
    },
    Rule {
        id: "status.foresees-a-refused-add",
        source: Source::Relied("containerd and CRI-O, which start pods while STATUS succeeds"),
        sentence: "After a STATUS that succeeded, ADD is not refused for want of a delegate, a master or a bridge.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            Case { name: "delegate-missing", versions: STATUS, run: delegate_missing },
            Case { name: "master-missing", versions: STATUS, run: master_missing },
            Case { name: "bridge-is-no-bridge", versions: STATUS, run: bridge_is_no_bridge },
        ]),
    },
    Rule {
        id: "status.not-ready-codes",
        source: Source::Spec(&["status/codes"]),
        sentence: "STATUS that fails has code 50, or 51 if existing containers are affected.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            Case { name: "delegate-missing", versions: STATUS, run: delegate_missing_code },
            Case { name: "delegate-not-ready", versions: STATUS, run: delegate_not_ready_code },
            Case { name: "addresses-exhausted", versions: STATUS, run: addresses_exhausted_code },
        ]),
    },
    Rule {
        id: "status.forwards",
        source: Source::Spec(&["status/delegates"]),
        sentence: "STATUS is asked of the plugins that the plugin delegates to.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[Case { name: "", versions: STATUS, run: forwards }]),
    },
    Rule {
        id: "status.delegate-not-ready",
        source: Source::Spec(&["status/delegates-error"]),
        sentence: "STATUS fails if that of a delegate does.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[
            Case { name: "code-50", versions: STATUS, run: |bench| delegate_not_ready(bench, 50) },
            Case { name: "code-51", versions: STATUS, run: |bench| delegate_not_ready(bench, 51) },
        ]),
    },
    Rule {
        id: "status.is-not-needed",
        source: Source::Spec(&["status/others-come"]),
        sentence: "STATUS informs only: other operations come even after it has failed.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[Case { name: "", versions: STATUS, run: is_not_needed }]),
    },
    Rule {
        id: "status.changes-nothing",
        source: Source::Relied("runtimes, which ask again and again"),
        sentence: "STATUS leaves the node as it is.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[Case { name: "", versions: STATUS, run: changes_nothing }]),
    },
    Rule {
        id: "status.cni-path-is-optional",
        source: Source::Spec(&["status/optional"]),
        sentence: "STATUS needs no CNI_PATH where it delegates to no plugin.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[Case { name: "", versions: STATUS, run: without_cni_path }]),
    },
    Rule {
        id: "status.limited-connectivity",
        source: Source::Spec(&["status/codes"]),
        sentence: "Code 51 says that existing containers may have limited connectivity as well.",
        roles: Role::PLUGINS,
        proof: Proof::Untestable("what serves containers after ADD, a daemon say, differs from plugin to plugin"),
    },
];

const NOT_READY: &str = "status.not-ready";
const DELEGATE_NOT_READY: &str = "status.delegate-not-ready";

fn ready(bench: &Bench) -> Result<(), Stop> {
    ask(bench, &config(bench))?.succeeds().map(drop)
}

fn ready_with_a_container(bench: &Bench) -> Result<(), Stop> {
    bench.add(&bench.pod())?;
    let answer = ask(bench, &config(bench))?;
    let next = bench.pods().pop().unwrap_or_else(|| bench.pod());
    if !answer.is_success() && bench.add(&next).is_err() {
        return Err(Stop::skip("with one container it cannot serve another, and says so"));
    }
    answer.succeeds().map(drop)
}

/// The config as the next pod's ADD would have it: what a profile lays for a pod is there.
fn config(bench: &Bench) -> Value {
    bench.config_for(Verb::Status, &bench.pod().attachment())
}

fn ask(bench: &Bench, config: &Value) -> Result<Answer, Stop> {
    bench.make(&bench.call_with(Verb::Status, config, Attachment::none()))
}

fn delegate_missing(bench: &Bench) -> Result<(), Stop> {
    foresees(bench, &with_ipam(bench, json!({ "type": "no-such-plugin" }))?)
}

/// Checks that STATUS fails where ADD does. What a plugin knows is not seen from outside, and what it should have known is.
fn foresees(bench: &Bench, config: &Value) -> Result<(), Stop> {
    if !ask(bench, config)?.is_success() {
        return Ok(());
    }
    let pod = bench.pods().pop().unwrap_or_else(|| bench.pod());
    match bench.make(&bench.call_with(Verb::Add, config, &pod))?.is_success() {
        true => Ok(()),
        false => Err(Finding::new("an error of STATUS, as ADD fails", "STATUS succeeded").into()),
    }
}

fn daemon_away(bench: &Bench) -> Result<(), Stop> {
    let config = config(bench);
    match bench.end_daemons() {
        0 => Err(Stop::skip("it has no daemon")),
        _ => ask(bench, &config)?.fails().map(drop),
    }
}

fn delegate_missing_code(bench: &Bench) -> Result<(), Stop> {
    has_code(
        &ask(bench, &with_ipam(bench, json!({ "type": "no-such-plugin" }))?)?
            .refused_by("status.foresees-a-refused-add"),
    )
}

fn with_ipam(bench: &Bench, ipam: Value) -> Result<Value, Stop> {
    if bench.config_with_kit_ipam().is_none() {
        return Err(Stop::skip("it delegates to no plugin"));
    }
    let mut config = config(bench);
    if let Some(delegate) = bench.profile.delegate_of(&mut config) {
        *delegate = ipam;
    }
    Ok(config)
}

fn has_code(answer: &Answer) -> Result<(), Stop> {
    let error = answer.fails()?;
    Finding::unless([50, 51].contains(&error.code), "code 50 or 51", format!("it printed {}", error.object))
}

fn addresses_exhausted(bench: &Bench) -> Result<(), Stop> {
    exhausted(bench)?.fails().map(drop)
}

fn addresses_exhausted_code(bench: &Bench) -> Result<(), Stop> {
    has_code(&exhausted(bench)?.refused_by(NOT_READY))
}

/// STATUS when the only address of the range is taken.
fn exhausted(bench: &Bench) -> Result<Answer, Stop> {
    let mut config = config(bench);
    if !bench.profile.of_one_address(&mut config) {
        return Err(Stop::skip("the kit does not know how to make its pool small"));
    }
    // A plugin may say so only where the config asks for it: runtimes call the node of a network that is not ready not ready
    // either, and its pods are evicted.
    if let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) {
        ipam.insert("reportExhausted".to_owned(), json!(true));
    }
    let pod = bench.pods().pop().unwrap_or_else(|| bench.pod());
    bench.make(&bench.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    ask(bench, &config)
}

fn master_missing(bench: &Bench) -> Result<(), Stop> {
    let mut config = config(bench);
    let master = config.get_mut("master").ok_or_else(|| Stop::skip("its config has no master"))?;
    *master = json!("no-such-link");
    foresees(bench, &config)
}

fn bridge_is_no_bridge(bench: &Bench) -> Result<(), Stop> {
    let config = config(bench);
    let name = config.get("bridge").and_then(Value::as_str).ok_or_else(|| Stop::skip("its config has no bridge"))?;
    let far_end = bench.node.remote("far-end");
    bench.node.host().add_veth(name, &far_end, "near");
    foresees(bench, &config)
}

fn forwards(bench: &Bench) -> Result<(), Stop> {
    ask(bench, &kit_ipam(bench)?)?.succeeds()?;
    let verbs = bench.ipam().verbs();
    Finding::unless(
        verbs.contains(&"STATUS".to_owned()),
        "STATUS of the IPAM plugin",
        format!("its calls were {verbs:?}"),
    )
}

fn kit_ipam(bench: &Bench) -> Result<Value, Stop> {
    let mut kit = bench.config_with_kit_ipam().ok_or_else(|| Stop::skip("it delegates to no plugin"))?;
    let delegate = bench.profile.delegate_of(&mut kit).cloned();
    with_ipam(bench, delegate.unwrap_or_default())
}

fn out_of_order(bench: &Bench, code: u64) {
    bench.ipam().order(Verb::Status, Some(Order::Fail { code, msg: "kit-ipam is out of order".to_owned() }));
}

fn delegate_not_ready(bench: &Bench, code: u64) -> Result<(), Stop> {
    let config = kit_ipam(bench)?;
    out_of_order(bench, code);
    ask(bench, &config)?.refused_by("status.forwards").fails().map(drop)
}

fn delegate_not_ready_code(bench: &Bench) -> Result<(), Stop> {
    let config = kit_ipam(bench)?;
    out_of_order(bench, 50);
    has_code(&ask(bench, &config)?.refused_by(DELEGATE_NOT_READY))
}

fn is_not_needed(bench: &Bench) -> Result<(), Stop> {
    let config = kit_ipam(bench)?;
    out_of_order(bench, 50);
    ask(bench, &config)?.refused_by(DELEGATE_NOT_READY).fails()?;
    let pod = bench.pods().pop().unwrap_or_else(|| bench.pod());
    let result = bench.make(&bench.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    bench.make(&bench.call_with(Verb::Check, &config, &pod).prev_result(&result))?.succeeds()?;
    bench.make(&bench.call_with(Verb::Del, &config, &pod).prev_result(&result))?.succeeds().map(drop)
}

fn changes_nothing(bench: &Bench) -> Result<(), Stop> {
    let config = config(bench);
    let ask_and_compare = |may_stay: fn(&str) -> bool| {
        bench.remember();
        ask(bench, &config)?.succeeds()?;
        let left = bench.left_behind();
        let changes: String = left.lines().filter(|line| !may_stay(line)).map(|line| format!("{line}\n")).collect();
        match changes.is_empty() {
            true => Ok(()),
            false => Err(Finding::new("the node as before STATUS", "it differs").with_diff(changes).into()),
        }
    };
    // The first call of a boot may note in /run what it has found out of the kernel, but for links to it.
    ask_and_compare(|line| ["+ file /run/", "+ folder /run/"].iter().any(|start| line.starts_with(start)))?;
    ask_and_compare(|_| false)
}

fn without_cni_path(bench: &Bench) -> Result<(), Stop> {
    if bench.config_with_kit_ipam().is_some() {
        return Err(Stop::skip("it delegates"));
    }
    let call = bench.call_with(Verb::Status, config(bench), Attachment::none()).without("CNI_PATH");
    bench.make(&call)?.succeeds().map(drop)
}
