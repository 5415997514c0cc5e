//! SPEC 4 and 5, IPAM plugins.

use super::cases::{before, each, newest, since};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::form::is_from;
use crate::profile::Role;
use crate::rule::{Proof, Rule, Source};
use crate::stress::pool;
use serde_json::{Value, json};
use testns::{Attachment, Call, Remains, Verb};

const IPAM: &[Role] = &[Role::Ipam];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "ipam.abbreviated-result",
        source: Source::Spec(&["results/abbreviated"]),
        sentence: "The result of an IPAM plugin has no interfaces, and its ips have no index of one.",
        roles: IPAM,
        proof: Proof::Cases(&[each("", result_is_abbreviated)]),
    },
    Rule {
        id: "ipam.gives-an-address",
        source: Source::Spec(&["delegation/ipam"]),
        sentence: "ADD gives an address, with the routes that the config wants.",
        roles: IPAM,
        proof: Proof::Cases(&[newest("newest", gives_an_address), before("0.3.0", "before-0.3.0", gives_an_address)]),
    },
    Rule {
        id: "ipam.gives-route-attributes",
        source: Source::Spec(&["results/route-attributes"]),
        sentence: "mtu, advmss, priority, table and scope of a route in ipam.routes are in the result.",
        roles: IPAM,
        proof: Proof::Cases(&[since("1.1.0", "", gives_route_attributes)]),
    },
    Rule {
        id: "ipam.makes-no-interface",
        source: Source::Relied("interface plugins, which make it after the address is there"),
        sentence: "An IPAM plugin gives addresses; it changes nothing in the container.",
        roles: IPAM,
        proof: Proof::Cases(&[newest("", makes_no_interface)]),
    },
    Rule {
        id: "ipam.no-address-twice",
        source: Source::Spec(&["overview/network"]),
        sentence: "An address is given to one attachment at a time, and is none that others have anyway: the gateway's, or that of \
                   the network or of all in it.",
        roles: IPAM,
        proof: Proof::Cases(&[
            newest("containers", containers_differ),
            newest("interfaces-of-a-container", interfaces_differ),
            newest("requested", requested_twice),
            newest("gateway", gives_no_gateway_away),
            newest("broadcast", gives_no_broadcast_address),
        ]),
    },
    Rule {
        id: "ipam.one-address-for-an-attachment",
        source: Source::Relied("runtimes, which call ADD again that they did not see end"),
        sentence: "A second ADD of an attachment, with a request for an address or without, gives it no second address.",
        roles: IPAM,
        proof: Proof::Cases(&[newest("any", no_second_address), newest("requested", no_second_requested_address)]),
    },
    Rule {
        id: "ipam.del-releases",
        source: Source::Spec(&["del/ipam"]),
        sentence: "DEL releases the attachment's address.",
        roles: IPAM,
        proof: Proof::Cases(&[
            newest("namespace-alive", del_releases),
            newest("namespace-gone", del_releases_of_a_gone_one),
            newest("no-namespace-given", del_releases_of_an_untold_one),
        ]),
    },
    Rule {
        id: "ipam.del-keeps-others",
        source: Source::Spec(&["execution/attachment"]),
        sentence: "DEL of one attachment keeps the addresses of others, also where one's ID starts as another's.",
        roles: IPAM,
        proof: Proof::Cases(&[since("0.4.0", "", del_keeps_others)]),
    },
    Rule {
        id: "ipam.check-misses-a-reservation",
        source: Source::Spec(&["check/unlisted"]),
        sentence: "CHECK fails when the attachment has no reservation.",
        roles: IPAM,
        proof: Proof::Cases(&[since("0.4.0", "", check_misses_a_reservation)]),
    },
    Rule {
        id: "ipam.exhausted-is-an-error",
        source: Source::Spec(&["errors/exit"]),
        sentence: "ADD fails when no address is free.",
        roles: IPAM,
        proof: Proof::Cases(&[newest("", exhausted)]),
    },
];

