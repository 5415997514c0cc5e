//! SPEC 4: delegated plugins. The kit's own IPAM plugin is the witness.

use super::kit_as_delegate::KitAsDelegate;
use crate::finding::{Finding, Stop};
use crate::kit_ipam::{self, Order};
use crate::profile::Role;
use crate::rule::{Rule, before, newest, relied, since, spec};
use crate::spec_version::is_from;
use crate::testbed::{Answer, Testbed};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use testns::{Call, Verb};

/// Roles that delegate to an IPAM plugin, if their config says so.
const UPPER: &[Role] = &[Role::Interface];

pub(super) const RULES: &[Rule] = &[
    spec("delegation.looks-in-cni-path", &["delegation/looked-up"], UPPER)
        .says("A delegate is looked for in the folders of CNI_PATH.")
        .by(&[newest("another-folder", finds_in_another_folder)
            .does("The delegate is moved to another folder, which CNI_PATH names behind one that is not there.")]),
    relied("delegation.looks-in-order", "operators, who replace a plugin by a folder before the others", UPPER)
        .says("The folders of CNI_PATH are searched in their order, and no other.")
        .by(&[
            newest("first-of-two", takes_the_first)
                .does("CNI_PATH has two folders with a delegate; that of the second fails."),
            newest("nowhere", looks_nowhere_else)
                .does("CNI_PATH names a folder that is not there; ADD has to fail, and no delegate to be called."),
        ]),
    spec("delegation.same-environment", &["delegation/environment"], UPPER)
        .says("A delegate gets all the environment variables that its caller got.")
        .by(&[
            newest("add-and-del", same_environment)
                .does("ADD and DEL with unknown variables; those of the delegate are compared."),
            since("0.4.0", "check", same_environment_of_check).does("The same with CHECK."),
            since("1.1.0", "gc", |testbed| same_environment_without_container(testbed, Verb::Gc))
                .does("The same with GC."),
            since("1.1.0", "status", |testbed| same_environment_without_container(testbed, Verb::Status))
                .does("The same with STATUS."),
        ]),
    spec("delegation.complete-config", &["delegation/same-input"], UPPER)
        .says("A delegate gets the complete config that its caller got, not its own part only.")
        .by(&[
            newest("add-and-del", complete_config)
                .does("ADD and DEL with odd values in config and args; the delegate's stdin is compared."),
            since("0.4.0", "check", complete_config_of_check).does("The same with CHECK."),
            since("1.1.0", "gc", |testbed| complete_config_without_container(testbed, Verb::Gc))
                .does("The same with GC."),
            since("1.1.0", "status", |testbed| complete_config_without_container(testbed, Verb::Status))
                .does("The same with STATUS."),
        ]),
    spec("delegation.forwards", &["delegation/forwards"], UPPER)
        .says("CHECK and DEL are forwarded to the delegate.")
        .by(&[
            newest("add-and-del", forwards_add_and_del).does("ADD and DEL; the delegate has to be called with both."),
            newest("del-without-namespace", forwards_del_without_namespace)
                .does("DEL with an empty CNI_NETNS; the delegate may hold no address afterwards."),
            since("0.4.0", "check", forwards_check).does("CHECK; the delegate has to be called with it."),
        ]),
    spec("delegation.stderr", &["delegation/stderr"], UPPER)
        .says("A delegate's stderr joins its caller's.")
        .by(&[newest("", joins_stderr).does("ADD with a delegate that writes a line to stderr.")]),
    spec("delegation.error", &["delegation/error"], UPPER).says("If a delegate fails, its caller does.").by(&[
        newest("add", error_of_add).does("ADD with a delegate that fails."),
        newest("del", error_of_del).does("DEL with a delegate that fails."),
        since("0.4.0", "check", error_of_check).does("CHECK with a delegate that fails."),
        newest("missing", error_of_a_missing_one).does("ADD with a delegate that there is not."),
    ]),
    relied("delegation.same-error", "runtimes and operators, who learn from it what to do", UPPER)
        .says("The delegate's error is what the caller prints: its code, and its message at least within.")
        .by(&[newest("", same_error).does("ADD with a delegate that fails with code 117.")]),
    spec("delegation.del-after-failed-add", &["delegation/del-after-add"], UPPER)
        .says("When the delegate's ADD fails, it is called again with DEL.")
        .by(&[
            newest("delegate-fails", del_after_failed_delegate)
                .does("ADD with a delegate that fails; it has to be called with DEL."),
            newest("result-is-no-json", del_after_garbage)
                .does("ADD with a delegate that prints no JSON; it has to be called with DEL."),
        ]),
    spec("delegation.result-is-used", &["delegation/applied"], UPPER)
        .says(
            "The delegate's addresses are in the container and in the caller's result, where each has the index \
              of its interface.",
        )
        .by(&[
            newest("addresses", result_is_used)
                .does("ADD; the delegate's address has to be on the interface, and in ips with an index."),
            newest("gateway-and-dns", gateway_and_dns_are_used)
                .does("ADD with a delegate that gives a gateway and a dns, which have to be in the result."),
        ]),
    spec("delegation.ips-and-dns-in-0.4.0", &["results/as-ipam-0.4.0"], UPPER)
        .says("ips and dns of the result are those of the IPAM plugin, but for the index of the interface.")
        .by(&[
            newest("addresses", result_is_used)
                .does("ADD; the delegate's address has to be on the interface, and in ips with an index."),
            before("0.3.0", "addresses-before-0.3.0", result_is_used)
                .does("The same before 0.3.0, where the address is ip4's."),
            since("0.3.0", "gateway-and-dns", gateway_and_dns_are_used)
                .does("ADD with a delegate that gives a gateway and a dns, which have to be in the result."),
        ]),
    spec("delegation.route-attributes", &["results/route-attributes"], UPPER)
        .says(
            "mtu, advmss, priority and table of a delegate's route are those of the route in the container, and \
              in the caller's result.",
        )
        .by(&[since("1.1.0", "", route_attributes)
            .does("ADD with a delegate whose routes have each attribute; route and result are compared.")]),
];

