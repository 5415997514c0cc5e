//! `cnitool doctor` and packet filters as other programs write them: what drops the packets of containers is named at each
//! hook, with commands that open it, and a filter that lets them pass is no fault.

use super::cases::{ERROR, WARNING, cases, parse};
use super::lost_packets::{Sick, sh};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;
use testns::Container;

const OUTSIDE: &str = "192.168.1.1";

const SHORT: Duration = Duration::from_millis(300);

const LONG: Duration = Duration::from_secs(10);

fn with_pod() -> (Sick, Container) {
    let sick = Sick::new();
    let pod = sick.add("office", "web", None);
    (sick, pod)
}

fn gets_out(pod: &Container, within: Duration) -> bool {
    pod.namespace().pings(OUTSIDE.parse::<IpAddr>().unwrap(), within)
}

const DROPPING: &str = include_str!("tables/dropping_filters.txt");

#[test]
fn a_filter_that_drops_packets_is_named_at_each_hook_and_opened_by_its_remedy() {
    for case in cases(DROPPING) {
        let (sick, pod) = with_pod();
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        assert!(gets_out(&pod, LONG), "before {script}");
        sh(script);
        assert!(!gets_out(&pod, SHORT), "{script} drops nothing");
        sick.expect(script, &expected);
        assert!(gets_out(&pod, LONG), "after the remedy of {script}");
    }
}

/// The firewall plugin accepts what its containers begin, and answers to it.
#[test]
fn a_filter_that_keeps_the_outside_from_ports_is_named() {
    let sick = Sick::new();
    sick.office(&json!([
        {"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "ipam": sick.tour.host_local()},
        {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"}]));
    let _other = sick.add("office", "other", None);
    sh("iptables -w -P FORWARD DROP");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let _web = sick.add("office", "web", Some(8080));
    let text = "chain FORWARD of iptables by its policy drops packets from other hosts to the node (TCP port 8080)";
    sick.expect("a port", &[("firewall-drops", ERROR, text, true)]);
}

/// Chains of other programs by which packets of containers pass though a policy drops others.
const PASSING: &str = include_str!("tables/passing_filters.txt");

#[test]
fn a_filter_that_lets_packets_pass_is_no_fault() {
    for case in cases(PASSING) {
        let (sick, pod) = with_pod();
        sh(parse(&sick.tour.with_addresses(&case)).0);
        assert!(gets_out(&pod, LONG), "{case} drops packets");
        assert_eq!(sick.doctor(), (0, Vec::new()), "{case}");
    }
}

/// Conditions that are not read are named at the report's end.
#[test]
fn a_rule_with_conditions_that_are_not_read_is_no_all_clear() {
    let (sick, _pod) = with_pod();
    sh(
        "iptables -w -I FORWARD -m length --length 200: -j DROP; iptables -w -t mangle -I FORWARD -j NFQUEUE --queue-num 0",
    );
    let shown = String::from_utf8(sick.tour.call(&["doctor", "--no-probe"]).stdout).unwrap();
    for table in ["table filter of iptables", "table mangle of iptables"] {
        assert!(shown.contains(table), "{table} is missing in {shown}");
    }
}

/// Frames of a bridge pass the filter of routed packets, where a rule for what leaves the bridge accepts none of them.
#[test]
fn containers_of_one_bridge_that_the_filter_parts_are_found() {
    if !std::path::Path::new("/proc/sys/net/bridge").exists() {
        testns::skip("parted containers", "the kernel has no br_netfilter");
        return;
    }
    let (sick, pod) = with_pod();
    let _other = sick.add("office", "other", None);
    let address = format!("{}.3", sick.tour.subnet).parse::<IpAddr>().unwrap();
    sh("sysctl -qw net.bridge.bridge-nf-call-iptables=1; iptables -w -P FORWARD DROP
        iptables -w -A FORWARD -i cni0 -o ens3 -j ACCEPT
        iptables -w -A FORWARD -i ens3 -o cni0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
    assert!(!pod.namespace().pings(address, SHORT));
    let text = "by its policy drops packets between containers on one bridge";
    sick.expect("parted containers", &[("firewall-drops", WARNING, text, true)]);
    assert!(pod.namespace().pings(address, LONG));
}

/// A network of links alone, whose addresses only its containers know.
#[test]
fn containers_without_addresses_that_the_filter_parts_are_found() {
    if !std::path::Path::new("/proc/sys/net/bridge").exists() {
        testns::skip("parted containers", "the kernel has no br_netfilter");
        return;
    }
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "bridge": "br5", "ipam": {}}]));
    let _pods = ["web", "other"].map(|name| sick.add("office", name, None));
    sh("sysctl -qw net.bridge.bridge-nf-call-iptables=1");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("iptables -w -P FORWARD DROP");
    sick.expect("parted", &[("firewall-drops", ERROR, "iptables -I FORWARD -i br5 -o br5 -j ACCEPT", true)]);
}

/// Without neighbour discovery there is no IPv6.
#[test]
fn a_filter_of_neighbour_discovery_is_an_error() {
    let (sick, _pod) = Sick::of_both_families();
    sh("ip6tables -w -A INPUT -p icmpv6 -j DROP");
    sick.expect("icmpv6", &[("firewall-drops", ERROR, "-p ipv6-icmp -j DROP drops packets", false)]);
}

#[test]
fn a_policy_that_keeps_the_node_from_finding_containers_is_opened_by_its_remedy() {
    let (sick, _pod) = Sick::of_both_families();
    sh("ip6tables -w -P OUTPUT DROP; ip6tables -w -A OUTPUT -p tcp -j ACCEPT");
    let text = "chain OUTPUT of ip6tables by its policy drops packets";
    sick.expect("what the node sends", &[("firewall-drops", ERROR, text, true)]);
}

#[test]
fn a_policy_that_drops_neighbour_discovery_is_opened_by_its_remedy() {
    let scripts = [
        "ip6tables -w -P INPUT DROP; ip6tables -w -A INPUT -p tcp --dport 22 -j ACCEPT
         ip6tables -w -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        "nft 'table inet guard { chain input { type filter hook input priority 0; policy drop; ct state established,related accept
         iif lo accept; tcp dport 22 accept; icmp type echo-request accept; }; }'",
    ];
    for script in scripts {
        let (sick, pod) = Sick::of_both_families();
        sh(script);
        sh("ip -6 neigh flush all");
        let gateway: IpAddr = "fd00:207:1::1".parse().unwrap();
        pod.namespace().enter(|| sh("ip -6 neigh flush all"));
        assert!(!pod.namespace().pings(gateway, SHORT), "{script}");
        sick.expect(script, &[("firewall-drops", ERROR, "by its policy drops packets", false)]);
        let (_, findings) = sick.doctor();
        let remedy = findings.iter().find(|finding| finding["level"] == "error").unwrap()["remedy"].clone();
        sh(remedy.as_str().unwrap());
        // What else a container sends to the node is kept out on purpose.
        assert_eq!(sick.doctor().0, 0, "{script}");
    }
}

/// A set of networks begins at the lowest address, and does not have all.
#[test]
fn a_set_of_networks_of_ipv6_is_not_taken_for_all_addresses() {
    let (sick, _pod) = Sick::of_both_families();
    sh("nft 'table inet guard { chain pass { type filter hook forward priority 0
        ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24 } reject; }; }'");
    assert_eq!(sick.doctor(), (0, Vec::new()));
}
