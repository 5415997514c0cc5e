//! CONVENTIONS: how runtimes pass what differs from container to container.
//!
//! The conventions name plugins for each of them; another one is bound where its config enables the capability.

use crate::addresses;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, newest, relied, spec};
use crate::testbed::Testbed;
use serde_json::{Map, Value, json};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use testns::{Container, Verb};

/// Unowned hardware addresses: locally administered, unicast.
const MACS: [&str; 3] = ["0a:11:22:33:44:01", "0a:11:22:33:44:02", "0a:11:22:33:44:03"];

pub(super) const RULES: &[Rule] = &[
    spec("conventions.port-mappings", &["conventions/port-mappings"], &[Role::Chained])
        .says("runtimeConfig.portMappings: a connection to hostPort of the node reaches containerPort.")
        .by(&[newest("", port_mappings)
            .does("A connection to port 23456 of the node, which is mapped to 8080 of the container.")]),
    spec("conventions.ip-ranges", &["conventions/ip-ranges"], &[Role::Ipam])
        .says("runtimeConfig.ipRanges: addresses are out of these ranges.")
        .by(&[
            newest("alone", ip_ranges)
                .does("ADD with a range of one address in runtimeConfig, and none in the config."),
            newest("of-both-families", ip_ranges_of_both_families).does("The same with a range of each family."),
        ]),
    spec("conventions.bandwidth", &["conventions/bandwidth"], &[Role::Chained])
        .says("runtimeConfig.bandwidth: traffic is limited to these rates, in each direction that has one.")
        .by(&[newest("", bandwidth).does("ADD with rates in runtimeConfig; a limit in each direction has to come.")]),
    spec("conventions.ips", &["conventions/ips"], &[Role::Ipam])
        .says("runtimeConfig.ips: the container gets these addresses.")
        .by(&[newest("", ips).does("ADD with 10.77.40.40 in runtimeConfig.")]),
    spec("conventions.mac", &["conventions/mac"], &[Role::Interface, Role::Chained])
        .says("runtimeConfig.mac: the container's interface has this hardware address.")
        .by(&[newest("", mac).does("ADD with a MAC in runtimeConfig; the link has to have it.")]),
    spec("conventions.dns", &["conventions/dns"], &[Role::Interface, Role::Chained])
        .says("runtimeConfig.dns: servers, searches and options are those of the container.")
        .by(&[
            newest("", dns).does("ADD with a dns in runtimeConfig; the result has to have its servers and searches.")
        ]),
    spec("conventions.args-are-optional", &["conventions/args"], Role::PLUGINS)
        .says("args that a plugin does not know, labels among them, are ignored.")
        .by(&[
            newest("unknown", args_are_optional).does("ADD with labels and keys of others in args."),
            newest("keys-of-the-config", keys_in_args_are_answered)
                .does("ADD with the config's own keys in args.cni instead; a result or an error object has to come."),
        ]),
    spec("conventions.args-ips", &["conventions/args-ips"], &[Role::Ipam])
        .says("args.cni.ips: the container gets these addresses.")
        .by(&[newest("", args_ips).does("ADD with 10.77.40.40 in args.cni.ips.")]),
    spec("conventions.cni-args-ip", &["conventions/cni-args-ip"], &[Role::Ipam])
        .says("IP in CNI_ARGS: the container gets this address.")
        .by(&[newest("", cni_args_ip).does("ADD with 10.77.40.40 as IP in CNI_ARGS.")]),
    spec("conventions.args-win", &["conventions/args-win"], &[Role::Ipam])
        .says("With args.cni.ips, IP in CNI_ARGS is ignored.")
        .by(&[newest("", args_win).does("ADD with an address in args.cni.ips and another in CNI_ARGS.")]),
    relied(
        "conventions.cni-args-mac",
        "Podman and Multus, which ask for a hardware address so",
        &[Role::Interface, Role::Chained],
    )
    .says("MAC in CNI_ARGS: the container's interface has this hardware address.")
    .by(&[newest("", cni_args_mac).does("ADD with a MAC in CNI_ARGS; the link has to have it.")]),
    relied("conventions.ignore-unknown", "containerd and CRI-O, which pass keys of Kubernetes so", Role::PLUGINS)
        .says("With IgnoreUnknown in CNI_ARGS, others that the plugin does not know are ignored.")
        .by(&[
            newest("first", ignores_unknown).does("ADD with IgnoreUnknown=1 before an unknown key."),
            newest("last", ignores_unknown_when_told_last).does("ADD with IgnoreUnknown=true behind it."),
        ]),
    spec("conventions.runtime-config-is-strongest", &["conventions/runtime-config"], &[Role::Interface])
        .says("What runtimeConfig says wins over the same in args and in CNI_ARGS, which is deprecated.")
        .by(&[newest("", runtime_config_is_strongest)
            .does("ADD with three MACs, in runtimeConfig, args and CNI_ARGS; the link has to have the first.")]),
];

