//! `cnitool doctor` on nodes whose containers have lost a part of their way out: one family, one link of a pair, a port, the uplink.

use super::cases::{ERROR, WARNING};
use super::lost_packets::{Sick, find_and_mend_each, sh};
use crate::cnitool::netns;
use serde_json::{Value, json};
use std::process::Command;

const DAMAGES: &str = include_str!("tables/lost_in_part.txt");

/// The container's own side.
const DAMAGES_INSIDE: &str = include_str!("tables/lost_inside.txt");

#[test]
fn each_fault_of_the_containers_own_side_is_found() {
    find_and_mend_each(DAMAGES_INSIDE);
}

#[test]
fn each_way_that_is_lost_in_part_is_found() {
    find_and_mend_each(DAMAGES);
}

/// The kernel keeps an address that duplicate address detection found with another, and answers no neighbour that asks for it.
#[test]
fn an_address_that_the_kernel_does_not_use_is_found() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.both_families()}]));
    let web = sick.add("office", "web", None);
    let thief = sick.add("office", "thief", None);
    let [own, netns] = [&web, &thief].map(netns);
    sh(&format!(
        "gateway=fd00:207:1::1/64; ip address del $gateway dev cni0
        nsenter --net={netns} ip address add $gateway dev eth0 nodad; ip address add $gateway dev cni0"
    ));
    sick.tour.node.host().wait_for("the kernel refuses the address", |_| {
        let shown = Command::new("ip").args(["address", "show", "dev", "cni0", "dadfailed"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("fd00:207:1::1")
    });
    sh(&format!("nsenter --net={netns} ip address del fd00:207:1::1/64 dev eth0"));
    let text = "link cni0 does not use the gateway's address fd00:207:1::1/64 (dadfailed)";
    sick.expect("another had the gateway's address", &[("gateway-address", ERROR, text, true)]);
    sh(&format!(
        "address=fd00:207:1::2/64; nsenter --net={own} sysctl -qw net.ipv6.conf.eth0.accept_dad=1
        nsenter --net={own} ip address del $address dev eth0
        nsenter --net={netns} ip address add $address dev eth0 nodad; nsenter --net={own} ip address add $address dev eth0"
    ));
    web.namespace().wait_for("the kernel refuses the container's address", |_| {
        let shown = Command::new("nsenter")
            .args([&format!("--net={own}"), "ip", "address", "show", "dev", "eth0", "dadfailed"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("fd00:207:1::2")
    });
    sh(&format!("nsenter --net={netns} ip address del fd00:207:1::2/64 dev eth0"));
    let text = "eth0 in the container does not use fd00:207:1::2/64 (dadfailed)";
    sick.expect("another had a container's address", &[("container-side", ERROR, text, true)]);
}

/// The kernel removes the route to the container with the gateway's address, and does not make it again.
#[test]
fn a_pair_without_bridge_is_mended_at_once() {
    let sick = Sick::new();
    let mut ipam = sick.both_families();
    ipam["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    sick.office(&json!([{"type": "ptp", "ipam": ipam}]));
    let _pod = sick.add("office", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    // The reference's veth has no mark.
    sh(
        "veth=$(ls /sys/class/net | grep ^veth); cat /sys/class/net/$veth/ifalias > /run/alias; ip link set $veth alias ''",
    );
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("ip link set $(ls /sys/class/net | grep ^veth) alias \"$(cat /run/alias)\"");
    for damage in [
        "ip address flush dev VETH scope global; ip route flush dev VETH",
        "ip link set VETH down",
        "sysctl -qw net.ipv4.conf.VETH.forwarding=0",
        "ip link set VETH arp off",
        "ip link add br9 type bridge; ip link set VETH master br9",
    ] {
        sh(&damage.replace("VETH", "$(ls /sys/class/net | grep ^veth)"));
        let findings = sick.doctor().1;
        assert!(!findings.is_empty(), "{damage}");
        for finding in findings {
            let done = sick.tour.shell(finding["remedy"].as_str().unwrap());
            assert!(done.status.success(), "{finding}: {done:?}");
        }
        assert_eq!(sick.doctor(), (0, Vec::new()), "{damage}");
    }
}

/// A rule of one family is no rule of the other.
#[test]
fn what_is_lost_in_one_family_is_found() {
    let (sick, pod) = Sick::of_both_families();
    for (program, over) in [("ip6tables", "over IPv6"), ("iptables", "over IPv4")] {
        sh(&format!("{program}-save -t nat > /run/rules; {program} -w -t nat -F; {program} -w -t nat -X"));
        sick.expect(program, &[("port-gone", ERROR, over, false)]);
        sh(&format!("{program}-restore < /run/rules"));
        assert_eq!(sick.doctor(), (0, Vec::new()), "{program}");
    }
    sh("ip -6 rule add from fd00:207:1::/64 prohibit");
    let refused = "the node's rule from fd00:207:1::/64 prohibit refuses packets from containers to other networks";
    sick.expect("a rule of IPv6", &[("route-elsewhere", ERROR, refused, true)]);
    let netns = netns(&pod);
    for (damage, why) in [
        ("ip link set eth0 mtu 1000", "its MTU is 1000, and IPv6 needs 1280"),
        ("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "IPv6 is disabled there"),
    ] {
        sh(&format!("nsenter --net={netns} {damage}"));
        sick.expect(damage, &[("container-side", ERROR, why, true)]);
    }
    let refuses = "the node's route unreachable default refuses IPv6 packets to other networks";
    sh("ip -6 route add unreachable default metric 10");
    sick.expect("a refusing route", &[("no-way-out", WARNING, refuses, true)]);
    sh("ip -6 address flush dev cni0 scope link");
    let other_hosts = "link cni0 has no link-local address: other hosts do not reach containers by IPv6";
    sick.expect("link-local", &[("gateway-address", WARNING, other_hosts, true)]);
    sh("ip link set cni0 mtu 1000");
    sick.expect(
        "a narrow bridge",
        &[("gateway-address", ERROR, "fd00:207:1::1/64", true), ("mtu", ERROR, "1000", true)],
    );
}

/// A bridge is as narrow as its narrowest port.
#[test]
fn the_container_whose_link_narrows_the_bridge_is_named() {
    let sick = Sick::new();
    let web = sick.add("office", "web", None);
    let netns = netns(&web);
    sh(&format!(
        "ip link set $(ls /sys/class/net | grep ^veth) mtu 900; nsenter --net={netns} ip link set eth0 mtu 900"
    ));
    let _other = sick.add("office", "other", None);
    let text = "mtu of containers is 1500, and that of their bridge cni0 900, by web/eth0, which ADD gave 1500";
    sick.expect("a narrow container", &[("mtu", WARNING, text, true)]);
}

#[test]
fn an_end_of_a_pair_that_was_moved_away_is_missed() {
    let sick = Sick::new();
    let pod = sick.add("office", "web", None);
    sh(&format!("ip link set $(ls /sys/class/net | grep ^veth) netns {}", pod.namespace().path().display()));
    let text = "the host's end of eth0 in the container is not on the node";
    sick.expect("a moved end", &[("link-down", ERROR, text, false)]);
}

/// A reset of the node leaves the links of living containers, and the network's file is written again.
#[test]
fn a_container_whose_bridge_and_records_are_gone_is_found() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", None);
    sh("ip link delete cni0; rm -r /var/lib/cni/*; iptables -w -t nat -F");
    let (exit, findings) = sick.doctor();
    let text = "links of living containers, which the cache does not have, are no ports of a bridge";
    let is_it = |finding: &serde_json::Value| finding["kind"] == "link-down" && finding.to_string().contains(text);
    assert!(exit == ERROR && findings.iter().any(is_it), "{findings:#?}");
}

/// A port at an address that the node has no more, and a pair's link that forwards nothing.
#[test]
fn a_port_of_an_address_that_is_gone_is_found() {
    let sick = Sick::new();
    let pod = sick.tour.node.container();
    let netns = netns(&pod);
    let mapping =
        r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.168.1.7"}]}"#;
    sick.tour.cnitool(&["add", "office", &netns, "--container-id", "web", "--cap-args", mapping]);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh(
        "ip address del 192.168.1.7/24 dev ens3; ip address add 192.168.1.8/24 dev ens3; ip route replace default via 192.168.1.1",
    );
    sick.expect("a new address", &[("port-gone", ERROR, "no link has 192.168.1.7", false)]);
}

/// The node has moved to a bridge, and one of its routes has not.
#[test]
fn a_route_that_stayed_on_a_port_of_the_nodes_bridge_is_removed() {
    let (sick, _pod) = Sick::of_both_families();
    sh("ip link add br0 type bridge; ip link set br0 up; ip link set ens3 master br0
        ip address del 192.168.1.7/24 dev ens3; ip address add 192.168.1.7/24 dev br0
        ip route add default via 192.168.1.1 dev br0; ip -6 address flush dev ens3 scope global
        ip -6 route replace default via fe80::1 dev ens3");
    let (_, findings) = sick.doctor();
    let remedy = findings.iter().find(|finding| finding["kind"] == "no-way-out").unwrap();
    assert_eq!(remedy["remedy"], "ip -6 route del default dev ens3", "{findings:#?}");
}

/// What a container sends passes the ifb of its limit.
#[test]
fn an_ifb_that_is_down_or_gone_is_made_again() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.tour.host_local()},
        {"type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000}]));
    let _pod = sick.add("office", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("ip link set $(ls /sys/class/net | grep ^bwp) down");
    sick.expect("an ifb", &[("link-down", ERROR, "bwp", true)]);
    sh("ip link del $(ls /sys/class/net | grep ^bwp)");
    sick.expect("no ifb", &[("link-gone", ERROR, "bwp", true)]);
    // No ifb is a way out of the node.
    sh("ip link add ifb0 type ifb; ip link set ifb0 up; ip link del ens3");
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

/// The network's file is all that says so where the cache has lost its entries.
#[test]
fn a_masquerade_that_is_gone_with_the_cache_is_missed() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", None);
    sh("rm -r /var/lib/cni/results");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("iptables -w -t nat -F; nft flush ruleset");
    sick.expect("no cache", &[("masquerade-gone", WARNING, "the network has ipMasq", false)]);
}

/// Storage networks have large packets, which no other network gets.
#[test]
fn a_wide_network_without_a_way_out_is_no_fault() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "isGateway": true, "mtu": 9000, "ipam": sick.tour.host_local()}]));
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let _pod = sick.add("office", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

/// What a key asks for is no fault.
#[test]
fn an_interface_that_is_down_by_its_network_is_no_fault() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "disableContainerInterface": true, "ipam": {}}]));
    let _pod = sick.add("office", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

/// A container that is started anew gets another address only from a plugin that chooses them.
#[test]
fn the_help_for_an_address_of_two_containers_goes_by_what_gives_it() {
    let fixed = |sick: &Sick| json!({"type": "static", "addresses": [{"address": sick.tour.address(5) + "/24"}]});
    let chosen = |sick: &Sick| sick.tour.host_local();
    let remedy_of = |ipam: &dyn Fn(&Sick) -> Value, names: [&str; 2]| {
        let sick = Sick::new();
        for (number, name) in names.iter().enumerate() {
            let bridge =
                json!({"type": "bridge", "bridge": format!("{name}0"), "isGateway": true, "ipam": ipam(&sick)});
            sick.network(&format!("10-{name}"), json!({"name": name, "plugins": [bridge]}));
            let _pod = sick.add(name, &format!("c{number}"), None);
        }
        let mut findings = sick.doctor().1.into_iter();
        let found = findings.find(|finding| finding["kind"] == "duplicate-address");
        found.expect("a finding about the address")["remedy"].as_str().unwrap().to_owned()
    };
    let remedy = remedy_of(&fixed, ["office", "office"]);
    assert!(remedy.starts_with("Plugin static gives what"), "{remedy}");
    let remedy = remedy_of(&chosen, ["office", "two"]);
    assert!(remedy.starts_with("Give one of the networks another range"), "{remedy}");
}