/// Addresses of a result, in the form of its version.
fn addresses(bench: &Bench, result: &Value) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match is_from(&bench.version, "0.3.0") {
        true => {
            let ips = result.get("ips").and_then(Value::as_array).into_iter().flatten();
            ips.filter_map(|ip| text(ip.get("address"))).collect()
        }
        false => ["/ip4/ip", "/ip6/ip"].iter().filter_map(|place| text(result.pointer(place))).collect(),
    }
}

/// The reason why nothing is asked of the reservations of some plugins.
const FIXED: &str = "its addresses stand in its config, so it reserves none";

/// Skips plugins whose addresses stand in the config: they reserve nothing.
fn reserves(bench: &Bench) -> Result<(), Stop> {
    match bench.config().pointer("/ipam/addresses") {
        Some(_) => Err(Stop::skip(FIXED)),
        None => Ok(()),
    }
}

fn result_is_abbreviated(bench: &Bench) -> Result<(), Stop> {
    let result = bench.add(&bench.pod())?;
    let ips = result.get("ips").and_then(Value::as_array);
    let has_index = ips.into_iter().flatten().any(|ip| ip.get("interface").is_some());
    let is_right = result.get("interfaces").is_none() && !has_index;
    Finding::unless(is_right, "neither interfaces nor an index of one", format!("the result is {result}"))
}

fn gives_an_address(bench: &Bench) -> Result<(), Stop> {
    let result = bench.add(&bench.pod())?;
    Finding::unless(!addresses(bench, &result).is_empty(), "an address", format!("the result is {result}"))?;
    let config = bench.config();
    let wanted = config.pointer("/ipam/routes").and_then(Value::as_array).into_iter().flatten();
    let is_in = |list: Option<&Value>, dst: &Value| {
        list.and_then(Value::as_array).into_iter().flatten().any(|route| route.get("dst") == Some(dst))
    };
    for dst in wanted.filter_map(|route| route.get("dst")) {
        let places = ["/routes", "/ip4/routes", "/ip6/routes"];
        let is_there = places.iter().any(|place| is_in(result.pointer(place), dst));
        Finding::unless(is_there, format!("a route to {dst}"), format!("the result is {result}"))?;
    }
    Ok(())
}

fn gives_route_attributes(bench: &Bench) -> Result<(), Stop> {
    let mut config = bench.config();
    let routes = config.pointer_mut("/ipam/routes").ok_or_else(|| Stop::skip("its config has no ipam.routes"))?;
    let wanted = json!({ "dst": "198.51.100.0/24", "gw": "10.77.0.1", "mtu": 1300, "advmss": 1200, "priority": 77,
        "table": 4711, "scope": 0 });
    *routes = json!([wanted]);
    let result = bench.make(&bench.call_with(Verb::Add, &config, &bench.pod()))?.succeeds()?;
    let is_there = result["routes"].as_array().is_some_and(|routes| routes.contains(&wanted));
    Finding::unless(is_there, format!("the route {wanted} of the config"), format!("the result is {result}"))
}

fn makes_no_interface(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    let before = pod.namespace().snapshot();
    bench.add(&pod)?;
    let changes = testns::changes(&before, &pod.namespace().snapshot());
    match changes.is_empty() {
        true => Ok(()),
        false => Err(Finding::new("the container as before ADD", "it differs").with_diff(changes).into()),
    }
}

fn containers_differ(bench: &Bench) -> Result<(), Stop> {
    let pods: Vec<_> = (0..4).map(|_| bench.pod().attachment()).collect();
    differ(bench, &pods)
}

fn interfaces_differ(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    differ(bench, &["eth0", "eth1", "eth10"].map(|ifname| pod.attachment_as(ifname)))
}