/// The rule that says that a delegate's error is one of the plugin.
const ERROR: &str = "delegation.error";
/// The rule that says that a delegate is called.
const FORWARDS: &str = "delegation.forwards";

/// A folder beside that of the plugins, with the kit's IPAM plugin in it.
fn folder(testbed: &Testbed, name: &str) -> Result<PathBuf, Stop> {
    let folder = testbed.node.work_dir().join(name);
    let laid = fs::create_dir_all(&folder)
        .and_then(|()| fs::read_link(testbed.node.bin_dir().join(kit_ipam::NAME)))
        .and_then(|kit| symlink(kit, folder.join(kit_ipam::NAME)));
    laid.map(|()| folder).map_err(|error| Stop::skip(format!("cannot lay a folder: {error}")))
}

/// A plugin of a few lines of shell.
fn script(path: &PathBuf, lines: &str) -> Result<(), Stop> {
    let written = testns::write_executable(path, format!("#!/bin/sh\n{lines}\n"));
    written.map_err(|error| Stop::skip(format!("cannot write a script: {error}")))
}

fn finds_in_another_folder(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let (folder, kit) = (folder(testbed, "other")?, testbed.node.bin_dir().join(kit_ipam::NAME));
    fs::remove_file(kit).map_err(|error| Stop::skip(format!("cannot move the delegate: {error}")))?;
    let path = format!("/run/testns/no-such-folder:{}", folder.display());
    let result = testbed.make(&kit_as_delegate.call(Verb::Add).variable("CNI_PATH", &path))?.succeeds()?;
    testbed.make(&kit_as_delegate.del(&result).variable("CNI_PATH", &path))?.succeeds()?;
    kit_as_delegate.is_called(Verb::Del).map_err(|stop| stop.based_on(FORWARDS))
}

fn takes_the_first(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let (first, second) = (folder(testbed, "first")?, testbed.node.work_dir().join("second"));
    fs::create_dir_all(&second).map_err(|error| Stop::skip(format!("cannot lay a folder: {error}")))?;
    script(&second.join(kit_ipam::NAME), "exit 1")?;
    let path = format!("{}:{}", first.display(), second.display());
    testbed.make(&kit_as_delegate.call(Verb::Add).variable("CNI_PATH", &path))?.succeeds().map(drop)
}

fn looks_nowhere_else(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    testbed
        .make(&kit_as_delegate.call(Verb::Add).variable("CNI_PATH", "/run/testns/no-such-folder"))?
        .refused_by(ERROR)
        .fails()?;
    let verbs = testbed.ipam().verbs();
    Finding::unless(verbs.is_empty(), "no call of the IPAM plugin", format!("its calls were {verbs:?}"))
}

/// The call with variables that no plugin knows.
fn with_variables(call: Call) -> Call {
    call.args("IgnoreUnknown=1;CONFORMANCE=yes").variable("CONFORMANCE_VARIABLE", "a value; with = in it")
}

fn same_environment(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let added = testbed.make(&with_variables(kit_as_delegate.call(Verb::Add)))?;
    let result = added.succeeds()?;
    kit_as_delegate.environment_is_of(&added)?;
    let deleted = testbed.make(&with_variables(kit_as_delegate.del(&result)))?;
    deleted.succeeds()?;
    kit_as_delegate.environment_is_of(&deleted)
}

