//! Backend nftables: table `cni_hostport`.

use super::{config, made_up, map, mapping};
use crate::prelude::*;
use std::process::Command;

fn listed(node: &Node) -> Option<String> {
    let output = node.host().enter(|| Command::new("nft").args(["-s", "list", "ruleset"]).output());
    match output {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(_) => {
            skip("nft is not installed");
            None
        }
    }
}

fn native(own: serde_json::Value) -> serde_json::Value {
    super::with(json!({"backend": "nftables"}), own)
}

#[test]
fn nft_shows_the_references_table() {
    let node = node();
    let pod = node.container_named("c1");
    let mut with_ip = mapping(53, 5353, "UDP");
    with_ip["hostIP"] = json!("192.0.2.1");
    let all = [mapping(8080, 80, "tcp"), with_ip, mapping(99, 98, "sctp"), mapping(33, 34, "dccp")];
    let mapped = map(&node, config(&all, native(json!({}))), &pod, made_up("eth0", &["10.1.0.2/24"]));
    let Some(text) = listed(&node) else { return };
    expect_test::expect![[r#"
        table ip cni_hostport {
        	chain prerouting {
        		type nat hook prerouting priority dstnat; policy accept;
        		fib daddr type local jump hostports_all
        	}

        	chain output {
        		type nat hook output priority -100; policy accept;
        		fib daddr type local jump hostports_all
        	}

        	chain masquerading {
        		type nat hook postrouting priority srcnat; policy accept;
        		ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade comment "c1"
        		ip saddr 127.0.0.1 ip daddr 10.1.0.2 masquerade comment "c1"
        	}

        	chain hostports {
        		tcp dport 8080 dnat to 10.1.0.2:80 comment "c1"
        		ip daddr 192.0.2.1 udp dport 53 dnat to 10.1.0.2:5353 comment "c1"
        		sctp dport 99 dnat to 10.1.0.2:98 comment "c1"
        		dccp dport 33 dnat to 10.1.0.2:34 comment "c1"
        	}

        	chain hostip_hostports {
        	}

        	chain hostports_all {
        		jump hostip_hostports
        		jump hostports
        	}
        }
    "#]]
    .assert_eq(&text);
    mapped.check().ok();
    map(&node, config(&all, native(json!({}))), &pod, made_up("eth0", &["10.1.0.2/24"]));
    assert_eq!(listed(&node).unwrap(), text, "ADD again");
    mapped.del().ok();
    let left = listed(&node).unwrap();
    assert!(!left.contains("c1"), "{left}");
    mapped.check().fails_with(107);
}

/// The conditions of the reference's last network replace those of all others, and its DEL takes the rules of a container
/// on all networks.
#[test]
fn conditions_and_rules_are_those_of_their_network() {
    let node = node();
    let pod = node.container_named("c1");
    let of = |name: &str, port, source: &str| {
        config(&[mapping(port, 80, "tcp")], native(json!({"name": name, "conditionsV4": ["ip", "saddr", source]})))
    };
    let one = map(&node, of("one", 8080, "192.0.2.0/24"), &pod, made_up("eth0", &["10.1.0.2/24"]));
    let two =
        map(&node, of("two", 8081, "198.51.100.0/24"), pod.attachment_as("net1"), made_up("net1", &["10.2.0.2/24"]));
    let Some(text) = listed(&node) else { return };
    assert!(text.contains("ip saddr 192.0.2.0/24 tcp dport 8080 dnat to 10.1.0.2:80"), "{text}");
    assert!(text.contains("ip saddr 198.51.100.0/24 tcp dport 8081 dnat to 10.2.0.2:80"), "{text}");
    one.check().ok();
    one.call(Verb::Del).without("CNI_NETNS").run(&node).ok();
    two.check().ok();
    assert!(!listed(&node).unwrap().contains("10.1.0.2"));
}

/// nft loads comments of 128 bytes, and nf_tables keeps 250 of comment and note.
#[test]
fn containers_with_long_ids_are_told_apart() {
    for length in [122, 123, 128, 129, 200] {
        let node = node();
        let previous = |address: &str| super::with(made_up("eth0", &[address]), json!({"cniVersion": "1.1.0"}));
        let of = |port: u16, own| {
            config(&[mapping(port, 80, "tcp")], super::with(native(json!({"cniVersion": "1.1.0"})), own))
        };
        let ids = ["1", "2", "3"].map(|end| format!("{}{end}", "c".repeat(length - 1)));
        let [one, two, three] = ids.clone().map(|id| node.container_named(&id));
        map(&node, of(8081, json!({})), &one, previous("10.1.0.1/24"));
        let alone = listed(&node);
        let second = map(&node, of(8082, json!({})), &two, previous("10.1.0.2/24"));
        let both = listed(&node);
        let third = map(&node, of(8083, json!({})), &three, previous("10.1.0.3/24"));
        let Some(text) = listed(&node) else { return };
        if length <= 128 {
            // By which the reference's DEL finds it.
            assert!(text.contains(&format!("comment \"{}\"", ids[0])), "{text}");
        }
        let again = map(&node, of(8083, json!({})), &three, previous("10.1.0.3/24"));
        assert_eq!(listed(&node), Some(text), "ADD again");
        again.check().ok();
        second.check().ok();
        third.del().ok();
        assert_eq!(listed(&node), both);
        second.check().ok();
        again.check().fails_with(107);
        let valid = json!([{"containerID": ids[0], "ifname": "eth0"}]);
        let gc = of(1, json!({"cni.dev/valid-attachments": valid}));
        node.call(Verb::Gc, &gc, testns::Attachment::none()).ok();
        assert_eq!(listed(&node), alone, "{length}");
    }
}

/// Host IP and condition are both about the packet's destination, and one rule has one such condition.
#[test]
fn a_host_address_does_not_replace_a_condition() {
    let node = node();
    let pod = node.container_named("c1");
    let with_ip = |port, ip: &str| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp", "hostIP": ip});
    let all = [with_ip(8080, "192.0.2.1"), with_ip(8081, "198.51.100.1"), mapping(8082, 80, "tcp")];
    let own = native(json!({"conditionsV4": ["ip", "daddr", "192.0.2.0/24"]}));
    let mapped = map(&node, config(&all, own), &pod, made_up("eth0", &["10.1.0.2/24"]));
    let Some(text) = listed(&node) else { return };
    assert!(text.contains("ip daddr 192.0.2.1 tcp dport 8080 dnat"), "{text}");
    assert!(text.contains("ip daddr 192.0.2.0/24 tcp dport 8082 dnat"), "{text}");
    assert!(!text.contains("198.51.100.1"), "{text}");
    mapped.check().ok();
    mapped.del().ok();
    let own = native(json!({"conditionsV4": ["ip", "daddr", "!=", "192.0.2.1"]}));
    map(&node, config(&all, own), &pod, made_up("eth0", &["10.1.0.2/24"])).check().ok();
    let text = listed(&node).unwrap();
    assert!(text.contains("198.51.100.1 tcp dport 8081 dnat") && !text.contains("8080"), "{text}");
}

/// The reference's rules have the container's ID for a comment, and nothing else that says whose they are.
#[test]
fn del_takes_the_references_rules() {
    let node = node();
    let pod = node.container_named("c1");
    let rule = r#"
        table ip cni_hostport {
            chain hostports { tcp dport 8080 dnat to 10.1.0.2:80 comment "c1"; tcp dport 8081 dnat to 10.9.0.2:80 comment "c1"; }
        }"#;
    let loaded = node.host().enter(|| Command::new("nft").arg(rule).status());
    if loaded.is_err() {
        return skip("nft is not installed");
    }
    let all = config(&[], super::with(native(json!({})), json!({"prevResult": made_up("eth0", &["10.1.0.2/24"])})));
    pod.namespace().add_veth("net1", node.host(), "other");
    pod.namespace().add_address("net1", "10.9.0.2/24");
    node.call(Verb::Del, &all, &pod).ok();
    let left = listed(&node).unwrap();
    assert!(!left.contains("8080") && left.contains("8081"), "{left}");
}

fn load(node: &Node, rules: &str) {
    let loaded = node.host().enter(|| Command::new("nft").arg(rules).status());
    assert!(loaded.unwrap().success(), "{rules}");
}

/// The reference has conditions at the jump to the rules of all containers.
#[test]
fn check_accepts_the_references_rules_with_conditions() {
    let Some(theirs) = reference_or_skip() else { return };
    for (family, key, word, source, address) in [
        ("ip", "conditionsV4", "ip", "192.0.2.0/24", "10.1.0.2/24"),
        ("ip6", "conditionsV6", "ip6", "2001:db8::/64", "fd00::2/64"),
    ] {
        let node = node();
        let pod = node.container();
        let config = config(&[mapping(8080, 80, "tcp")], native(json!({key: [word, "saddr", source]})));
        node.install_one(&theirs, "portmap");
        let mapped = map(&node, config, &pod, made_up("eth0", &[address]));
        node.install_one(&ours(), "portmap");
        mapped.check().ok();
        load(&node, &format!("flush chain {family} cni_hostport hostports"));
        mapped.check().fails_with(107);
    }
}

/// The reference has no rule of its own for masqAll in this backend.
#[test]
fn check_accepts_the_references_rules_with_masq_all() {
    let Some(theirs) = reference_or_skip() else { return };
    // Beyond 1.9.1 a rule for all sources, each with the spelling of its family.
    let newer = ["", "10.1.0.2 ip saddr 0.0.0.0/0 ip daddr", "fd00::2 ip6 saddr ::/0 ip6 daddr"];
    for (masq_all, newer) in newer.into_iter().flat_map(|newer| [(true, newer), (false, newer)]) {
        let node = node();
        let pod = node.container_named("c1");
        let address = newer.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("10.1.0.2");
        let (family, prefix) = if address.contains(':') { ("ip6", 64) } else { ("ip", 24) };
        let config = config(&[mapping(8080, 80, "tcp")], native(json!({"masqAll": masq_all})));
        node.install_one(&theirs, "portmap");
        let mapped = map(&node, config, &pod, made_up("eth0", &[&format!("{address}/{prefix}")]));
        node.install_one(&ours(), "portmap");
        mapped.check().ok();
        let flush = format!("flush chain {family} cni_hostport masquerading");
        if let Some((_, words)) = newer.split_once(' ') {
            let rule = format!("{words} {address} masquerade comment \"c1\"");
            load(&node, &format!("{flush}; add rule {family} cni_hostport masquerading {rule}"));
            mapped.check().ok();
        }
        load(&node, &flush);
        mapped.check().fails_with(107);
    }
}
