//! The sbr plugin.

mod routes;

use super::{behind, bridged};
use crate::prelude::*;
use conformance::chained_plugins::sbr as full;
use conformance::shell;

fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "sbr"}), own)
}

fn ip(pod: &Container, words: &str) -> String {
    shell::ip(pod.namespace(), words)
}

fn rules(pod: &Namespace) -> Vec<String> {
    pod.rules()
        .into_iter()
        .filter(|rule| rule.contains("10.7.") || rule.contains("10.8.") || rule.contains("fd0"))
        .collect()
}

/// A second network of the container, 10.8.0.0/24 and fd08::/64, by an own bridge.
fn second<'a>(node: &'a Node, pod: &Container) -> Attached<'a> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd08::/64"}]],
                      "routes": [{"dst": "10.99.0.0/16"}]});
    let own = json!({"name": "second", "bridge": "br1", "isGateway": true, "ipam": ipam});
    let attached = Attached::add(node, &bridge(own), pod.attachment_as("net1"));
    pod.namespace().wait_for_addresses();
    attached
}

#[test]
fn each_address_gets_a_table_with_the_interfaces_routes() {
    let (node, pod) = node_with_pod();
    bridged(&node, &pod);
    let before = second(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, config(json!({"name": "second"}))), pod.attachment_as("net1"));
    let mut expected = before.result.clone();
    expected["cniVersion"] = json!("1.0.0");
    assert_eq!(attached.result, expected);
    let shown = ip(&pod, "route show table 100");
    for route in ["default via 10.8.0.1 dev net1", "10.8.0.0/24 dev net1", "10.99.0.0/16 via 10.8.0.1 dev net1"] {
        assert!(shown.contains(route), "{route}: {shown}");
    }
    let shown = ip(&pod, "-6 route show table 101");
    assert!(shown.contains("default via fd08::1 dev net1") && shown.contains("fd08::/64 dev net1"), "{shown}");
    let of_main = pod.namespace().routes().into_iter().filter(|route| route.table == 254);
    assert!(of_main.flat_map(|route| route.hops).all(|hop| hop.link != "net1"));
    assert!(pod.namespace().routes().iter().any(|route| route.table == 254 && route.to == "0.0.0.0/0"));
    assert_eq!(rules(pod.namespace()).len(), 2, "{:?}", rules(pod.namespace()));
    attached.check().ok();
    // The node answers on both, by the bridge that each address is on.
    for (from, to) in [("10.7.0.2", "10.7.0.1"), ("10.8.0.2", "10.8.0.1")] {
        let route = ip(&pod, &format!("route get 198.51.100.1 from {from}"));
        assert!(route.contains(&format!("via {to}")), "{from}: {route}");
    }
    node.host().ping("10.8.0.2".parse::<std::net::IpAddr>().unwrap());
    node.host().ping("fd08::2".parse::<std::net::IpAddr>().unwrap());
    attached.del().ok();
    assert!(rules(pod.namespace()).is_empty());
}

#[test]
fn a_repeated_add_changes_nothing() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let once = pod.namespace().snapshot();
    Attached::add(&node, &behind(&before, full()), &pod);
    assert_eq!(testns::changes(&once, &pod.namespace().snapshot()), "");
    attached.check().ok();
}

/// A route of several next hops moves whole, with its metrics.
#[test]
fn a_multipath_route_stays_one() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let hops = "nexthop via 10.7.0.1 dev eth0 weight 2 nexthop via 10.7.0.9 dev eth0";
    ip(&pod, &format!("route add 198.51.100.0/24 mtu 1300 {hops}"));
    ip(&pod, "route add 203.0.113.0/24 via 192.0.2.1 dev eth0 onlink");
    Attached::add(&node, &behind(&before, full()), &pod).check().ok();
    let moved = pod.namespace().routes().into_iter().find(|route| route.to == "198.51.100.0/24").expect("the route");
    assert_eq!((moved.table, moved.hops.len(), moved.mtu_bytes), (100, 2, 1300));
    let shown = ip(&pod, "route show table 100");
    assert!(shown.contains("weight 2") && shown.contains("203.0.113.0/24 via 192.0.2.1 dev eth0 onlink"), "{shown}");
}