fn same_environment_of_check(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    let answer = testbed.make(&with_variables(kit_as_delegate.call(Verb::Check).prev_result(&result)))?;
    answer.succeeds()?;
    kit_as_delegate.environment_is_of(&answer)
}

fn same_environment_without_container(testbed: &Testbed, verb: Verb) -> Result<(), Stop> {
    let (kit_as_delegate, answer) = without_container(testbed, verb)?;
    kit_as_delegate.environment_is_of(&answer)
}

fn complete_config_without_container(testbed: &Testbed, verb: Verb) -> Result<(), Stop> {
    let (kit_as_delegate, answer) = without_container(testbed, verb)?;
    kit_as_delegate.config_is_of(&answer)
}

/// A GC or a STATUS that succeeded.
fn without_container(testbed: &Testbed, verb: Verb) -> Result<(KitAsDelegate<'_>, Answer), Stop> {
    let mut kit_as_delegate = KitAsDelegate::new(testbed)?;
    if verb == Verb::Gc {
        kit_as_delegate.config["cni.dev/valid-attachments"] = json!([]);
    }
    let answer = testbed.make(&with_variables(kit_as_delegate.call(verb)))?;
    answer.succeeds()?;
    Ok((kit_as_delegate, answer))
}

fn complete_config(testbed: &Testbed) -> Result<(), Stop> {
    let mut kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.set("ofTheDelegate", json!(["<&>", 12_345_678_901_234_567_890_u64, 1.5, null]));
    kit_as_delegate.config["args"] = json!({ "cni": { "labels": [{ "key": "app", "value": "web" }] } });
    let answer = kit_as_delegate.make(Verb::Add)?;
    let result = answer.succeeds()?;
    kit_as_delegate.config_is_of(&answer)?;
    let answer = testbed.make(&kit_as_delegate.del(&result))?;
    answer.succeeds()?;
    kit_as_delegate.config_is_of(&answer)
}

fn complete_config_of_check(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    let answer = testbed.make(&kit_as_delegate.call(Verb::Check).prev_result(&result))?;
    answer.succeeds()?;
    kit_as_delegate.config_is_of(&answer)
}

fn forwards_add_and_del(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    testbed.make(&kit_as_delegate.del(&result))?.succeeds()?;
    kit_as_delegate.is_called(Verb::Add)?;
    kit_as_delegate.is_called(Verb::Del)
}

fn forwards_del_without_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    testbed.make(&kit_as_delegate.del(&result).variable("CNI_NETNS", ""))?.succeeds()?;
    let held = testbed.ipam().held();
    Finding::unless(held.is_empty(), "the address released", format!("the IPAM plugin still has {held:?}"))
}

fn forwards_check(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    testbed.make(&kit_as_delegate.call(Verb::Check).prev_result(&result))?.succeeds()?;
    kit_as_delegate.is_called(Verb::Check)
}

fn joins_stderr(testbed: &Testbed) -> Result<(), Stop> {
    let mut kit_as_delegate = KitAsDelegate::new(testbed)?;
    let kit = testbed.node.bin_dir().join(kit_ipam::NAME);
    script(
        &testbed.node.bin_dir().join("loud-ipam"),
        &format!("echo a word of the delegate >&2\nexec {}", kit.display()),
    )?;
    kit_as_delegate.set("type", json!("loud-ipam"));
    let answer = kit_as_delegate.make(Verb::Add)?;
    answer.succeeds()?;
    let stderr = &answer.record().stderr;
    let expected = "the delegate's words in stderr";
    Finding::unless(stderr.contains("a word of the delegate"), expected, format!("it is {stderr:?}"))
}

fn error_of_add(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.fail(Verb::Add);
    kit_as_delegate.make(Verb::Add)?.fails().map(drop)
}

fn error_of_del(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.add()?;
    kit_as_delegate.fail(Verb::Del);
    kit_as_delegate.make(Verb::Del)?.refused_by(FORWARDS).fails().map(drop)
}

fn error_of_check(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let result = kit_as_delegate.add()?;
    kit_as_delegate.fail(Verb::Check);
    testbed.make(&kit_as_delegate.call(Verb::Check).prev_result(&result))?.refused_by(FORWARDS).fails().map(drop)
}

fn error_of_a_missing_one(testbed: &Testbed) -> Result<(), Stop> {
    let mut kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.set("type", json!("no-such-plugin"));
    kit_as_delegate.make(Verb::Add)?.fails().map(drop)
}

