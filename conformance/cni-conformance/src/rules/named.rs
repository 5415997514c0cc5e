//! Rules about single plugins, which are known by their names.

use super::attached::with_key;
use super::cases::{newest, since};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::{NETWORK, Role};
use crate::rule::{Proof, Rule, Source};
use serde_json::{Value, json};
use testns::Verb;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "relied.host-local-files",
        source: Source::Relied("host-local, store"),
        sentence: "host-local has a file for each address, named by it, with container ID, CR LF and interface name; and \
                   the last address of each range set.",
        roles: &[Role::Ipam],
        proof: Proof::Cases(&[newest("", host_local_files)]),
    },
    Rule {
        id: "relied.static-gateway",
        source: Source::Relied("callers of static, who name the gateway of a container in CNI_ARGS"),
        sentence: "static gives an address the GATEWAY of CNI_ARGS that its network has, be it of CNI_ARGS or of the config.",
        roles: &[Role::Ipam],
        proof: Proof::Cases(&[newest("of-args", gateway_of_args), newest("of-the-config", gateway_of_the_config)]),
    },
    Rule {
        id: "relied.static-check",
        source: Source::Relied("operators, who change the addresses of a network under running containers"),
        sentence: "CHECK of static is an error when prevResult has not the addresses of the config, with their gateways.",
        roles: &[Role::Ipam],
        proof: Proof::Cases(&[
            since("0.4.0", "missing-address", misses_an_address),
            since("0.4.0", "other-gateway", misses_a_gateway),
        ]),
    },
];

/// Skips all plugins but that of a name.
fn only(bench: &Bench, name: &str) -> Result<(), Stop> {
    match bench.profile.executable == name {
        true => Ok(()),
        false => Err(Stop::skip(format!("it is not {name}"))),
    }
}

fn host_local_files(bench: &Bench) -> Result<(), Stop> {
    only(bench, "host-local")?;
    let pod = bench.pod();
    let mut config = bench.config();
    config["ipam"]["ranges"] =
        json!([[{ "subnet": "10.66.0.0/24", "rangeStart": "10.66.0.9" }], [{ "subnet": "fd66::/64" }]]);
    bench.make(&bench.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    let owner = format!("{}\r\neth0", pod.id());
    for (file, content) in [
        ("10.66.0.9", owner.as_str()),
        ("fd66::2", owner.as_str()),
        ("last_reserved_ip.0", "10.66.0.9"),
        ("last_reserved_ip.1", "fd66::2"),
    ] {
        let path = format!("/var/lib/cni/networks/{NETWORK}/{file}");
        let found = std::fs::read_to_string(&path);
        let seen = format!("it is {found:?}");
        Finding::unless(found.is_ok_and(|found| found == content), format!("{content:?} in {path}"), seen)?;
    }
    Ok(())
}

/// An address in the config of static, and a gateway in its network.
const ADDRESS: &str = "10.78.0.5/16";
const GATEWAY: &str = "10.78.0.1";

fn gateway_of_args(bench: &Bench) -> Result<(), Stop> {
    gives_gateway(bench, &json!([]), &format!("IP={ADDRESS};GATEWAY={GATEWAY}"))
}

fn gateway_of_the_config(bench: &Bench) -> Result<(), Stop> {
    gives_gateway(bench, &json!([{ "address": ADDRESS }]), &format!("GATEWAY={GATEWAY}"))
}

fn gives_gateway(bench: &Bench, addresses: &Value, args: &str) -> Result<(), Stop> {
    only(bench, "static")?;
    let pod = bench.pod();
    let mut config = bench.config_for(Verb::Add, &pod.attachment());
    config["ipam"]["addresses"].clone_from(addresses);
    let result = bench.make(&bench.call_with(Verb::Add, &config, &pod).args(args))?.succeeds()?;
    let ips = result["ips"].as_array();
    let is_given = ips.into_iter().flatten().any(|ip| ip["address"] == ADDRESS && ip["gateway"] == GATEWAY);
    Finding::unless(is_given, format!("{ADDRESS} with the gateway {GATEWAY}"), format!("the result is {result}"))
}

fn misses_an_address(bench: &Bench) -> Result<(), Stop> {
    misses(bench, "address", "10.78.0.6/16")
}

fn misses_a_gateway(bench: &Bench) -> Result<(), Stop> {
    misses(bench, "gateway", "10.78.0.9")
}

/// CHECK with another value in prevResult.
fn misses(bench: &Bench, key: &str, other: &str) -> Result<(), Stop> {
    only(bench, "static")?;
    let pod = bench.pod();
    let config = bench.config_for(Verb::Add, &pod.attachment());
    let mut result = bench.make(&bench.call_with(Verb::Add, &config, &pod))?.succeeds()?;
    result["ips"][0][key] = json!(other);
    let config = with_key(config, "prevResult", result);
    bench.make(&bench.call_with(Verb::Check, config, &pod))?.fails().map(drop)
}
