//! A node whose `iptables` is the legacy variant: our rules are where its own tools show them.

use crate::interop::both_ways;
use crate::prelude::*;
use conformance::firewall;
use conformance::shell::sh;
use nix::errno::Errno;
use std::path::Path;
use testns::trace::Syscall;

/// Returns whether this machine has the legacy variant; prints that the test is skipped if not.
pub(crate) fn has_legacy() -> bool {
    if !Path::new("/usr/sbin/iptables-legacy").exists() || !Path::new("/etc/alternatives").is_dir() {
        skip("no legacy variant of iptables among the node's alternatives");
        return false;
    }
    true
}

/// Selects a variant as `update-alternatives --set iptables /usr/sbin/iptables-VARIANT` does, on this node only.
pub(crate) fn choose(node: &Node, variant: &str) {
    let names = ["", "-save", "-restore"].map(|kind| {
        format!("for f in iptables ip6tables; do ln -s /usr/sbin/$f-{variant}{kind} /etc/alternatives/$f{kind}; done")
    });
    sh(node.host(), &format!("mount -t tmpfs none /etc/alternatives; {}", names.join("; ")));
}

/// The rules of all tables of a variant, without times and counters.
pub(crate) fn saved(node: &Node, variant: &str) -> Vec<String> {
    let text =
        sh(node.host(), &format!("/usr/sbin/iptables-{variant}-save 2>&1; /usr/sbin/ip6tables-{variant}-save 2>&1"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned()).collect()
}

fn rules(node: &Node, variant: &str) -> Vec<String> {
    let mut lines = saved(node, variant);
    lines.retain(|line| line.starts_with("-A ") || line.starts_with(":CNI-"));
    lines
}

fn config() -> Value {
    bridge(json!({"isDefaultGateway": true, "ipMasq": true, "ipam": dual()}))
}

/// An administrator's rule in another table.
fn use_legacy(node: &Node) {
    sh(node.host(), "/usr/sbin/iptables-legacy -A FORWARD -s 192.0.2.9 -j RETURN");
}

/// With foreign rules and without any: the rules in the output of the legacy variant's save programs after ADD of both
/// families. The reference also loads table filter, which stays empty.
#[test]
fn in_the_legacy_variant_rules_are_line_by_line_the_references() {
    testns::needs!(has_legacy());
    for has_rules in [false, true] {
        let lines = same(|node| {
            choose(node, "legacy");
            if has_rules {
                use_legacy(node);
            }
            Attached::add(node, &config(), &node.container());
            Attached::add(node, &config(), &node.container());
            assert_eq!(rules(node, "nft"), [""; 0]);
            rules(node, "legacy")
        });
        let jumps = lines.iter().filter(|line| line.starts_with("-A POSTROUTING")).count();
        assert_eq!(jumps, 4, "{lines:#?}");
    }
}

/// The `type` of the network has changed since ADD, and no result shows a pair.
#[test]
fn del_by_another_type_removes_legacy_rules() {
    testns::needs!(has_legacy());
    let node = node();
    choose(&node, "legacy");
    use_legacy(&node);
    let before = rules(&node, "legacy");
    let pod = node.container();
    Attached::add(&node, &config(), &pod);
    assert_ne!(rules(&node, "legacy"), before);
    Call::new(Verb::Del, with(config(), json!({"type": "macvlan"})), &pod).run(&node).ok();
    assert_eq!(rules(&node, "legacy"), before);
}

/// ADD by one, CHECK and DEL by the other, with foreign rules on the node and without.
#[test]
fn legacy_rules_of_one_are_checked_and_deleted_by_the_other() {
    testns::needs!(has_legacy());
    for has_rules in [false, true] {
        both_ways(|node, _, second| {
            choose(node, "legacy");
            if has_rules {
                use_legacy(node);
            }
            let before = rules(node, "legacy");
            let pod = node.container();
            let attached = Attached::add(node, &config(), &pod);
            assert!(rules(node, "legacy").len() > before.len());
            node.install(second);
            attached.check_and_del();
            assert_eq!(rules(node, "legacy"), before);
        });
    }
}

/// In the legacy variant rules have no notes: an ADD that fails at the rules of IPv6 leaves none of IPv4.
#[test]
fn an_add_of_firewall_that_fails_leaves_nothing_in_the_legacy_variant() {
    testns::needs!(has_legacy());
    let node = Node::with(&ours());
    choose(&node, "legacy");
    let [one, two] = [(); 2].map(|()| node.container());
    let of = |pod: &Container, n: u8| {
        let previous = firewall::made_up("cni0", &[&format!("10.1.0.{n}/24"), &format!("fd01::{n}/64")]);
        Call::new(Verb::Add, with(firewall::config(json!({})), json!({"prevResult": previous})), pod)
    };
    of(&one, 1).run(&node).ok();
    let before = saved(&node, "legacy");
    // The second table that is replaced is that of IPv6.
    let replaces = |call: &Syscall| {
        let is_ipv6 = call.arguments[1] == nix::libc::SOL_IPV6 as u64;
        (call.name() == "setsockopt" && is_ipv6).then_some(Errno::ENOMEM)
    };
    let traced = of(&two, 2).fail_each(&node, replaces);
    traced.reply.fails();
    assert_eq!(saved(&node, "legacy"), before, "{}", traced.reply);
}
