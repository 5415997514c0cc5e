//! SPEC 4 and 5, IPAM plugins.

use crate::addresses;
use crate::profile::Role;
use crate::rules::prelude::*;

pub(super) const CASES: &[Code] = &[
    ("ipam.gives-an-address/newest", gives_an_address),
    ("ipam.gives-an-address/before-0.3.0", gives_an_address),
    ("ipam.gives-route-attributes", gives_route_attributes),
    ("ipam.makes-no-interface", makes_no_interface),
    ("ipam.no-address-twice/containers", containers_differ),
    ("ipam.no-address-twice/interfaces-of-a-container", interfaces_differ),
    ("ipam.no-address-twice/requested", requested_twice),
    ("ipam.no-address-twice/gateway", gives_no_gateway_away),
    ("ipam.no-address-twice/broadcast", gives_no_broadcast_address),
    ("ipam.one-address-for-an-attachment/any", |testbed| gives_no_second(testbed, |_, second| second)),
    ("ipam.one-address-for-an-attachment/requested", no_second_requested_address),
    ("ipam.del-keeps-others", del_keeps_others),
    ("ipam.check-misses-a-reservation", check_misses_a_reservation),
];

/// The reason why nothing is asked of the reservations of some plugins.
const FIXED: &str = "its addresses stand in its config, so it reserves none";

/// Skips plugins of another kind whose profile names no pool: their delegate's is asked of that one.
pub(super) fn is_pooled(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(
        !(testbed.profile.role == Role::Ipam || testbed.profile.pool.is_some()),
        "it is no IPAM plugin, and its profile names no pool of its own (PROFILES.md, pool)",
    )
}

/// Skips plugins whose addresses stand in the config: they reserve nothing.
fn reserves(testbed: &Testbed) -> Result<(), Stop> {
    is_pooled(testbed)?;
    Stop::skip_if(testbed.config().pointer("/ipam/addresses").is_some(), FIXED)
}

fn gives_an_address(testbed: &Testbed) -> Result<(), Stop> {
    let result = testbed.add(&testbed.pod())?;
    Finding::unless(!addresses::addresses(&result).is_empty(), "an address", format!("the result is {result}"))?;
    let config = testbed.config();
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

fn gives_route_attributes(testbed: &Testbed) -> Result<(), Stop> {
    let mut config = testbed.config();
    let routes = config.pointer_mut("/ipam/routes").ok_or_else(|| Stop::skip("its config has no ipam.routes"))?;
    let wanted = json!({ "dst": "198.51.100.0/24", "gw": "10.77.0.1", "mtu": 1300, "advmss": 1200, "priority": 77,
        "table": 4711, "scope": 0 });
    *routes = json!([wanted]);
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, &testbed.pod()))?.succeeds()?;
    let is_there = result["routes"].as_array().is_some_and(|routes| routes.contains(&wanted));
    Finding::unless(is_there, format!("the route {wanted} of the config"), format!("the result is {result}"))
}

fn makes_no_interface(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before = pod.namespace().snapshot();
    testbed.add(&pod)?;
    let changes = testns::changes(&before, &pod.namespace().snapshot());
    Finding::unless_differs(changes, "the container as before ADD", "it differs")
}

fn containers_differ(testbed: &Testbed) -> Result<(), Stop> {
    let pods: Vec<_> = (0..some(testbed)).map(|_| testbed.pod().attachment()).collect();
    differ(testbed, &pods)
}

/// A few containers, or as many as the pool has addresses for.
fn some(testbed: &Testbed) -> usize {
    testbed.profile.capacity().unwrap_or(4).min(4)
}

fn interfaces_differ(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    differ(testbed, &["eth0", "eth1", "eth10"].map(|ifname| pod.attachment_as(ifname)))
}

fn differ(testbed: &Testbed, attachments: &[Attachment]) -> Result<(), Stop> {
    reserves(testbed)?;
    let mut given: Vec<String> = Vec::new();
    let is_one_container = attachments.windows(2).any(|two| two[0].container_id == two[1].container_id);
    for attachment in attachments {
        let new = match testbed.add(attachment) {
            Err(Stop::Fails(_)) if is_one_container && !given.is_empty() => {
                return Err(Stop::skip("its config serves a container once: a second ADD is an error"));
            }
            added => addresses::addresses(&added?),
        };
        let config = testbed.config_for(Verb::Add, attachment);
        Stop::skip_if(
            new.iter().all(|address| addresses::stands_in(&config, address.split('/').next().unwrap_or(address))),
            FIXED,
        )?;
        let twice = new.iter().find(|address| given.contains(address));
        Finding::unless(twice.is_none(), "an address that no other has", format!("{new:?} is given after {given:?}"))?;
        given.extend(new);
    }
    Ok(())
}

