//! Key acceptForwarded, and docker beside: forwarded connections pass a FORWARD policy of DROP.

use super::{LONG, SHORT, at, bridged, config, has_iptables, mapping, tcp};
use crate::legacy_iptables::{choose, has_legacy, saved as saved_of};
use crate::prelude::*;
use conformance::iptables::saved;
use conformance::shell::sh;
use conformance::subjects::machine_outside;

const ADDRESSES: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

fn both(node: &Node, rule: &str) {
    sh(node.host(), &format!("for tables in iptables ip6tables; do $tables {rule}; done"));
}

/// The rules that docker makes when it starts, and when it starts again.
fn docker(node: &Node) {
    sh(
        node.host(),
        "for tables in iptables ip6tables; do
            for chain in DOCKER-FORWARD DOCKER-USER; do
                $tables -N $chain 2>/dev/null || true
                $tables -D FORWARD -j $chain 2>/dev/null || true
                $tables -I FORWARD -j $chain
            done
            $tables -P FORWARD DROP
        done",
    );
}

fn accepting(node: &Node) -> usize {
    saved(node, "filter").lines().filter(|line| line.starts_with("-A CNI-HOSTPORT-ACCEPT")).count()
}

fn reached(from: &Namespace, pod: &Container, within: std::time::Duration) -> [bool; 2] {
    ADDRESSES.map(|address| tcp(from, at(address, 8080), pod.namespace(), 80, within).is_some())
}

fn ports(own: Value) -> Value {
    config(&[mapping(8080, 80, "tcp")], own)
}

#[test]
fn beside_docker_host_ports_answer_also_after_its_restart() {
    testns::needs!(has_iptables());
    let node = node();
    let remote = machine_outside(&node);
    docker(&node);
    for backend in ["iptables", "nftables"] {
        let pod = node.container();
        let mapped = bridged(&node, &ports(json!({"backend": backend})), &pod);
        assert_eq!(reached(&remote, &pod, LONG), [true; 2], "{backend}");
        docker(&node);
        assert_eq!(reached(&remote, &pod, LONG), [true; 2], "{backend}: after docker's restart");
        // Packets that were not forwarded do not pass.
        assert_eq!(tcp(&remote, at("10.7.0.2", 80), pod.namespace(), 80, SHORT), None);
        mapped.check_and_del();
        assert_eq!(accepting(&node), 0);
    }
}

#[test]
fn the_administrators_rules_come_first_and_a_repeated_add_changes_nothing() {
    testns::needs!(has_iptables());
    let node = node();
    let remote = machine_outside(&node);
    both(&node, "-P FORWARD DROP");
    both(&node, "-A FORWARD -p tcp --dport 80 -m comment --comment mine -j DROP");
    let pod = node.container();
    let mapped = bridged(&node, &ports(json!({"acceptForwarded": true})), &pod);
    assert_eq!(reached(&remote, &pod, SHORT), [false; 2]);
    both(&node, "-D FORWARD -p tcp --dport 80 -m comment --comment mine -j DROP");
    assert_eq!(reached(&remote, &pod, LONG), [true; 2]);
    let once = saved(&node, "filter");
    let rules = |text: &str| text.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect::<Vec<_>>();
    node.call(Verb::Add, &mapped.config, &pod).ok();
    assert_eq!(rules(&saved(&node, "filter")), rules(&once));
    mapped.check().ok();
    both(&node, "-F CNI-HOSTPORT-ACCEPT");
    mapped.check().fails_with(107);
}

#[test]
fn without_docker_or_with_false_there_are_no_rules_and_gc_removes_those_of_others() {
    testns::needs!(has_iptables());
    let node = node();
    both(&node, "-P FORWARD DROP");
    bridged(&node, &ports(json!({})), &node.container());
    docker(&node);
    bridged(&node, &ports(json!({"acceptForwarded": false})), &node.container());
    assert_eq!(accepting(&node), 0);
    let [stays, goes] = [(); 2].map(|()| node.container());
    let of = |port: u16| config(&[mapping(port, 80, "tcp")], json!({"cniVersion": "1.1.0", "acceptForwarded": true}));
    bridged(&node, &of(81), &stays);
    let all = accepting(&node);
    bridged(&node, &of(82), &goes);
    assert_eq!((all, accepting(&node)), (4, 8));
    let valid = json!([{"containerID": stays.id(), "ifname": "eth0"}]);
    let gc = crate::configs::with(of(81), json!({"cni.dev/valid-attachments": valid}));
    Call::new(Verb::Gc, &gc, &stays).run(&node).ok();
    assert_eq!(accepting(&node), 4);
}

/// In the legacy variant, too: the policy passes, ADD again changes nothing, one that fails leaves all in its place, DEL and GC
/// remove the rules of their attachments alone.
#[test]
fn with_legacy_iptables_host_ports_answer_and_rules_go_with_their_attachment() {
    testns::needs!(has_legacy());
    for backend in ["iptables", "nftables"] {
        let node = node();
        choose(&node, "legacy");
        let remote = machine_outside(&node);
        both(&node, "-P FORWARD DROP");
        let of = |port: u16, own: Value| {
            let base = json!({"cniVersion": "1.1.0", "backend": backend, "acceptForwarded": true});
            config(&[mapping(port, 80, "tcp")], crate::configs::with(base, own))
        };
        let rules = || {
            let mut lines = saved_of(&node, "legacy");
            let words = ["CNI-HOSTPORT-", "CNI-DN-"];
            lines.retain(|line| line.starts_with("-A") && words.iter().any(|word| line.contains(word)));
            lines
        };
        let other = node.container();
        let stays = bridged(&node, &of(8081, json!({})), &other);
        let alone = rules();
        let pod = node.container();
        let mapped = bridged(&node, &of(8080, json!({})), &pod);
        let last = node.container();
        let after = bridged(&node, &of(8082, json!({})), &last);
        assert!(tcp(&remote, at(ADDRESSES[0], 8080), pod.namespace(), 80, LONG).is_some(), "{backend}");
        mapped.check().ok();
        let once = rules();
        assert!(once.len() > alone.len() + 5, "{once:#?}");
        assert!(!saved_of(&node, "nft").iter().any(|line| line.contains("ACCEPT\" ")), "only in the legacy variant");
        node.call(Verb::Add, &mapped.config, &pod).ok();
        assert_eq!(rules(), once, "{backend}: ADD again");
        // Refused: the port is the other container's.
        let refused = of(8081, json!({"onPortInUse": "error", "prevResult": mapped.config["prevResult"]}));
        node.call(Verb::Add, &refused, &pod).fails_with(103);
        assert_eq!(rules(), once, "{backend}: a refused ADD");
        after.del().ok();
        let valid = json!({"cni.dev/valid-attachments": [{"containerID": other.id(), "ifname": "eth0"}]});
        let gc = crate::configs::with(of(1, json!({"runtimeConfig": null})), valid);
        Call::new(Verb::Gc, gc, testns::Attachment::none()).run(&node).ok();
        assert_eq!(rules(), alone, "{backend}: GC");
        stays.check_and_del();
        let left: Vec<_> = rules().into_iter().filter(|line| line.starts_with("-A CNI-HOSTPORT-ACCEPT")).collect();
        assert_eq!(left, [""; 0], "{backend}: DEL");
    }
}
