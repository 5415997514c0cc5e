//! SPEC 5, Success: the form of what ADD prints, in each version. Whether it is true is asked beside ADD.

use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::result_validation;
use crate::rule::{Rule, before, each, newest, relied, since, spec};
use crate::testbed::Testbed;
use serde_json::{Value, json};

pub(super) const RULES: &[Rule] = &[
    spec("results.version", &["results/version"], &[Role::Interface, Role::Chained, Role::List])
        .says("cniVersion of the result is that of the config.")
        .by(&[each("", has_version).does("ADD; cniVersion of the result is compared.")]),
    relied(
        "results.version-of-ipam",
        "interface plugins that read their delegate's result by its version",
        &[Role::Ipam],
    )
    .says("cniVersion of an IPAM plugin's result is that of the config.")
    .by(&[each("", has_version).does("ADD; cniVersion of the result is compared.")]),
    spec("results.version-of-ipam-in-0.4.0", &["results/version-of-ipam-0.4.0"], &[Role::Ipam])
        .says("cniVersion of an IPAM plugin's result is that of the config.")
        .by(&[each("", has_version).does("ADD; cniVersion of the result is compared.")]),
    spec("results.sandbox-in-0.4.0", &["results/sandbox-0.4.0"], &[Role::Interface, Role::List])
        .says("An interface that was made in the container, or moved into it, has a sandbox.")
        .by(&[since("0.3.0", "", has_a_sandbox)
            .does("ADD; each link that came into the container, and is in interfaces, has to have a sandbox there.")]),
    spec("results.routes-are-of-one-family-in-0.4.0", &["results/route-family-0.4.0"], Role::ALL)
        .says("The next hop of a route is of the family of its destination.")
        .by(&[newest("", routes_are_of_one_family).does("ADD; dst and gw of each route are compared.")]),
    spec("results.form", &["results/keys"], Role::ALL)
        .says("The result has the form of the config's version, with every value of the right type.")
        .by(&[each("", |testbed| has_no_faults_in(testbed, &testbed.add(&testbed.pod())?, &[""]))
            .does("ADD; the whole result is looked at.")]),
    spec("results.interfaces", &["results/interfaces"], &[Role::Interface, Role::Chained, Role::List])
        .says(
            "Each of interfaces has a name; mac is a hardware address, mtu a number, sandbox a text, socketPath \
              an absolute path, where they are there.",
        )
        .by(&[
            since("1.0.0", "newest", interfaces_are_right).does("ADD; interfaces is looked at."),
            before("1.0.0", "before-1.0.0", interfaces_are_right)
                .does("The same with the newest version before 1.0.0."),
        ]),
    spec("results.ips", &["results/ips"], Role::ALL)
        .says(
            "Each of ips has an address with prefix, perhaps a gateway, and the index of one of interfaces; from \
              0.3.0 to 0.4.0 its version, 4 or 6, as a text.",
        )
        .by(&[
            since("1.0.0", "newest", ips_are_right).does("ADD; ips is looked at."),
            before("1.0.0", "before-1.0.0", ips_are_right).does("The same with the newest version before 1.0.0."),
            before("0.3.0", "before-0.3.0", ips_are_right).does("ip4 and ip6 are looked at."),
        ]),
    spec("results.routes", &["results/routes"], Role::ALL)
        .says(
            "Each of routes has a destination with prefix, perhaps a next hop, and numbers only in mtu, advmss, \
              priority, table and scope.",
        )
        .by(&[
            since("1.0.0", "newest", routes_are_right).does("ADD; routes is looked at."),
            before("1.0.0", "before-1.0.0", routes_are_right).does("The same with the newest version before 1.0.0."),
        ]),
    spec("results.dns", &["results/dns"], Role::ALL)
        .says("nameservers, search and options of dns are lists of texts, and domain is a text.")
        .by(&[
            newest("as-configured", |testbed| has_no_faults_in(testbed, &testbed.add(&testbed.pod())?, &["dns"]))
                .does("ADD; dns is looked at."),
            newest("from-the-delegate", dns_of_the_delegate_is_right)
                .does("The same with a delegate that gives a dns."),
        ]),
    relied("results.known-keys", "runtimes that turn a result into the type of its version", Role::ALL)
        .says("The result has no keys that its version does not know.")
        .by(&[
            newest("newest", has_known_keys).does("ADD; keys of the result are compared with those of the version."),
            before("1.1.0", "before-1.1.0", has_known_keys).does("The same with the newest version before 1.1.0."),
            before("0.3.0", "before-0.3.0", has_known_keys).does("The same with the newest version before 0.3.0."),
        ]),
];