/// Plugins that the conventions name.
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
    match named.contains(&testbed.profile.executable.as_str()) || enabled() {
        true => Ok(()),
        false => Err(Stop::skip(format!("it is not known to have the capability {capability}"))),
    }
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
    let _server = server.map_err(|error| Stop::skip(format!("cannot listen in the container: {error}")))?;
    let to = SocketAddr::from(([10, 99, 0, 1], 23456)); // the node, as its containers see it
    let connected = testbed.node.host().enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(20)));
    let seen = connected.as_ref().err().map_or(String::new(), |error| format!("{to}: {error}"));
    Finding::unless(connected.is_ok(), "a connection to port 8080 of the container", seen)
}

fn has_addresses(result: &Value, wanted: &[&str]) -> Result<(), Stop> {
    let got = addresses::addresses(result);
    let all = wanted.iter().all(|address| got.iter().any(|other| other == address));
    Finding::unless(all, format!("addresses {wanted:?}"), format!("the result is {result}"))
}

fn ip_ranges(testbed: &Testbed) -> Result<(), Stop> {
    let ranges = json!([[{ "subnet": "10.55.0.0/24", "rangeStart": "10.55.0.9", "rangeEnd": "10.55.0.9" }]]);
    from_ranges(testbed, ranges, &["10.55.0.9"])
}

fn ip_ranges_of_both_families(testbed: &Testbed) -> Result<(), Stop> {
    let ranges = json!([
        [{ "subnet": "10.55.0.0/24", "rangeStart": "10.55.0.9", "rangeEnd": "10.55.0.9" }],
        [{ "subnet": "fd55::/64", "rangeStart": "fd55::9", "rangeEnd": "fd55::9" }],
    ]);
    from_ranges(testbed, ranges, &["10.55.0.9", "fd55::9"])
}

/// ADD with no ranges but the runtime's.
fn from_ranges(testbed: &Testbed, ranges: Value, expected: &[&str]) -> Result<(), Stop> {
    honours(testbed, "ipRanges")?;
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    if let Some(ipam) = config["ipam"].as_object_mut() {
        ipam.shift_remove("ranges");
    }
    config["runtimeConfig"] = json!({ "ipRanges": ranges });
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    has_addresses(&result, expected)
}

fn bandwidth(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "bandwidth")?;
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    if let Some(config) = config.as_object_mut() {
        config.retain(|key, _| !key.ends_with("Rate") && !key.ends_with("Burst"));
    }
    let both = json!({
        "ingressRate": 4_000_000, "ingressBurst": 4_000_000, "egressRate": 4_000_000, "egressBurst": 4_000_000,
    });
    config["runtimeConfig"] = json!({ "bandwidth": both });
    testbed.remember();
    testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    let came = testbed.left_behind();
    let limits = came.lines().filter(|line| line.starts_with("+ qdisc tbf")).count();
    Finding::unless(limits >= 2, "a limit in each direction", format!("{limits} came: {came}"))
}

