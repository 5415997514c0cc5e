//! The rules, as iptables shows them, and whose they are.

use super::{config, forwarding, has_iptables, made_up, map, mapping, saved};
use crate::prelude::*;
use conformance::shell::sh;
use std::process::Command;
use testns::Subject;

const BOTH: [&str; 2] = ["10.1.0.2/24", "fd01::2/64"];

fn many() -> Vec<Value> {
    let mut all: Vec<Value> = (0..17).map(|number| mapping(8100 - number, 80 + number, "tcp")).collect();
    all.extend([
        mapping(8080, 80, "tcp"),
        mapping(8080, 80, "tcp"),
        mapping(53, 5353, "udp"),
        mapping(99, 98, "sctp"),
        mapping(33, 34, "dccp"),
    ]);
    for (port, ip) in [(54, "192.0.2.1"), (55, "2001:db8::1"), (56, "0.0.0.0"), (57, "::")] {
        all.push(json!({"hostPort": port, "containerPort": 53, "protocol": "udp", "hostIP": ip}));
    }
    // Map one host port to two container ports, with two spellings of the address.
    all.extend(
        ["", "0.0.0.0"].map(|ip| json!({"hostPort": 8080, "containerPort": 81, "protocol": "tcp", "hostIP": ip})),
    );
    all
}

/// `iptables-save` and `ip6tables-save` print the same lines in the same order after either's ADD, and after its DEL.
#[test]
fn what_iptables_shows_is_the_references() {
    testns::needs!(has_iptables());
    for own in [
        json!({}),
        json!({"snat": false}),
        json!({"markMasqBit": 7}),
        json!({"conditionsV4": ["!", "-s", "192.0.2.0/24", "-i", "eth+"], "conditionsV6": ["-s", "2001:db8::/32"]}),
    ] {
        let (added, left) = same(|node| {
            let pod = node.container_named("c1");
            let mapped = map(node, config(&many(), own.clone()), &pod, made_up("eth0", &BOTH));
            let added = saved(node);
            mapped.del().ok();
            (added, saved(node))
        });
        assert!(added.contains("CNI-DN-") && !left.contains("CNI-DN-"), "{added}{left}");
    }
}

/// A comment has room for 255 bytes. GC finds a container by what there is of the network's name.
#[test]
fn comments_of_long_names_are_the_references() {
    testns::needs!(has_iptables());
    let (network, id) = ("n".repeat(200), "c".repeat(200));
    let added = same(|node| {
        let pod = node.container_named(&id);
        let own = json!({"name": network, "cniVersion": "1.0.0"});
        map(node, config(&many(), own), &pod, made_up("eth0", &BOTH));
        saved(node)
    });
    assert!(added.contains(&format!("{}..\"", "c".repeat(34))) && !added.contains(&"c".repeat(35)), "{added}");
    let node = node();
    let own = json!({"name": network, "cniVersion": "1.1.0", "cni.dev/valid-attachments": []});
    let added =
        map(&node, config(&many(), json!({"name": network})), &node.container_named(&id), made_up("eth0", &BOTH));
    added.check().ok();
    node.call(Verb::Gc, config(&[], own), testns::Attachment::none()).ok();
    assert_eq!(forwarding(&node), [""; 0]);
}

/// The reference of Debian 12 does not know the key.
#[test]
fn masq_all_marks_every_source() {
    testns::needs!(has_iptables());
    let node = node();
    let all = [mapping(8080, 80, "tcp")];
    let mapped = map(&node, config(&all, json!({"masqAll": true})), &node.container(), made_up("eth0", &BOTH));
    let marks: Vec<String> = forwarding(&node).into_iter().filter(|line| line.contains("SETMARK")).collect();
    assert_eq!(marks.len(), 2, "{marks:?}");
    assert!(marks.iter().all(|mark| !mark.contains(" -s ")), "{marks:?}");
    mapped.check().ok();
}