fn same_error(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.fail(Verb::Add);
    let error = kit_as_delegate.make(Verb::Add)?.refused_by(ERROR).fails_with(117)?;
    Finding::unless(
        error.msg.contains("kit-ipam is out of order"),
        "the delegate's message in msg",
        format!("it printed {}", error.object),
    )
}

fn del_after_failed_delegate(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    kit_as_delegate.fail(Verb::Add);
    kit_as_delegate.make(Verb::Add)?.refused_by(ERROR).fails()?;
    kit_as_delegate.is_called(Verb::Del)
}

fn del_after_garbage(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    testbed.ipam().order(Verb::Add, Some(Order::Print { stdout: "an address".to_owned(), exit: 0 }));
    kit_as_delegate.make(Verb::Add)?.refused_by(ERROR).fails()?;
    kit_as_delegate.is_called(Verb::Del)
}

fn result_is_used(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::of_ipam(testbed)?;
    let result = kit_as_delegate.add()?;
    let address = "10.88.0.2/16"; // the delegate's first
    let has = kit_as_delegate.pod.namespace().global_addresses(&kit_as_delegate.pod.attachment().ifname);
    Finding::unless(
        has.iter().any(|other| other == address),
        format!("{address} in the container"),
        format!("its interface has {has:?}"),
    )?;
    let ips = result.get("ips").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_listed = match is_from(&testbed.version, "0.3.0") {
        true => ips.iter().any(|ip| ip["address"] == json!(address) && ip["interface"].is_u64()),
        false => result.pointer("/ip4/ip") == Some(&json!(address)),
    };
    Finding::unless(
        is_listed,
        format!("{address} in the result, with its interface"),
        format!("the result is {result}"),
    )
}

/// A caller with a dns of its own is asked about that elsewhere.
fn gateway_and_dns_are_used(testbed: &Testbed) -> Result<(), Stop> {
    let mut kit_as_delegate = KitAsDelegate::of_ipam(testbed)?;
    let dns = json!({
        "nameservers": ["10.88.0.1", "192.0.2.53"], "domain": "a.test", "search": ["a.test"], "options": ["ndots:2"]
    });
    kit_as_delegate.set("dns", dns.clone());
    let result = kit_as_delegate.add()?;
    let ips = result["ips"].as_array().into_iter().flatten();
    let gateways: Vec<_> = ips.filter_map(|ip| ip["gateway"].as_str()).collect();
    Finding::unless(
        gateways.contains(&"10.88.0.1"),
        "the gateway 10.88.0.1 of the delegate among the ips of the result",
        format!("the result is {result}"),
    )?;
    if kit_as_delegate.config.get("dns").is_some() {
        return Ok(());
    }
    let of_delegate = |key: &str| result["dns"].get(key) == dns.get(key);
    let is_whole = ["nameservers", "domain", "search", "options"].into_iter().all(of_delegate);
    Finding::unless(is_whole, format!("dns {dns} of the delegate"), format!("the result is {result}"))
}

fn route_attributes(testbed: &Testbed) -> Result<(), Stop> {
    let mut kit_as_delegate = KitAsDelegate::of_ipam(testbed)?;
    let wanted = [
        json!({ "dst": "198.51.100.0/25", "gw": "10.88.0.1", "mtu": 1300, "advmss": 1200, "priority": 77 }),
        json!({ "dst": "198.51.100.128/25", "gw": "10.88.0.1", "table": 4711 }),
    ];
    kit_as_delegate.set("routes", json!(wanted));
    let result = kit_as_delegate.add()?;
    let routes = kit_as_delegate.pod.namespace().routes();
    for route in &wanted {
        let has_route = result["routes"].as_array().is_some_and(|routes| routes.contains(route));
        Finding::unless(has_route, format!("the route {route} in the result"), format!("it is {result}"))?;
        let number = |key: &str| route[key].as_u64().unwrap_or_default();
        let is_it = |has: &&testns::Route| Some(has.to.as_str()) == route["dst"].as_str();
        let seen = |has: &testns::Route| [has.mtu_bytes, has.advmss_bytes, has.metric, has.table].map(u64::from);
        let table = if route["table"].is_null() { 254 } else { number("table") };
        let expected = [number("mtu"), number("advmss"), number("priority"), table];
        let expected_text = format!("the route {route} in the container");
        let found = routes.iter().find(is_it).ok_or_else(|| Finding::new(&expected_text, "there is none"))?;
        let text = format!("mtu, advmss, metric and table are {:?}", seen(found));
        Finding::unless(seen(found) == expected, expected_text, text)?;
    }
    Ok(())
}