/// An address of the profile's first range that no container would be given by turns, with prefix and without.
const WANTED: [&str; 2] = ["10.77.40.40/16", "10.77.40.40"];

/// Skips plugins whose config has no range with that address.
fn has_range(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "ips")?;
    let config = testbed.config();
    let is_range = config.pointer("/ipam/ranges/0/0/subnet") == Some(&json!("10.77.0.0/16"));
    let is_free = config.pointer("/ipam/addresses").is_some();
    match is_range || is_free {
        true => Ok(()),
        false => Err(Stop::skip("the kit does not know which addresses it could give")),
    }
}

fn ips(testbed: &Testbed) -> Result<(), Stop> {
    has_range(testbed)?;
    let result = add(testbed, &testbed.pod(), "runtimeConfig", json!({ "ips": [WANTED[0]] }), "")?;
    has_addresses(&result, &WANTED[1..])
}

fn args_ips(testbed: &Testbed) -> Result<(), Stop> {
    has_range(testbed)?;
    let result = add(testbed, &testbed.pod(), "args", json!({ "cni": { "ips": [WANTED[0]] } }), "")?;
    has_addresses(&result, &WANTED[1..])
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

fn has_mac(pod: &Container, wanted: &str) -> Result<(), Stop> {
    let Some(link) = pod.namespace().find_link("eth0") else {
        return Err(Finding::new("eth0 in the container", "it has none").based_on("add.makes-the-interface").into());
    };
    Finding::unless(link.mac == wanted, format!("eth0 with {wanted}"), format!("it has {}", link.mac))
}

fn mac(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "mac")?;
    let pod = testbed.pod();
    add(testbed, &pod, "runtimeConfig", json!({ "mac": MACS[0] }), "")?;
    has_mac(&pod, MACS[0])
}

fn cni_args_mac(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "mac")?;
    let pod = testbed.pod();
    add(testbed, &pod, "", Value::Null, &format!("IgnoreUnknown=1;MAC={}", MACS[0]))?;
    has_mac(&pod, MACS[0])
}

fn runtime_config_is_strongest(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "mac")?;
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    config["args"] = json!({ "cni": { "mac": MACS[1] } });
    config["runtimeConfig"] = json!({ "mac": MACS[2] });
    let call = testbed.call_with(Verb::Add, &config, &pod).args(&format!("IgnoreUnknown=1;MAC={}", MACS[0]));
    testbed.make(&call)?.succeeds()?;
    has_mac(&pod, MACS[2])
}

fn dns(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "dns")?;
    let wanted = json!({ "dns": { "servers": ["10.55.0.53"], "searches": ["a.test"], "options": ["ndots:3"] } });
    let result = add(testbed, &testbed.pod(), "runtimeConfig", wanted, "")?;
    let got = result.get("dns").cloned().unwrap_or_default();
    let is_right = got["nameservers"] == json!(["10.55.0.53"]) && got["search"] == json!(["a.test"]);
    Finding::unless(is_right, "the runtime's servers and searches", format!("the result is {result}"))
}

fn args_are_optional(testbed: &Testbed) -> Result<(), Stop> {
    let args =
        json!({ "cni": { "labels": [{ "key": "app", "value": "web" }] }, "org.example/other": [1, { "a": null }] });
    add(testbed, &testbed.pod(), "args", args, "").map(drop)
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

fn ignores_unknown(testbed: &Testbed) -> Result<(), Stop> {
    add(testbed, &testbed.pod(), "", Value::Null, "IgnoreUnknown=1;CONFORMANCE=yes").map(drop)
}

fn ignores_unknown_when_told_last(testbed: &Testbed) -> Result<(), Stop> {
    add(testbed, &testbed.pod(), "", Value::Null, "CONFORMANCE=yes;IgnoreUnknown=true").map(drop)
}