/// A program reads a table under the lock of all that change one. One read shows that the program is there, too, and ADD reads
/// once more before it changes the table.
#[test]
fn a_programs_table_is_read_no_more_than_add_needs() {
    testns::needs!(has_iptables());
    let node = node();
    let folder = node.work_dir().join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let counting = "#!/bin/sh\necho >>${0%/*}/calls\nPATH=/usr/sbin:/sbin:/usr/bin:/bin exec iptables-save \"$@\"\n";
    testns::write_executable(folder.join("iptables-save"), counting).unwrap();
    let path = format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", folder.display());
    let own = json!({"conditionsV4": ["-m", "ttl", "--ttl-gt", "3"], "prevResult": made_up("eth0", &["10.1.0.2/24"])});
    let config = config(&[mapping(8080, 80, "tcp")], own);
    Call::new(Verb::Add, &config, &node.container()).variable("PATH", &path).run(&node).ok();
    assert_eq!(std::fs::read_to_string(folder.join("calls")).unwrap().lines().count(), 1);
}

/// Nothing is left, also where the words of the other family can be used.
#[test]
fn words_that_iptables_refuses_are_an_error_of_the_config() {
    testns::needs!(has_iptables());
    let all = [mapping(8080, 80, "tcp")];
    for (key, words) in [
        ("conditionsV4", &["-m", "nonsense"][..]),
        ("conditionsV4", &["-m", "ttl", "--ttl-gt", "3", "!"]),
        ("conditionsV4", &["-s", "fd00::/8"]),
        ("conditionsV4", &["-j", "ACCEPT"]),
        ("conditionsV6", &["-s", "192.0.2.1"]),
        ("conditionsV6", &["-m", "hl", "--hl-gt", "many"]),
    ] {
        let node = node();
        let pod = node.container_named("c1");
        let own = json!({key: words, "prevResult": made_up("eth0", &BOTH)});
        let error = node.call(Verb::Add, config(&all, own), &pod).fails_with(7);
        let start = format!("cannot use network config: key {key} = {:?}: iptables refuses it: ", words.join(" "));
        assert!(error.msg.starts_with(&start), "{error:?}");
        assert_eq!(forwarding(&node), [""; 0], "{words:?}");
    }
}

/// iptables clears the bits behind a prefix, and writes no condition that always holds.
#[test]
fn conditions_are_compared_as_iptables_reads_them() {
    testns::needs!(has_iptables());
    let all = [mapping(8080, 80, "tcp")];
    for [v4, v6] in [
        [&["-s", "10.1.2.3/16"][..], &["-s", "fd00::1/8"]],
        [&["-d", "192.168.0.1/16"], &["!", "-d", "fd00::1/63"]],
        [&["-s", "10.0.0.1/255.255.0.0"], &["-d", "2001:db8::1"]],
        [&["-s", "0.0.0.0/0"], &["-s", "::/0"]],
        [&["-d", "10.0.0.1/0", "-i", "eth+"], &["-d", "::1/0", "-i", "eth+"]],
        [&["-i", "+"], &["-s", "fd00::/8", "-i", "+"]],
    ] {
        let own = json!({"conditionsV4": v4, "conditionsV6": v6});
        let check = |node: &Node, checks: bool| {
            let pod = node.container_named("c1");
            let mapped = map(node, config(&all, own.clone()), &pod, made_up("eth0", &BOTH));
            let added = saved(node);
            if checks {
                node.install(&Subject::ours());
                mapped.check().ok();
                map(node, config(&all, own.clone()), &pod, made_up("eth0", &BOTH));
                assert_eq!(saved(node), added, "ADD again: {own}");
            }
            added
        };
        check(&node(), true);
        same(|node| check(node, false));
        if let Some(reference) = reference_or_skip() {
            check(&Node::with(&reference), true);
        }
    }
}

#[test]
fn either_side_goes_on_with_what_the_other_made() {
    let Some(reference) = reference_or_skip().filter(|_| has_iptables()) else { return };
    let sides = [Subject::ours(), reference];
    for (first, second) in [(0, 1), (1, 0)] {
        let node = Node::with(&sides[first]);
        let pod = node.container_named("c1");
        let mapped = map(&node, config(&many(), json!({})), &pod, made_up("eth0", &BOTH));
        node.install(&sides[second]);
        // The reference's CHECK looks for rules of IPv4 in IPv6, too, and so always fails.
        if second == 0 {
            mapped.check().ok();
        }
        // Ours needs no list of ports.
        let mut call = mapped.call(Verb::Del);
        if second == 0 {
            call = call.with_config(|config| drop(config.as_object_mut().unwrap().remove("runtimeConfig")));
        }
        call.run(&node).ok();
        assert_eq!(forwarding(&node), [""; 0]);
        call.run(&node).ok();
    }
}

