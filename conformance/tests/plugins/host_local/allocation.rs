//! The order in which addresses are given.

use super::{add, add_with, del, pod};
use crate::configs::{dual, host_local, with};
use crate::subjects::{each, node, same};
use serde_json::{Value, json};

/// Addresses are given from the start of the range, without the gateway, on from the last address, then round again; an exhausted range is
/// an error.
#[test]
fn addresses_come_in_the_references_order() {
    let outcomes = same(|node| {
        let ipam = json!({"subnet": "10.7.0.0/29", "gateway": "10.7.0.4"});
        let mut outcomes: Vec<_> = ["a", "b", "c"].map(|id| add(node, &ipam, id)).into();
        del(node, &ipam, "a"); // is not given again before the round is over
        outcomes.extend(["d", "e", "f", "g"].map(|id| add(node, &ipam, id)));
        outcomes
    });
    let texts: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(Clone::clone, |all| all.concat())).collect();
    let full = "failed to allocate for range 0: no IP addresses available in range set: 10.7.0.1-10.7.0.6";
    assert_eq!(texts, ["10.7.0.1/29", "10.7.0.2/29", "10.7.0.3/29", "10.7.0.5/29", "10.7.0.6/29", "10.7.0.1/29", full]);
}

/// RFC 3021 and RFC 6164: a link of two ends has two addresses, and a routed one has one.
#[test]
fn networks_of_one_or_two_addresses_are_ranges() {
    let node = node();
    let given = |own: Value| {
        let ipam = json!({"ranges": [[own]]});
        let given = ["a", "b", "c"].map(|id| add(&node, &ipam, id).map_or_else(|_| String::new(), |all| all.concat()));
        ["a", "b", "c"].iter().for_each(|id| del(&node, &ipam, id));
        given.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>()
    };
    let pair =
        json!({"subnet": "192.0.2.0/31", "rangeStart": "192.0.2.1", "rangeEnd": "192.0.2.1", "gateway": "192.0.2.0"});
    assert_eq!(given(pair), ["192.0.2.1/31"]);
    assert_eq!(given(json!({"subnet": "192.0.2.0/31"})), ["192.0.2.1/31"], "the first is the gateway");
    let both = json!({"subnet": "192.0.2.0/31", "gateway": "192.0.2.9"});
    assert_eq!(given(both), ["192.0.2.0/31", "192.0.2.1/31"]);
    assert_eq!(given(json!({"subnet": "192.0.2.7/32", "gateway": "192.0.2.1"})), ["192.0.2.7/32"]);
    assert_eq!(given(json!({"subnet": "2001:db8::2/127"})), ["2001:db8::3/127"]);
    assert_eq!(given(json!({"subnet": "2001:db8::5/128", "gateway": "fe80::1"})), ["2001:db8::5/128"]);
    assert_eq!(given(json!({"subnet": "192.0.2.7/32"})), [""; 0], "its only address is the gateway");
}

/// An address of each set; the range in the old form comes first, then `ranges`; `runtimeConfig.ipRanges` before both.
#[test]
fn each_set_gives_one_address() {
    let outcome = same(|node| {
        let ipam = json!({"subnet": "10.7.0.0/24", "ranges": [[{"subnet": "fd07::/64"}], [{"subnet": "10.8.0.0/24"}]]});
        let ranges = json!({"ipRanges": [[{"subnet": "10.9.0.0/24"}]]});
        let config = with(host_local(ipam), json!({"runtimeConfig": ranges}));
        add_with(node, &config, pod("c1"))
    });
    assert_eq!(outcome.unwrap(), ["10.9.0.2/24", "10.7.0.2/24", "fd07::2/64", "10.8.0.2/24"]);
}

/// An attachment has at most one address in a set.
#[test]
fn a_second_add_of_an_attachment_is_refused() {
    each(|_, node| {
        add(node, &dual(), "c1").unwrap();
        let failure = add(node, &dual(), "c1").unwrap_err();
        let reason = "10.7.0.2 has been allocated to c1, duplicate allocation is not allowed";
        assert_eq!(failure, format!("failed to allocate for range 0: {reason}"));
        add(node, &dual(), "c2").unwrap();
    });
}

/// The file of the last address may be missing, malformed, or outside the range: then the search starts at the range's
/// start.
#[test]
fn the_last_address_is_only_a_hint() {
    for hint in ["", "nonsense", "10.8.0.5", "fd07::1", "10.7.0.6", "10.7.0.4\n", "10.7.0.0", "10.7.0.7"] {
        let given = same(|node| {
            let ipam = json!({"subnet": "10.7.0.0/29"});
            std::fs::create_dir_all(super::FOLDER).unwrap();
            std::fs::write(format!("{}/last_reserved_ip.0", super::FOLDER), hint).unwrap();
            ["a", "b"].map(|id| add(node, &ipam, id))
        });
        assert!(given.iter().all(Result::is_ok), "{hint:?}: {given:?}");
    }
}
