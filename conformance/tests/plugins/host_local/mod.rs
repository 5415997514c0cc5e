//! host-local: the reference's store and order of allocation, and our additional keys.

mod config;
mod status;
mod store;

use crate::prelude::*;

const FOLDER: &str = "/var/lib/cni/networks/net";

/// A container of that ID for host-local, which never opens the namespace.
fn pod(id: &str) -> Attachment {
    Attachment { container_id: id.to_owned(), netns: "/run/netns/absent".to_owned(), ifname: "eth0".to_owned() }
}

/// The addresses that ADD returns, or its error text.
fn add(node: &Node, ipam: &Value, id: &str) -> Result<Vec<String>, String> {
    add_with(node, &host_local(ipam.clone()), pod(id))
}

fn add_with(node: &Node, config: &Value, attachment: Attachment) -> Result<Vec<String>, String> {
    let reply = node.call(Verb::Add, config, attachment);
    if reply.output.code() == 0 { Ok(addresses(&reply.ok())) } else { Err(reply.fails().msg) }
}

fn del(node: &Node, ipam: &Value, id: &str) {
    node.call(Verb::Del, host_local(ipam.clone()), pod(id)).ok();
}

fn reservations() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let addresses = named.filter(|(name, _)| name.parse::<std::net::IpAddr>().is_ok());
    let mut all: Vec<_> = addresses.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect();
    all.sort();
    all
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

/// RFC 1122, 3.2.1.3: no interface can have them.
#[test]
fn the_networks_own_and_its_broadcast_address_are_not_given_where_a_bound_names_them() {
    let node = node();
    let gateway = json!({"subnet": "192.0.2.0/29", "gateway": "192.0.2.7"});
    for (start, end, expected) in [
        ("192.0.2.5", "192.0.2.7", ["192.0.2.5/29", "192.0.2.6/29", ""]),
        ("192.0.2.0", "192.0.2.2", ["192.0.2.1/29", "192.0.2.2/29", ""]),
    ] {
        let ipam = with(gateway.clone(), json!({"rangeStart": start, "rangeEnd": end}));
        let given = ["a", "b", "c"].map(|id| add(&node, &ipam, id).map_or_else(|_| String::new(), |all| all.concat()));
        assert_eq!(given, expected);
        ["a", "b", "c"].iter().for_each(|id| del(&node, &ipam, id));
    }
}

/// SPEC 2, GC: without the list it is unknown which attachments are invalid. Go's library sends none if its caller gave none,
/// and the reference's plugins exit with 0.
#[test]
fn gc_without_the_list_succeeds_and_removes_nothing() {
    let node = node();
    add(&node, &v4(), "c1").unwrap();
    let answer = node.call(Verb::Gc, with(host_local(v4()), json!({"cniVersion": "1.1.0"})), Attachment::none());
    assert!(answer.output.stderr.contains("GC has no list of valid attachments"), "{:?}", answer.output);
    answer.ok();
    assert_eq!(reservations().len(), 1);
}

/// Nothing but the reservation is left of the container, whose namespace's number another one may have: no plugin can know that.
#[test]
fn a_container_that_starts_anew_is_named_the_del_that_frees_its_address() {
    let node = node();
    let config = bridge(json!({"isGateway": true, "ipam": v4()}));
    let first = node.container_named("c1");
    node.call(Verb::Add, &config, &first).ok();
    first.end();
    let anew = node.container_named("c1");
    let error = node.call(Verb::Add, &config, &anew).fails_with(103);
    let remedy = "An ADD of its interface eth0 has reserved it, and no DEL has released it since: call DEL first, also if that container has ended.";
    assert!(error.details.starts_with(remedy), "{error:?}");
    node.call(Verb::Del, &config, &anew).ok();
    node.call(Verb::Add, &config, &anew).ok();
}