/// The reference's name of the chain does not depend on the interface, and its DEL takes the rules of both away.
#[test]
fn two_attachments_of_a_container_keep_their_own_ports() {
    testns::needs!(has_iptables());
    let node = node();
    let pod = node.container_named("c1");
    let ports = |port| config(&[mapping(port, 80, "tcp")], json!({}));
    let one = map(&node, ports(8080), &pod, made_up("eth0", &["10.1.0.2/24"]));
    let alone = forwarding(&node);
    let two = map(&node, ports(8081), pod.attachment_as("net1"), made_up("net1", &["10.1.0.3/24"]));
    for mapped in [&one, &two] {
        mapped.check().ok();
    }
    // Without a result, and without a namespace.
    let bare = |mapped: &Attached| {
        let call = mapped.call(Verb::Del).without("CNI_NETNS");
        call.with_config(|config| config.as_object_mut().unwrap().retain(|key, _| key != "prevResult"))
    };
    bare(&two).run(&node).ok();
    assert_eq!(forwarding(&node), alone);
    let two = map(&node, ports(8081), pod.attachment_as("net1"), made_up("net1", &["10.1.0.3/24"]));
    if let Some(reference) = reference_or_skip() {
        node.install(&reference);
    }
    one.del().ok();
    node.install(&Subject::ours());
    two.check().ok();
    assert!(forwarding(&node).iter().all(|line| !line.contains("8080")), "{:?}", forwarding(&node));
    bare(&two).run(&node).ok();
    assert_eq!(forwarding(&node), [""; 0]);
}

/// ADD again changes nothing; with other ports it replaces the old ones.
#[test]
fn add_again_has_the_ports_of_the_last_one() {
    testns::needs!(has_iptables());
    let node = node();
    let pod = node.container_named("c1");
    let ports = |port| config(&[mapping(port, 80, "tcp"), mapping(53, 53, "udp")], json!({}));
    map(&node, ports(8080), &pod, made_up("eth0", &BOTH));
    let first = saved(&node);
    map(&node, ports(8080), &pod, made_up("eth0", &BOTH));
    assert_eq!(saved(&node), first);
    let again = map(&node, ports(8081), &pod, made_up("eth0", &BOTH));
    assert_eq!(saved(&node), first.replace("8080", "8081"));
    again.check().ok();
}

/// Each backend, and two entries of a list that differ.
fn pairs() -> Vec<[Value; 2]> {
    let iptables = |one: Value, other: Value| [one, other].map(|own| with(json!({"backend": "iptables"}), own));
    let nftables = |one: Value, other: Value| [one, other].map(|own| with(json!({"backend": "nftables"}), own));
    vec![
        iptables(json!({"conditionsV4": ["-i", "up0"]}), json!({"conditionsV4": ["-i", "up1"]})),
        iptables(json!({"conditionsV4": ["-i", "up0"]}), json!({"conditionsV4": ["-m", "ttl", "!", "--ttl-eq", "3"]})),
        iptables(json!({"snat": true}), json!({"snat": false})),
        iptables(json!({"masqAll": true}), json!({"conditionsV6": ["-i", "up0"]})),
        nftables(json!({"conditionsV4": ["iifname", "up0"]}), json!({"conditionsV4": ["ip daddr 192.0.2.1"]})),
        nftables(json!({"snat": true}), json!({"snat": false})),
    ]
}

/// Whichever comes first, and whichever is added again. What the reference's ADDs make is in force with ours.
#[test]
fn each_entry_of_a_list_is_in_force_until_del() {
    testns::needs!(has_iptables());
    let rules = |node: &Node| {
        let native = node.host().enter(|| Command::new("nft").args(["list", "table", "ip", "cni_hostport"]).output());
        let native = native.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let mut lines = forwarding(node);
        lines.extend(native.lines().filter(|line| line.contains("c1")).map(str::to_owned));
        lines
    };
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    for [one, other] in pairs() {
        let mut first: Option<Vec<String>> = None;
        for pair in [[&one, &other], [&other, &one]] {
            let node = node();
            let pod = node.container_named("c1");
            let all = [mapping(8080, 80, "tcp"), mapping(53, 53, "udp")];
            let entry = |own: &Value| map(&node, config(&all, own.clone()), &pod, made_up("eth0", &BOTH));
            let entries = pair.map(entry);
            entries.iter().for_each(|entry| drop(entry.check().ok()));
            let added = rules(&node);
            pair.map(entry).iter().for_each(|entry| drop(entry.check().ok()));
            assert_eq!(rules(&node), added, "{pair:?}, added again");
            let added = sorted(added);
            assert_eq!(*first.get_or_insert_with(|| added.clone()), added, "{pair:?}, in the other order");
            entries.into_iter().rev().for_each(|entry| drop(entry.del().ok()));
            assert_eq!(rules(&node), [""; 0], "{pair:?}");
        }
        if one["backend"] == "iptables" {
            let both = |node: &Node| {
                let pod = node.container_named("c1");
                let all = [mapping(8080, 80, "tcp"), mapping(53, 53, "udp")];
                for own in [&one, &other] {
                    map(node, config(&all, own.clone()), &pod, made_up("eth0", &BOTH));
                }
                sorted(forwarding(node))
            };
            same(both);
        }
    }
}

