//! Masquerade by shared rules, on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;

use cni_filter::{Backend, Filter, Names, list};
use ipnetwork::IpNetwork;

use crate::node::{ETH0, has, in_netns, remove, sh};

const OTHER: Names<'static> = Names { network: "other", container: "c2", ifname: "eth0" };
const BOTH: [&str; 2] = ["10.1.0.5/24", "fd00::5/64"];

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn add(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    let added = Filter::open("").unwrap().add_masquerade(Backend::Shared, attachment, &networks(addresses));
    added.map_err(|error| error.to_string())
}

fn check(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    let checked = Filter::open("").unwrap().check_masquerade(Backend::Shared, attachment, &networks(addresses));
    checked.map_err(|error| error.to_string())
}

fn held(network: &str) -> Vec<IpAddr> {
    list(network, "").unwrap().into_iter().filter_map(|noted| noted.address).collect()
}

fn lines(text: &str) -> Vec<String> {
    sh("nft list ruleset").lines().filter(|line| line.contains(text)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_ruleset_is_readable_and_can_be_loaded_again() {
    in_netns(|| {
        if !has("the_ruleset_is_readable_and_can_be_loaded_again", "nft") {
            return;
        }
        add(ETH0, &BOTH).unwrap();
        let whose = "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1";
        let [element, own] = &lines("10.1.0.5")[..2] else { panic!("{:?}", lines("")) };
        assert_eq!(*element, format!("elements = {{ 10.1.0.5 comment \"{whose}\" : goto masq_beyond_24 }}"));
        assert_eq!(*own, format!("elements = {{ 10.1.0.5 . 10.1.0.0 comment \"{whose}\" }}"));
        assert_eq!(lines("vmap"), ["ip saddr vmap @masq_addresses", "ip6 saddr vmap @masq_addresses"]);
        assert_eq!(
            lines("return"),
            [
                "ip saddr . ip daddr & 255.255.255.0 @masq_own_subnets return",
                "ip daddr 224.0.0.0/4 return",
                "ip6 saddr . ip6 daddr & ffff:ffff:ffff:ffff:: @masq_own_subnets return",
                "ip6 daddr ff00::/8 return",
            ]
        );
        sh("nft list ruleset > /run/saved; nft flush ruleset; nft -f /run/saved");
        check(ETH0, &BOTH).unwrap();
        remove(ETH0);
        assert_eq!(lines("comment"), [""; 0]);
    });
}

/// A container that lives keeps its element, one that is gone does not: the reference's DEL leaves elements.
#[test]
fn an_address_that_another_attachment_has_is_refused_while_a_container_has_it() {
    in_netns(|| {
        add(ETH0, &["10.1.0.5/24"]).unwrap();
        let container = crate::node::OtherNamespace::new();
        let pid = container.pid();
        sh(&format!(
            "ip link add veth0 type veth peer name eth0 netns {pid}
             nsenter --net=/proc/{pid}/ns/net ip address add 10.1.0.5/24 dev eth0"
        ));
        let error = add(OTHER, &["10.1.0.5/24"]).unwrap_err();
        let expected = "net: office, if: eth0, id: c1\": run DEL of that, or GC of its network";
        assert!(error.contains("10.1.0.5") && error.contains(expected), "{error}");
        assert_eq!(held("other"), [""; 0].map(|none: &str| none.parse::<IpAddr>().unwrap()));
        remove(OTHER);
        check(ETH0, &["10.1.0.5/24"]).unwrap();
        sh("ip link delete veth0");
        add(OTHER, &["10.1.0.5/24"]).unwrap();
        remove(ETH0);
        check(OTHER, &["10.1.0.5/24"]).unwrap();
    });
}

#[test]
fn check_names_what_is_missing_and_add_makes_it_again() {
    in_netns(|| {
        add(OTHER, &["10.1.0.7/24"]).unwrap();
        for (harm, names) in [
            ("nft flush ruleset", "masq_beyond_24"),
            ("nft flush chain ip cni_shared postrouting", "postrouting"),
            ("nft flush chain ip6 cni_shared masq_beyond_64", "masq_beyond_64"),
            ("nft delete element ip cni_shared masq_addresses '{ 10.1.0.5 }'", "10.1.0.5"),
            ("nft flush set ip cni_shared masq_own_subnets", "10.1.0.5"),
            ("nft flush map ip cni_shared masq_index", "10.1.0.5"),
            ("nft delete map ip6 cni_shared masq_index", "fd00::5"),
            ("nft add table ip cni_shared '{ flags dormant; }'", "dormant"),
        ] {
            add(ETH0, &BOTH).unwrap_or_else(|error| panic!("before {harm}: {error}"));
            check(ETH0, &BOTH).unwrap_or_else(|error| panic!("before {harm}: {error}"));
            sh(harm);
            let error = check(ETH0, &BOTH).expect_err(harm);
            assert!(error.contains(names), "{harm}: {error}");
        }
        add(ETH0, &BOTH).unwrap();
        check(ETH0, &BOTH).unwrap();
        remove(ETH0);
        assert_eq!(held("office").len(), 0);
    });
}