/// The case looks at IPv4 only, with a prefix that leaves addresses for network and broadcast (RFC 3021).
fn gives_no_broadcast_address(testbed: &Testbed) -> Result<(), Stop> {
    let mut tried = false;
    for ip in ips_of_some(testbed)? {
        let address = ip["address"].as_str().and_then(|text| text.split_once('/')).unwrap_or_default();
        let (Ok(ip), Ok(length @ 1..=30)) = (address.0.parse::<std::net::Ipv4Addr>(), address.1.parse::<u32>()) else {
            continue;
        };
        tried = true;
        let host = ip.to_bits() & (u32::MAX >> length);
        let is_plain = host != 0 && host != u32::MAX >> length;
        Finding::unless(is_plain, "an address of one endpoint", format!("{ip}/{length} is its network's"))?;
    }
    if tried { Ok(()) } else { Err(Stop::skip("its addresses are of no IPv4 network")) }
}

/// The entries of `ips` that a few containers get.
fn ips_of_some(testbed: &Testbed) -> Result<Vec<Value>, Stop> {
    reserves(testbed)?;
    let results: Vec<_> = (0..some(testbed)).map(|_| testbed.add(&testbed.pod())).collect::<Result<_, _>>()?;
    Ok(results.iter().flat_map(|result| result["ips"].as_array().cloned().unwrap_or_default()).collect())
}

/// The gateway is an endpoint of the network, too.
fn gives_no_gateway_away(testbed: &Testbed) -> Result<(), Stop> {
    let ips = ips_of_some(testbed)?;
    let plain = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
    let gateways: Vec<_> = ips.iter().filter_map(|ip| ip["gateway"].as_str().map(plain)).collect();
    Stop::skip_if(gateways.is_empty(), "its result names no gateway")?;
    let given: Vec<_> = ips.iter().filter_map(|ip| ip["address"].as_str().map(plain)).collect();
    let twice = given.iter().find(|address| gateways.contains(address));
    Finding::unless(
        twice.is_none(),
        "an address that is no gateway's",
        format!("{given:?} were given, with the gateways {gateways:?}"),
    )
}

/// Two containers ask for the address that the first of them got.
fn requested_twice(testbed: &Testbed) -> Result<(), Stop> {
    reserves(testbed)?;
    let result = testbed.add(&testbed.pod())?;
    let given = addresses::addresses(&result);
    let first = given.first().ok_or_else(|| Stop::skip("its ADD gives no address"))?;
    let plain = first.split('/').next().unwrap_or_default();
    Stop::skip_if(addresses::stands_in(&testbed.config(), plain), FIXED)?;
    let args = format!("IgnoreUnknown=1;IP={plain}");
    let answer = testbed.make(&testbed.call(Verb::Add, &testbed.pod()).args(&args))?;
    if !answer.is_success() {
        return Ok(());
    }
    let second = addresses::addresses(&answer.succeeds()?);
    let expected = "an error, or another address";
    Finding::unless(!second.contains(first), expected, format!("{first}, which another has, is given again"))
}

/// The address is that of an attachment that has come and gone.
fn no_second_requested_address(testbed: &Testbed) -> Result<(), Stop> {
    gives_no_second(testbed, |free, second| second.args(&format!("IgnoreUnknown=1;IP={free}")))
}

fn gives_no_second(testbed: &Testbed, request: impl FnOnce(&str, Call) -> Call) -> Result<(), Stop> {
    reserves(testbed)?;
    let (before, pod) = (testbed.pod(), testbed.pod());
    let gone = testbed.add(&before)?;
    let first = addresses::addresses(&testbed.add(&pod)?);
    testbed.del(&before, &gone)?;
    let free = addresses::addresses(&gone);
    let free = free.first().and_then(|address| address.split('/').next()).unwrap_or_default();
    let answer = testbed.make(&request(free, testbed.call(Verb::Add, &pod)))?;
    if !answer.is_success() {
        return answer.fails().map(drop);
    }
    let second = addresses::addresses(&answer.succeeds()?);
    Finding::unless(second == first, format!("an error, or {first:?} again"), format!("it got {second:?} as well"))
}

fn del_keeps_others(testbed: &Testbed) -> Result<(), Stop> {
    let (one, other) = (testbed.pod_named("web-1"), testbed.pod_named("web-10"));
    let kept = [testbed.add(&other)?, testbed.add(one.attachment_as("eth10"))?];
    let result = testbed.add(one.attachment_as("eth1"))?;
    testbed.del(one.attachment_as("eth1"), &result)?;
    testbed.check(&other, &kept[0])?;
    testbed.check(one.attachment_as("eth10"), &kept[1])
}

fn check_misses_a_reservation(testbed: &Testbed) -> Result<(), Stop> {
    reserves(testbed)?;
    let (other, pod) = (testbed.pod(), testbed.pod());
    testbed.add(&other)?; // one that has a reservation says nothing of another
    let result = testbed.add(&pod)?;
    let config = testbed.config_for(Verb::Add, &pod.attachment());
    Stop::skip_if(addresses::addresses(&result).iter().all(|address| addresses::stands_in(&config, address)), FIXED)?;
    testbed.del(&pod, &result)?;
    testbed.make(&testbed.call(Verb::Check, &pod).prev_result(&result))?.fails().map(drop)
}