/// 1,000 ports of one container; a rule that is missing is named.
#[test]
fn a_thousand_ports_are_made_compared_and_removed() {
    testns::needs!(has_iptables());
    let node = node();
    let pod = node.container_named("c1");
    let all: Vec<Value> = (0..1000).map(|number| mapping(10_000 + number, 80, "tcp")).collect();
    let mapped = map(&node, config(&all, json!({})), &pod, made_up("eth0", &BOTH));
    // Three rules each, 67 that lead to them; two each for IPv6. And the two chains.
    assert_eq!(forwarding(&node).len(), 3000 + 67 + 2000 + 67 + 2);
    mapped.check().ok();
    let gone = "iptables -t nat -D $(iptables-save -t nat | grep -- '--dport 10500 -j DNAT' | sed 's/^-A //')";
    sh(node.host(), gone);
    let error = mapped.check().fails_with(107);
    assert!(error.msg.contains("--dport 10500 -j DNAT"), "{error:?}");
    mapped.del().ok();
    assert_eq!(forwarding(&node), [""; 0]);
}

/// Since Kubernetes 1.27 kubelet does not make the chain, and kube-proxy makes it in one of its modes.
#[test]
fn without_the_external_chain_portmaps_own_marks_and_a_warning_names_both() {
    testns::needs!(has_iptables());
    let node = node();
    let pod = node.container_named("c1");
    let own = json!({"externalSetMarkChain": "KUBE-MARK-MASQ"});
    let config = super::with(config(&[mapping(8080, 80, "tcp")], own), json!({"prevResult": made_up("eth0", &BOTH)}));
    let reply = node.call(Verb::Add, &config, &pod);
    reply.ok();
    let warning = &reply.output.stderr;
    assert!(warning.contains("KUBE-MARK-MASQ") && warning.contains("externalSetMarkChain"), "{warning}");
    let marks = |chain: &str| forwarding(&node).iter().filter(|rule| rule.ends_with(&format!("-j {chain}"))).count();
    assert_eq!((marks("CNI-HOSTPORT-SETMARK"), marks("KUBE-MARK-MASQ")), (3, 0));
    node.call(Verb::Check, &config, &pod).ok();
    sh(node.host(), "iptables -t nat -N KUBE-MARK-MASQ; ip6tables -t nat -N KUBE-MARK-MASQ");
    node.call(Verb::Check, &config, &pod).ok();
    node.call(Verb::Add, &config, &pod).ok();
    // Another entry of the list may have portmap's own.
    assert_eq!((marks("CNI-HOSTPORT-SETMARK"), marks("KUBE-MARK-MASQ")), (3, 3));
    node.call(Verb::Check, &config, &pod).ok();
}

/// The plugin in front has made no interface in the container.
#[test]
fn a_result_of_the_nodes_side_alone_forwards_nothing_and_the_log_says_so() {
    testns::needs!(has_iptables());
    let (node, pod) = node_with_pod();
    let previous = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "br0"}],
        "ips": [{"interface": 0, "address": "10.1.0.2/24"}]});
    let own = with(config(&[mapping(8080, 80, "tcp")], json!({})), json!({"prevResult": previous}));
    let reply = node.call(Verb::Add, own, &pod);
    reply.ok();
    assert!(reply.output.stderr.contains("no port is forwarded"), "{reply}");
    assert_eq!(forwarding(&node), [""; 0]);
}