fn differ(bench: &Bench, attachments: &[Attachment]) -> Result<(), Stop> {
    reserves(bench)?;
    let mut given: Vec<String> = Vec::new();
    for attachment in attachments {
        let new = addresses(bench, &bench.add(attachment)?);
        let config = bench.config_for(Verb::Add, attachment);
        if new.iter().all(|address| pool::stands_in(&config, address.split('/').next().unwrap_or(address))) {
            return Err(Stop::skip(FIXED));
        }
        let twice = new.iter().find(|address| given.contains(address));
        Finding::unless(twice.is_none(), "an address that no other has", format!("{new:?} is given after {given:?}"))?;
        given.extend(new);
    }
    Ok(())
}

/// The case looks at IPv4 only, with a prefix that leaves addresses for network and broadcast (RFC 3021).
fn gives_no_broadcast_address(bench: &Bench) -> Result<(), Stop> {
    reserves(bench)?;
    let mut tried = false;
    for _ in 0..bench.profile.capacity().unwrap_or(4).min(4) {
        let result = bench.add(&bench.pod())?;
        for ip in result["ips"].as_array().into_iter().flatten() {
            let Some((address, length)) = ip["address"].as_str().and_then(|text| text.split_once('/')) else {
                continue;
            };
            let (Ok(address), Ok(length @ 1..=30)) = (address.parse::<std::net::Ipv4Addr>(), length.parse::<u32>())
            else {
                continue;
            };
            tried = true;
            let host = address.to_bits() & (u32::MAX >> length);
            let is_plain = host != 0 && host != u32::MAX >> length;
            Finding::unless(is_plain, "an address of one endpoint", format!("{address}/{length} is its network's"))?;
        }
    }
    if tried { Ok(()) } else { Err(Stop::skip("its addresses are of no IPv4 network")) }
}

/// The gateway is an endpoint of the network, too.
fn gives_no_gateway_away(bench: &Bench) -> Result<(), Stop> {
    reserves(bench)?;
    let results: Vec<_> =
        (0..bench.profile.capacity().unwrap_or(4).min(4)).map(|_| bench.add(&bench.pod())).collect::<Result<_, _>>()?;
    let plain = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
    let ips = || results.iter().flat_map(|result| result["ips"].as_array().into_iter().flatten());
    let gateways: Vec<_> = ips().filter_map(|ip| ip["gateway"].as_str().map(plain)).collect();
    if gateways.is_empty() {
        return Err(Stop::skip("its result names no gateway"));
    }
    let given: Vec<_> = ips().filter_map(|ip| ip["address"].as_str().map(plain)).collect();
    let twice = given.iter().find(|address| gateways.contains(address));
    Finding::unless(
        twice.is_none(),
        "an address that is no gateway's",
        format!("{given:?} were given, with the gateways {gateways:?}"),
    )
}

/// Two containers ask for the address that the first of them got.
fn requested_twice(bench: &Bench) -> Result<(), Stop> {
    reserves(bench)?;
    let result = bench.add(&bench.pod())?;
    let given = addresses(bench, &result);
    let first = given.first().ok_or_else(|| Stop::skip("its ADD gives no address"))?;
    let plain = first.split('/').next().unwrap_or_default();
    if pool::stands_in(&bench.config(), plain) {
        return Err(Stop::skip(FIXED));
    }
    let args = format!("IgnoreUnknown=1;IP={plain}");
    let answer = bench.make(&bench.call(Verb::Add, &bench.pod()).args(&args))?;
    if !answer.is_success() {
        return Ok(());
    }
    let second = addresses(bench, &answer.succeeds()?);
    let expected = "an error, or another address";
    Finding::unless(!second.contains(first), expected, format!("{first}, which another has, is given again"))
}

fn no_second_address(bench: &Bench) -> Result<(), Stop> {
    gives_no_second(bench, |_, second| second)
}

