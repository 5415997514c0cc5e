//! SPEC 4: delegated plugins. The kit's own IPAM plugin is the witness.

use super::kit_as_delegate::{KitAsDelegate, is_called};
use crate::kit_ipam;
use crate::rules::prelude::*;
use crate::spec_version::is_from;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

pub(super) const CASES: &[Code] = &[
    ("delegation.looks-in-cni-path/another-folder", finds_in_another_folder),
    ("delegation.looks-in-order/first-of-two", takes_the_first),
    ("delegation.looks-in-order/nowhere", looks_nowhere_else),
    ("delegation.stderr", joins_stderr),
    ("delegation.result-is-used/addresses", result_is_used),
    ("delegation.ips-and-dns-in-0.4.0/addresses", result_is_used),
    ("delegation.ips-and-dns-in-0.4.0/addresses-before-0.3.0", result_is_used),
    ("delegation.route-attributes", route_attributes),
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
    laid.map(|()| folder).map_err(|error| Stop::not_here(format!("cannot lay a folder: {error}")))
}

fn script(path: &PathBuf, lines: &str) -> Result<(), Stop> {
    let written = testns::write_executable(path, format!("#!/bin/sh\n{lines}\n"));
    written.map_err(|error| Stop::not_here(format!("cannot write a script: {error}")))
}

fn finds_in_another_folder(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let (folder, kit) = (folder(testbed, "other")?, testbed.node.bin_dir().join(kit_ipam::NAME));
    fs::remove_file(kit).map_err(|error| Stop::not_here(format!("cannot move the delegate: {error}")))?;
    let path = format!("/run/testns/no-such-folder:{}", folder.display());
    let result = testbed.make(&kit_as_delegate.call(Verb::Add).variable("CNI_PATH", &path))?.succeeds()?;
    testbed.make(&kit_as_delegate.del(&result).variable("CNI_PATH", &path))?.succeeds()?;
    is_called(testbed, "DEL").map_err(|stop| stop.based_on(FORWARDS))
}

fn takes_the_first(testbed: &Testbed) -> Result<(), Stop> {
    let kit_as_delegate = KitAsDelegate::new(testbed)?;
    let (first, second) = (folder(testbed, "first")?, testbed.node.work_dir().join("second"));
    fs::create_dir_all(&second).map_err(|error| Stop::not_here(format!("cannot lay a folder: {error}")))?;
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
