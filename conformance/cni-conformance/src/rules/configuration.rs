//! SPEC 1: what a plugin makes of its configuration. What binds runtimes and administrators is not here.

use super::attached::{Attached, skip, unchanged, with_key};
use crate::kit_ipam;
use crate::rules::prelude::*;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use testns::{Namespace, Transport, exchange};

pub(super) const CASES: &[Code] = &[
    ("configuration.unknown-keys-are-ignored-or-named", ignores_or_names_unknown_keys),
    ("configuration.ip-masq-hides-the-container/udp", |testbed| hides_the_container(testbed, Transport::Udp)),
    ("configuration.ip-masq-hides-the-container/tcp", |testbed| hides_the_container(testbed, Transport::Tcp)),
    ("configuration.ipam-type-is-a-file-name/beside", |testbed| runs_no_path(testbed, "../outside/kit-ipam")),
    ("configuration.ipam-type-is-a-file-name/absolute", |testbed| {
        runs_no_path(testbed, "/run/testns/outside/kit-ipam")
    }),
    ("configuration.dns-is-kept", keeps_dns),
];

fn ignores_or_names_unknown_keys(testbed: &Testbed) -> Result<(), Stop> {
    const KEY: &str = "com.example.unheard-of";
    let attachment = testbed.pod().attachment();
    let config = with_key(testbed.config_for(Verb::Add, &attachment), KEY, json!({ "deep": [1, null, "x"] }));
    testbed.remember();
    let answer = testbed.make(&testbed.call_with(Verb::Add, config, &attachment))?;
    if answer.is_success() {
        return Ok(());
    }
    let error = answer.fails()?;
    unchanged(testbed, "all as before the call that failed")?;
    Finding::unless(
        error.object.to_string().contains(KEY),
        format!("{KEY} in the error"),
        format!("it printed {}", error.object),
    )
}

fn hides_the_container(testbed: &Testbed, transport: Transport) -> Result<(), Stop> {
    Stop::skip_if(testbed.config()["ipMasq"] != json!(true), "its config has no ipMasq")?;
    let attached = Attached::add(testbed)?;
    let (node, world) = (testbed.node.host(), testbed.node.remote("world"));
    node.add_veth("to-world", &world, "near");
    for (prefix, family) in [("198.51.100.", '.'), ("2001:db8:5::", ':')] {
        let Some(ip) = attached.parsed.ips.iter().find(|ip| ip.address.contains(family)) else {
            continue;
        };
        let length = if family == ':' { 64 } else { 24 };
        node.add_address("to-world", &format!("{prefix}1/{length}"));
        world.add_address("near", &format!("{prefix}2/{length}"));
        let parsed = |last: u8| format!("{prefix}{last}").parse::<IpAddr>();
        let (Ok(own), Ok(theirs)) = (parsed(1), parsed(2)) else {
            continue;
        };
        let (seen, basis) = match exchanged(transport, attached.pod.namespace(), (&world, theirs)) {
            Ok(source) if source.ip() == own => continue,
            Ok(source) => (format!("they come from {}", source.ip()), None),
            Err(error) => {
                // From the node itself it goes without masquerade: where that takes long, too, it is the machine's fault.
                let start = Instant::now();
                if let Err(error) = exchanged(transport, node, (&world, theirs)) {
                    panic!("nothing comes through from the node itself to the kit's neighbour: {error}");
                }
                let took = start.elapsed();
                assert!(took < SLOW, "the machine is slow: from the node itself an exchange took {took:?}");
                (format!("nothing comes through: {error}"), Some("add.gives-connectivity"))
            }
        };
        let expected = format!("packets from {} that come from the node's {own}", ip.address);
        return Err(Finding::new(expected, seen).based_on(basis).into());
    }
    Stop::skip_if(attached.parsed.ips.is_empty(), "its result has no address")
}

/// The least time that an exchange between neighbours takes on a machine that is too slow for a verdict.
const SLOW: Duration = Duration::from_secs(1);

/// An exchange that comes through sooner or later: a datagram is lost where an address is still being checked, and a slow
/// machine takes its time. What ended the last attempt, if none does.
fn exchanged(transport: Transport, from: &Namespace, to: (&Namespace, IpAddr)) -> io::Result<SocketAddr> {
    const SECONDS: [u64; 4] = [1, 2, 4, 8];
    let mut last = Err(io::ErrorKind::TimedOut.into());
    for within in SECONDS.map(Duration::from_secs) {
        last = exchange(transport, from, to, within);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// An executable of the kit lies where the type leads.
fn runs_no_path(testbed: &Testbed, kind: &str) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    testbed.config_with_kit_ipam().ok_or_else(|| skip("it delegates to no IPAM plugin"))?;
    let outside = testbed.node.work_dir().join("outside");
    let inside = testbed.node.bin_dir().join(kit_ipam::NAME);
    let kit = std::fs::read_link(&inside).unwrap_or_else(|error| panic!("cannot read {}: {error}", inside.display()));
    std::fs::create_dir(&outside).unwrap_or_else(|error| panic!("cannot create {}: {error}", outside.display()));
    kit_ipam::install(&outside, &kit).unwrap_or_else(|error| panic!("cannot install {}: {error}", kit_ipam::NAME));
    if let Some(delegate) = testbed.profile.delegate_of(&mut config) {
        delegate["type"] = json!(kind);
    }
    let answer = testbed.make(&testbed.call_with(Verb::Add, config, &attachment))?;
    match testbed.ipam().verbs() {
        called if called.is_empty() => answer.fails().map(drop),
        called => Err(Finding::new(format!("{kind} not to be run"), format!("it was, with {called:?}")).into()),
    }
}

fn keeps_dns(testbed: &Testbed) -> Result<(), Stop> {
    let dns = json!({
        "nameservers": ["192.0.2.53", "2001:db8::53", "192.0.2.1"],
        "domain": "conformance.test", "search": ["b.test", "a.test"], "options": ["ndots:5", "rotate"],
    });
    let attachment = testbed.pod().attachment();
    let config = with_key(testbed.config_for(Verb::Add, &attachment), "dns", dns.clone());
    let result = testbed.make(&testbed.call_with(Verb::Add, config, &attachment))?.succeeds()?;
    match result.get("dns").filter(|printed| printed.as_object().is_some_and(|object| !object.is_empty())) {
        None => Err(skip("it does not use dns of its config")),
        Some(printed) if *printed == dns => Ok(()),
        Some(printed) => Err(Finding::new(format!("dns {dns}"), format!("the result has {printed}")).into()),
    }
}
