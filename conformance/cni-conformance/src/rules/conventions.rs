//! CONVENTIONS: how runtimes pass what differs from container to container.
//!
//! The conventions name plugins for each of them; another one is bound where its config enables the capability.

use crate::addresses;
use crate::rules::prelude::*;
use serde_json::Map;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

pub(super) const CASES: &[Code] = &[
    ("conventions.port-mappings", port_mappings),
    ("conventions.args-are-optional/keys-of-the-config", keys_in_args_are_answered),
    ("conventions.cni-args-ip", cni_args_ip),
    ("conventions.args-win", args_win),
];

const NAMED: &[(&str, &[&str])] = &[
    ("portMappings", &["portmap"]),
    ("ipRanges", &["host-local"]),
    ("bandwidth", &["bandwidth"]),
    ("ips", &["host-local", "static"]),
    ("mac", &["bridge", "macvlan", "tap", "tuning"]),
    ("dns", &[]),
];

/// Skips plugins that need not know of a capability.
pub(super) fn honours(testbed: &Testbed, capability: &str) -> Result<(), Stop> {
    let named = NAMED.iter().find(|(name, _)| *name == capability).map_or(&[][..], |(_, plugins)| plugins);
    let enabled = || {
        let capabilities = testbed.profile.plugins.first().and_then(|plugin| plugin.get("capabilities"));
        capabilities.and_then(|all| all.get(capability)) == Some(&json!(true))
    };
    Stop::skip_if(
        !(named.contains(&testbed.profile.executable.as_str()) || enabled()),
        format!("it is not known to have the capability {capability}"),
    )
}

/// ADD of a pod with more in the config, and with `CNI_ARGS`.
fn add(testbed: &Testbed, pod: &Container, key: &str, value: Value, args: &str) -> Result<Value, Stop> {
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    if !key.is_empty() {
        config[key] = value;
    }
    testbed.make(&testbed.call_with(Verb::Add, &config, pod).args(args))?.succeeds()
}

fn port_mappings(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "portMappings")?;
    let pod = testbed.pod();
    let wanted = json!({ "portMappings": [{ "hostPort": 23456, "containerPort": 8080, "protocol": "tcp" }] });
    add(testbed, &pod, "runtimeConfig", wanted, "")?;
    let server = pod.namespace().enter(|| TcpListener::bind(("0.0.0.0", 8080)));
    let _server = server.map_err(|error| Stop::not_here(format!("cannot listen in the container: {error}")))?;
    let to = SocketAddr::from(([10, 99, 0, 1], 23456)); // the node, as its containers see it
    let connected = testbed.node.host().enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(20)));
    let seen = connected.as_ref().err().map_or(String::new(), |error| format!("{to}: {error}"));
    Finding::unless(connected.is_ok(), "a connection to port 8080 of the container", seen)
}

pub(super) fn has_addresses(result: &Value, wanted: &[impl AsRef<str> + std::fmt::Debug]) -> Result<(), Stop> {
    let got = addresses::addresses(result);
    let all = wanted.iter().all(|address| got.iter().any(|other| other == address.as_ref()));
    Finding::unless(all, format!("addresses {wanted:?}"), format!("the result is {result}"))
}

/// An address of the profile's first range that no container would be given by turns, with prefix and without.
const WANTED: [&str; 2] = ["10.77.40.40/16", "10.77.40.40"];

/// Skips plugins whose config has no range with that address.
pub(super) fn has_range(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "ips")?;
    let config = testbed.config();
    let is_range = config.pointer("/ipam/ranges/0/0/subnet") == Some(&json!("10.77.0.0/16"));
    let is_free = config.pointer("/ipam/addresses").is_some();
    Stop::skip_if(!(is_range || is_free), "the kit does not know which addresses it could give")
}

/// A plugin that is asked for two addresses out of one range would have to give both, or one.
fn args_win(testbed: &Testbed) -> Result<(), Stop> {
    has_range(testbed)?;
    Stop::skip_if(testbed.config().pointer("/ipam/ranges").is_none(), "its config has no ipam.ranges")?;
    let args = json!({ "cni": { "ips": [WANTED[0]] } });
    let result = add(testbed, &testbed.pod(), "args", args, "IgnoreUnknown=1;IP=10.77.0.99")?;
    has_addresses(&result, &WANTED[1..])?;
    let is_there = result.to_string().contains("10.77.0.99");
    Finding::unless(!is_there, "the address of args alone", format!("the result is {result}"))
}

fn cni_args_ip(testbed: &Testbed) -> Result<(), Stop> {
    has_range(testbed)?;
    // A config without a range to take the prefix from needs it in the argument.
    let has_ranges = testbed.config().pointer("/ipam/ranges").is_some();
    let wanted = if has_ranges { WANTED[1] } else { WANTED[0] };
    let result = add(testbed, &testbed.pod(), "", Value::Null, &format!("IgnoreUnknown=1;IP={wanted}"))?;
    has_addresses(&result, &WANTED[1..])
}

pub(super) fn has_mac(pod: &Container, wanted: &str) -> Result<(), Stop> {
    let Some(link) = pod.namespace().find_link("eth0") else {
        return Err(Finding::new("eth0 in the container", "it has none").based_on("add.makes-the-interface").into());
    };
    Finding::unless(link.mac == wanted, format!("eth0 with {wanted}"), format!("it has {}", link.mac))
}

/// Keys of the config stand in `args.cni` instead. Whether they count is the plugin's; it has to answer.
fn keys_in_args_are_answered(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    let is_common = |key: &str| ["cniVersion", "name", "type", "ipam", "prevResult", "runtimeConfig"].contains(&key);
    let own: Map<String, Value> = config
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !is_common(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    Stop::skip_if(own.is_empty(), "its config has no keys of its own")?;
    for key in own.keys() {
        config.as_object_mut().map(|config| config.shift_remove(key));
    }
    config["args"] = json!({ "cni": own });
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?;
    if answer.is_success() { answer.succeeds().map(drop) } else { answer.fails().map(drop) }
}
