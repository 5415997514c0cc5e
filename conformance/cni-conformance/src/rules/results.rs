//! SPEC 5, Success: the form of what ADD prints, in each version. Whether it is true is asked beside ADD.

use super::cases::{before, each, newest, since};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Proof, Rule, Source};
use crate::shape;
use serde_json::{Value, json};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "results.version",
        source: Source::Spec(&["results/version"]),
        sentence: "cniVersion of the result is that of the config.",
        roles: &[Role::Interface, Role::Chained, Role::List],
        proof: Proof::Cases(&[each("", has_version)]),
    },
    Rule {
        id: "results.version-of-ipam",
        source: Source::Relied("interface plugins that read their delegate's result by its version"),
        sentence: "cniVersion of an IPAM plugin's result is that of the config.",
        roles: &[Role::Ipam],
        proof: Proof::Cases(&[each("", has_version)]),
    },
    Rule {
        id: "results.version-of-ipam-in-0.4.0",
        source: Source::Spec(&["results/version-of-ipam-0.4.0"]),
        sentence: "cniVersion of an IPAM plugin's result is that of the config.",
        roles: &[Role::Ipam],
        proof: Proof::Cases(&[each("", has_version)]),
    },
    Rule {
        id: "results.sandbox-in-0.4.0",
        source: Source::Spec(&["results/sandbox-0.4.0"]),
        sentence: "An interface that was made in the container, or moved into it, has a sandbox.",
        roles: &[Role::Interface, Role::List],
        proof: Proof::Cases(&[since("0.3.0", "", has_a_sandbox)]),
    },
    Rule {
        id: "results.routes-are-of-one-family-in-0.4.0",
        source: Source::Spec(&["results/route-family-0.4.0"]),
        sentence: "The next hop of a route is of the family of its destination.",
        roles: Role::ALL,
        proof: Proof::Cases(&[newest("", routes_are_of_one_family)]),
    },
    Rule {
        id: "results.form",
        source: Source::Spec(&["results/keys"]),
        sentence: "The result has the form of the config's version, with every value of the right type.",
        roles: Role::ALL,
        proof: Proof::Cases(&[each("", has_form)]),
    },
    Rule {
        id: "results.interfaces",
        source: Source::Spec(&["results/interfaces"]),
        sentence: "Each of interfaces has a name; mac is a hardware address, mtu a number, sandbox a text, socketPath an \
                   absolute path, where they are there.",
        roles: &[Role::Interface, Role::Chained, Role::List],
        proof: Proof::Cases(&[
            since("1.0.0", "newest", interfaces_are_right),
            before("1.0.0", "before-1.0.0", interfaces_are_right),
        ]),
    },
    Rule {
        id: "results.ips",
        source: Source::Spec(&["results/ips"]),
        sentence: "Each of ips has an address with prefix, perhaps a gateway, and the index of one of \
                   interfaces; from 0.3.0 to 0.4.0 its version, 4 or 6, as a text.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            since("1.0.0", "newest", ips_are_right),
            before("1.0.0", "before-1.0.0", ips_are_right),
            before("0.3.0", "before-0.3.0", ips_are_right),
        ]),
    },
    Rule {
        id: "results.routes",
        source: Source::Spec(&["results/routes"]),
        sentence: "Each of routes has a destination with prefix, perhaps a next hop, and numbers only in \
                   mtu, advmss, priority, table and scope.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            since("1.0.0", "newest", routes_are_right),
            before("1.0.0", "before-1.0.0", routes_are_right),
        ]),
    },
    Rule {
        id: "results.dns",
        source: Source::Spec(&["results/dns"]),
        sentence: "nameservers, search and options of dns are lists of texts, and domain is a text.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("as-configured", dns_is_right),
            newest("from-the-delegate", dns_of_the_delegate_is_right),
        ]),
    },
    Rule {
        id: "results.known-keys",
        source: Source::Relied("runtimes that turn a result into the type of its version"),
        sentence: "The result has no keys that its version does not know.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("newest", has_known_keys),
            before("1.1.0", "before-1.1.0", has_known_keys),
            before("0.3.0", "before-0.3.0", has_known_keys),
        ]),
    },
    Rule {
        id: "results.may-leave-out",
        source: Source::Spec(&["results/may-leave-out"]),
        sentence: "What does not apply may be left out: mac, mtu, sandbox of the host's interfaces, gateways, dns.",
        roles: Role::ALL,
        proof: Proof::Untestable("a permission; results.form takes each absence"),
    },
    Rule {
        id: "results.socket-path-and-pci-id",
        source: Source::Spec(&["results/socket-path"]),
        sentence: "socketPath and pciID are of interfaces that are sockets or PCI devices.",
        roles: Role::ATTACHING,
        proof: Proof::Untestable("they describe hardware and other processes; results.interfaces looks at their form"),
    },
];