fn has_version(testbed: &Testbed) -> Result<(), Stop> {
    let result = testbed.add(&testbed.pod())?;
    let is_right = result.get("cniVersion") == Some(&json!(testbed.version));
    Finding::unless(is_right, format!("cniVersion {}", testbed.version), format!("the result is {result}"))
}

fn has_a_sandbox(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let result = testbed.add(&pod)?;
    let came = pod.namespace().links().into_iter().map(|link| link.name).filter(|name| !before.contains(name));
    let on_node: Vec<_> = testbed.node.host().links().into_iter().map(|link| link.name).collect();
    for name in came.filter(|name| !on_node.contains(name)) {
        let entry = result["interfaces"].as_array().into_iter().flatten().find(|entry| entry["name"] == json!(name));
        let has_one = entry.is_none_or(|entry| entry["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty()));
        Finding::unless(has_one, format!("a sandbox of {name}"), format!("the result is {result}"))?;
    }
    Ok(())
}

fn routes_are_of_one_family(testbed: &Testbed) -> Result<(), Stop> {
    let result = testbed.add(&testbed.pod())?;
    let routes = result["routes"].as_array().into_iter().flatten();
    let is_six = |route: &Value, key: &str| route[key].as_str().map(|text| text.contains(':'));
    let mixed = |route: &&Value| is_six(route, "gw").is_some_and(|gateway| Some(gateway) != is_six(route, "dst"));
    match routes.into_iter().find(mixed) {
        None => Ok(()),
        Some(route) => Err(Finding::new("dst and gw of one family", format!("the result has {route}")).into()),
    }
}

fn interfaces_are_right(testbed: &Testbed) -> Result<(), Stop> {
    has_no_faults_in(testbed, &testbed.add(&testbed.pod())?, &["interfaces"])
}

fn ips_are_right(testbed: &Testbed) -> Result<(), Stop> {
    has_no_faults_in(testbed, &testbed.add(&testbed.pod())?, &["ips", "ip4", "ip6"])
}

fn routes_are_right(testbed: &Testbed) -> Result<(), Stop> {
    has_no_faults_in(testbed, &testbed.add(&testbed.pod())?, &["routes"])
}

fn dns_of_the_delegate_is_right(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.profile.delegate.is_some(), "its delegate is no IPAM plugin")?;
    let mut config = testbed.config_with_kit_ipam().ok_or_else(|| Stop::skip("it delegates to no plugin"))?;
    let pod = testbed.pod();
    for (key, value) in testbed.config_for(testns::Verb::Add, &pod.attachment()).as_object().into_iter().flatten() {
        if key != "ipam" {
            config[key] = value.clone();
        }
    }
    let dns = json!({ "nameservers": ["10.88.0.1"], "domain": "a.test", "search": ["a.test"], "options": ["ndots:2"] });
    config["ipam"]["dns"] = dns;
    let result = testbed.make(&testbed.call_with(testns::Verb::Add, &config, &pod))?.succeeds()?;
    has_no_faults_in(testbed, &result, &["dns"])
}

/// Checks that nothing is wrong in places that start so.
fn has_no_faults_in(testbed: &Testbed, result: &Value, places: &[&str]) -> Result<(), Stop> {
    let mut faults = result_validation::faults(result, &testbed.version);
    faults.retain(|fault| places.iter().any(|place| fault.starts_with(place)));
    let expected = format!("a result of {}", testbed.version);
    Finding::unless(faults.is_empty(), expected, format!("{}: {result}", faults.join("; ")))
}

fn has_known_keys(testbed: &Testbed) -> Result<(), Stop> {
    let result = testbed.add(&testbed.pod())?;
    let unknown = result_validation::unknown_keys(&result, &testbed.version);
    let expected = format!("keys of {}", testbed.version);
    Finding::unless(unknown.is_empty(), expected, format!("there are {}: {result}", unknown.join(", ")))
}