#[test]
fn key_table_makes_the_rules_only() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let routes = pod.namespace().routes();
    let attached = Attached::add(&node, &behind(&before, config(json!({"table": 1234}))), &pod);
    assert_eq!(pod.namespace().routes(), routes);
    let made = rules(pod.namespace());
    assert!(made.len() == 2 && made.iter().all(|rule| rule.contains("1234")), "{made:?}");
    attached.check().ok();
    // Rules of other tables stay.
    ip(&pod, "rule add from 10.7.0.2 lookup 77");
    attached.del().ok();
    let left = rules(pod.namespace());
    assert!(left.len() == 1 && left[0].contains("77"), "{left:?}");
}

#[test]
fn key_gateways_replaces_the_addresses_own() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, config(json!({"gateways": ["10.7.0.99"]}))), &pod);
    let shown = ip(&pod, "route show table 100");
    assert!(shown.contains("default via 10.7.0.99 dev eth0 proto 194"), "{shown}");
    // The one that it replaces is kept for DEL.
    assert!(shown.contains("default via 10.7.0.1 dev eth0 metric 1"), "{shown}");
    assert!(ip(&pod, "-6 route show table 101").contains("default via fd07::1"));
    attached.check().ok();
}

#[test]
fn with_source_hints_the_subnets_stay_in_the_main_table() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    ip(&pod, "route replace 10.7.0.0/24 dev eth0");
    Attached::add(&node, &behind(&before, config(json!({"addSourceHints": true}))), &pod).check().ok();
    let shown = ip(&pod, "route show");
    assert!(shown.contains("10.7.0.0/24 dev eth0") && shown.contains("src 10.7.0.2"), "{shown}");
    assert!(!shown.contains("default"), "{shown}");
    assert!(ip(&pod, "-6 route show").contains("fd07::/64 dev eth0"));
}

#[test]
fn check_names_each_difference() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    ip(&pod, "route del default table 100");
    let failure = attached.check().fails_with(107);
    assert!(failure.msg.ends_with("table 100 has no default route by 10.7.0.1"), "{failure:?}");
    ip(&pod, "rule del from 10.7.0.2");
    let failure = attached.check().fails_with(107);
    assert!(failure.msg.ends_with("no rule has packets from 10.7.0.2 routed by a table"), "{failure:?}");
}

/// The reference creates the path, as a plain file, on which later plugins fail.
#[test]
fn del_of_a_namespace_that_is_gone_creates_no_file() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let gone = pod.leave(Remains::Gone);
    node.call(Verb::Del, &attached.config, &gone).ok();
    assert!(!std::fs::exists(&gone.netns).unwrap());
}

/// A container may lock its own namespace's file.
#[test]
fn a_container_that_locks_its_namespace_delays_nothing() {
    use nix::fcntl::{Flock, FlockArg};
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let file = std::fs::File::open(pod.namespace().path()).unwrap();
    let _held = Flock::lock(file, FlockArg::LockExclusive).expect("lock the namespace");
    let call = Call::new(Verb::Add, behind(&before, full()), &pod).deadline(std::time::Duration::from_secs(20));
    call.run(&node).ok();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata("/run/cni/sbr.lock").unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_interface_without_addresses_is_passed_on() {
    let (node, pod) = node_with_pod();
    let before = Attached::add(&node, &crate::configs::layer2(json!({})), &pod);
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    assert_eq!(
        (&attached.result, testns::changes(&inside, &pod.namespace().snapshot())),
        (&before.result, String::new())
    );
    attached.check().ok();
}

/// The kernel does not say who made a rule; its table does.
#[test]
fn an_administrators_rule_of_the_same_source_stays() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    // Add a rule to another table, and one to the main table, which has the default route by the address's gateway.
    ip(&pod, "rule add from 10.7.0.2 lookup 200");
    ip(&pod, "route add default via 10.7.0.9 table 200");
    ip(&pod, "-6 rule add from fd07::2 lookup main");
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    assert_eq!(rules(pod.namespace()).len(), 4, "{:?}", rules(pod.namespace()));
    assert!(ip(&pod, "route show table 100").contains("default via 10.7.0.1 dev eth0"));
    attached.check_and_del();
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
    // The reference's DEL takes every rule of the source. Ours does where none is recognised: it leaves none of ADD's.
    attached.del().ok();
    assert!(rules(pod.namespace()).is_empty());
}