fn has_version(bench: &Bench) -> Result<(), Stop> {
    let result = bench.add(&bench.pod())?;
    let is_right = result.get("cniVersion") == Some(&json!(bench.version));
    Finding::unless(is_right, format!("cniVersion {}", bench.version), format!("the result is {result}"))
}

fn has_a_sandbox(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let result = bench.add(&pod)?;
    let came = pod.namespace().links().into_iter().map(|link| link.name).filter(|name| !before.contains(name));
    let on_node: Vec<_> = bench.node.host().links().into_iter().map(|link| link.name).collect();
    for name in came.filter(|name| !on_node.contains(name)) {
        let entry = result["interfaces"].as_array().into_iter().flatten().find(|entry| entry["name"] == json!(name));
        let has_one = entry.is_none_or(|entry| entry["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty()));
        Finding::unless(has_one, format!("a sandbox of {name}"), format!("the result is {result}"))?;
    }
    Ok(())
}

fn routes_are_of_one_family(bench: &Bench) -> Result<(), Stop> {
    let result = bench.add(&bench.pod())?;
    let routes = result["routes"].as_array().into_iter().flatten();
    let is_six = |route: &Value, key: &str| route[key].as_str().map(|text| text.contains(':'));
    let mixed = |route: &&Value| is_six(route, "gw").is_some_and(|gateway| Some(gateway) != is_six(route, "dst"));
    match routes.into_iter().find(mixed) {
        None => Ok(()),
        Some(route) => Err(Finding::new("dst and gw of one family", format!("the result has {route}")).into()),
    }
}

fn has_form(bench: &Bench) -> Result<(), Stop> {
    has_no_faults_in(bench, &bench.add(&bench.pod())?, &[""])
}

fn interfaces_are_right(bench: &Bench) -> Result<(), Stop> {
    has_no_faults_in(bench, &bench.add(&bench.pod())?, &["interfaces"])
}

fn ips_are_right(bench: &Bench) -> Result<(), Stop> {
    has_no_faults_in(bench, &bench.add(&bench.pod())?, &["ips", "ip4", "ip6"])
}

fn routes_are_right(bench: &Bench) -> Result<(), Stop> {
    has_no_faults_in(bench, &bench.add(&bench.pod())?, &["routes"])
}

fn dns_is_right(bench: &Bench) -> Result<(), Stop> {
    has_no_faults_in(bench, &bench.add(&bench.pod())?, &["dns"])
}

fn dns_of_the_delegate_is_right(bench: &Bench) -> Result<(), Stop> {
    if bench.profile.delegate.is_some() {
        return Err(Stop::skip("its delegate is no IPAM plugin"));
    }
    let mut config = bench.config_with_kit_ipam().ok_or_else(|| Stop::skip("it delegates to no plugin"))?;
    let pod = bench.pod();
    for (key, value) in bench.config_for(testns::Verb::Add, &pod.attachment()).as_object().into_iter().flatten() {
        if key != "ipam" {
            config[key] = value.clone();
        }
    }
    let dns = json!({ "nameservers": ["10.88.0.1"], "domain": "a.test", "search": ["a.test"], "options": ["ndots:2"] });
    config["ipam"]["dns"] = dns;
    let result = bench.make(&bench.call_with(testns::Verb::Add, &config, &pod))?.succeeds()?;
    has_no_faults_in(bench, &result, &["dns"])
}

/// Checks that nothing is wrong in places that start so.
fn has_no_faults_in(bench: &Bench, result: &Value, places: &[&str]) -> Result<(), Stop> {
    let mut faults = shape::faults(result, &bench.version);
    faults.retain(|fault| places.iter().any(|place| fault.starts_with(place)));
    let expected = format!("a result of {}", bench.version);
    Finding::unless(faults.is_empty(), expected, format!("{}: {result}", faults.join("; ")))
}

fn has_known_keys(bench: &Bench) -> Result<(), Stop> {
    let result = bench.add(&bench.pod())?;
    let unknown = shape::unknown_keys(&result, &bench.version);
    let expected = format!("keys of {}", bench.version);
    Finding::unless(unknown.is_empty(), expected, format!("there are {}: {result}", unknown.join(", ")))
}