/// The address is that of an attachment that has come and gone.
fn no_second_requested_address(bench: &Bench) -> Result<(), Stop> {
    gives_no_second(bench, |free, second| second.args(&format!("IgnoreUnknown=1;IP={free}")))
}

fn gives_no_second(bench: &Bench, request: impl FnOnce(&str, Call) -> Call) -> Result<(), Stop> {
    reserves(bench)?;
    let (before, pod) = (bench.pod(), bench.pod());
    let gone = bench.add(&before)?;
    let first = addresses(bench, &bench.add(&pod)?);
    bench.del(&before, &gone)?;
    let free = addresses(bench, &gone);
    let free = free.first().and_then(|address| address.split('/').next()).unwrap_or_default();
    let answer = bench.make(&request(free, bench.call(Verb::Add, &pod)))?;
    if !answer.is_success() {
        return answer.fails().map(drop);
    }
    let second = addresses(bench, &answer.succeeds()?);
    Finding::unless(second == first, format!("an error, or {first:?} again"), format!("it got {second:?} as well"))
}

fn del_releases(bench: &Bench) -> Result<(), Stop> {
    releases(bench, Remains::Alive)
}

fn del_releases_of_a_gone_one(bench: &Bench) -> Result<(), Stop> {
    releases(bench, Remains::Gone)
}

fn del_releases_of_an_untold_one(bench: &Bench) -> Result<(), Stop> {
    releases(bench, Remains::EmptyPath)
}

/// The only address goes from one container to the next.
fn releases(bench: &Bench, remains: Remains) -> Result<(), Stop> {
    let config = of_one_address(bench)?;
    let (first, second) = (bench.pod(), bench.pod());
    let result = bench.make(&bench.call_with(Verb::Add, &config, &first))?.succeeds()?;
    bench.make(&with_result(bench, bench.call_with(Verb::Del, &config, first.leave(remains)), &result))?.succeeds()?;
    bench.make(&bench.call_with(Verb::Add, &config, &second))?.succeeds().map(drop)
}

/// DEL as a runtime makes it, which has kept the result of ADD: whether it is needed is asked elsewhere.
fn with_result(bench: &Bench, del: Call, result: &Value) -> Call {
    if is_from(&bench.version, "0.4.0") { del.prev_result(result) } else { del }
}

/// The config with a range of one address.
fn of_one_address(bench: &Bench) -> Result<Value, Stop> {
    let mut config = bench.config();
    match bench.profile.of_one_address(&mut config) {
        true => Ok(config),
        false => Err(Stop::skip("the kit does not know how to make its pool small")),
    }
}

fn del_keeps_others(bench: &Bench) -> Result<(), Stop> {
    let (one, other) = (bench.pod_named("web-1"), bench.pod_named("web-10"));
    let kept = [bench.add(&other)?, bench.add(one.attachment_as("eth10"))?];
    let result = bench.add(one.attachment_as("eth1"))?;
    bench.del(one.attachment_as("eth1"), &result)?;
    bench.check(&other, &kept[0])?;
    bench.check(one.attachment_as("eth10"), &kept[1])
}

fn check_misses_a_reservation(bench: &Bench) -> Result<(), Stop> {
    reserves(bench)?;
    let pod = bench.pod();
    let result = bench.add(&pod)?;
    let config = bench.config_for(Verb::Add, &pod.attachment());
    if pool::addresses(&result).iter().all(|address| pool::stands_in(&config, address)) {
        return Err(Stop::skip(FIXED));
    }
    bench.del(&pod, &result)?;
    bench.make(&bench.call(Verb::Check, &pod).prev_result(&result))?.fails().map(drop)
}

fn exhausted(bench: &Bench) -> Result<(), Stop> {
    let config = of_one_address(bench)?;
    let (first, second) = (bench.pod(), bench.pod());
    bench.make(&bench.call_with(Verb::Add, &config, &first))?.succeeds()?;
    bench.make(&bench.call_with(Verb::Add, &config, &second))?.refuses()
}