/// ptp's route to the subnet is by the gateway, and the gateway's is a route to its address alone.
#[test]
fn with_source_hints_the_subnet_stays_reachable_behind_ptp() {
    let (node, pod) = node_with_pod();
    let ipam = with(crate::configs::dual(), json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}));
    let before =
        Attached::add(&node, &json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": ipam}), &pod);
    pod.namespace().wait_for_addresses();
    let main = |family| ip(&pod, &format!("{family} route show table main"));
    Attached::add(&node, &behind(&before, config(json!({"addSourceHints": true}))), &pod).check().ok();
    let (ipv4, ipv6) = (main("-4"), main("-6"));
    assert!(ipv4.contains("10.7.0.0/24 via 10.7.0.1 dev eth0 src 10.7.0.2"), "{ipv4}");
    assert!(ipv4.contains("10.7.0.1 dev eth0 scope link src 10.7.0.2") && !ipv4.contains("default"), "{ipv4}");
    assert!(ipv6.contains("fd07::/64 via fd07::1 dev eth0") && ipv6.contains("src fd07::2"), "{ipv6}");
    assert!(!ipv6.contains("default"), "{ipv6}");
}

/// Each table is read once, and routes are copied many at a time.
#[test]
fn many_addresses_and_routes_take_few_messages() {
    let (node, pod) = node_with_pod();
    let ranges: Vec<Value> = (0..20).map(|n| json!([{"subnet": format!("10.{n}.0.0/24")}])).collect();
    let ipam = json!({"type": "host-local", "ranges": ranges});
    let before = Attached::add(&node, &bridge(json!({"isGateway": true, "ipam": ipam})), &pod);
    for n in 0..120 {
        ip(&pod, &format!("route add 192.0.{n}.0/24 via 10.0.0.1 dev eth0"));
        ip(&pod, &format!("route add 198.18.{n}.0/24 dev eth0"));
    }
    let traced = Call::new(Verb::Add, behind(&before, full()), &pod).trace(&node);
    traced.reply.ok();
    let sends = traced.counts()["sendto"];
    assert!(sends < 300, "{sends} sends");
    for n in [0, 7, 19] {
        let shown = ip(&pod, &format!("route show table {}", 100 + n));
        let by_gateway = shown.lines().filter(|line| line.starts_with("192.0.")).count();
        let on_link = shown.lines().filter(|line| line.starts_with("198.18.")).count();
        assert_eq!((by_gateway, on_link), (if n == 0 { 120 } else { 0 }, 120), "table of address {n}");
    }
    assert!(!ip(&pod, "route show table main").contains("eth0"));
}

/// ADD works without a lock, as the reference's does: nodes with a read-only root have no place for a lock.
#[test]
fn a_folder_of_locks_that_cannot_be_written_is_no_obstacle() {
    use nix::mount::{MsFlags, mount};
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    std::fs::create_dir_all("/run/cni").unwrap();
    mount(Some("none"), "/run/cni", Some("tmpfs"), MsFlags::MS_RDONLY, Some("size=4k")).unwrap();
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    attached.check_and_del();
    assert!(rules(pod.namespace()).is_empty());
}
