//! Rules of administrators beside ours, in either variant of iptables: line by line what they are beside the reference's.

use crate::legacy_iptables::{choose, has_legacy, saved};
use crate::prelude::*;
use conformance::shell::sh;

/// Comments with everything that a shell, iptables-save or a parser of its lines could stumble over. A comment has the name of
/// the chain that ADD makes.
const BEFORE: &str = r#"*nat
:ADMIN - [0:0]
-A POSTROUTING -s 10.7.0.0/24 -d 198.51.100.0/24 -m comment --comment "VPN \"main\", C:\\etc, it\'s -j CNI-X 5%, Zürich ☃" -j ACCEPT
-A POSTROUTING -s 192.0.2.9/32 -m comment --comment "name: \"net\" id: \"c1\"" -j RETURN
-A PREROUTING -m comment --comment "-j CNI-HOSTPORT-DNAT" -j ADMIN
-A POSTROUTING -s 192.0.2.9/32 -m comment --comment "see -j CNI-623e1c388032b20529218ecc here"
-A OUTPUT -m comment --comment "-j" -j ADMIN
-A ADMIN -m comment --comment "\\" -j RETURN
COMMIT
*filter
-A FORWARD -s 192.0.2.9/32 -m comment --comment "CNI firewall plugin rules" -j RETURN
-A FORWARD -m comment --comment "later: -j CNI-FORWARD " -j RETURN
COMMIT
"#;

/// In chains of ours, after ADD.
const BETWEEN: &str = r#"*nat
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"net\" id: \"c1\" -j CNI-DN-1" -m tcp --dport 99 -j ADMIN
COMMIT
*filter
-A CNI-FORWARD -s 10.7.0.9/32 -m comment --comment "the \"old\" one\\'s" -j ACCEPT
-I CNI-ADMIN 1 -s 10.7.0.2/32 -m comment --comment "10.7.0.2 -j ACCEPT" -j RETURN
COMMIT
"#;

fn load(node: &Node, lines: &str) {
    sh(node.host(), &format!("iptables-restore --noflush <<'END'\n{lines}END"));
}

/// The rules of administrators: those that say nothing of ours, and those with the words that [`BETWEEN`] has.
fn foreign(lines: &[String]) -> Vec<&str> {
    let words = [
        "192.0.2.9",
        "198.51.100",
        "ADMIN ",
        "dport 99",
        "\" -j ADMIN",
        "-j -j ADMIN",
        "later:",
        "10.7.0.9",
        "10.7.0.2 -j",
    ];
    let is_foreign = |line: &&String| line.starts_with("-A ") && words.iter().any(|word| line.contains(word));
    lines.iter().filter(is_foreign).map(String::as_str).collect()
}

/// The plugins that have rules; each gets the result of the one before.
fn plugins() -> [Value; 3] {
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]});
    let base = json!({"cniVersion": "1.0.0", "name": "net"});
    [
        bridge(json!({"isDefaultGateway": true, "ipMasq": true, "ipam": dual()})),
        with(base.clone(), json!({"type": "portmap", "runtimeConfig": ports})),
        with(base, json!({"type": "firewall", "backend": "iptables"})),
    ]
}

/// Returns the rules that are saved after ADD and after DEL of all three plugins.
fn course(node: &Node, variant: &str) -> [Vec<String>; 2] {
    load(node, BEFORE);
    let pod = node.container_named("c1");
    let [first, others @ ..] = plugins();
    let made = Attached::add(node, &first, &pod);
    let others = others.map(|config| Attached::add(node, &with(config, json!({"prevResult": made.result})), &pod));
    load(node, BETWEEN);
    let added = saved(node, variant);
    for attached in others.iter().rev().chain([&made]) {
        attached.call(Verb::Del).run(node).ok();
    }
    [added, saved(node, variant)]
}

fn stay(variant: &str) {
    let [added, left] = same(|node| {
        choose(node, variant);
        course(node, variant)
    });
    assert!(added.iter().any(|line| line.contains("-A CNI-DN-")), "{added:#?}");
    assert!(!left.iter().any(|line| line.contains("-A CNI-DN-") || line.contains("10.7.0.2/32 -j")), "{left:#?}");
    assert_eq!(foreign(&added), foreign(&left));
    assert_eq!(foreign(&left).len(), 11, "{left:#?}");
}

#[test]
fn rules_of_administrators_stay_whatever_their_comments_say() {
    if has_legacy() {
        stay("nft");
    }
}

/// The rules of masquerade, portmap and firewall; the lines are the reference's.
#[test]
fn legacy_rules_of_administrators_stay_whatever_their_comments_say() {
    if has_legacy() {
        stay("legacy");
    }
}

/// The node has rules in both variants: ours go where its `iptables` is, and DEL finds those in the other one.
#[test]
fn with_rules_in_nf_tables_and_legacy_each_plugin_uses_the_nodes_own() {
    testns::needs!(has_legacy());
    for (one, other) in [("legacy", "nft"), ("nft", "legacy")] {
        let node = node();
        let count = |variant: &str| saved(&node, variant).iter().filter(|line| line.contains("CNI-")).count();
        for variant in [other, one] {
            choose(&node, variant);
            load(&node, BEFORE);
        }
        let before = [one, other].map(count);
        let pod = node.container_named("c1");
        let [first, others @ ..] = plugins();
        let made = Attached::add(&node, &first, &pod);
        let all = others.map(|config| Attached::add(&node, &with(config, json!({"prevResult": made.result})), &pod));
        assert!(count(one) > before[0] + 10 && count(other) == before[1], "{one}: {:#?}", saved(&node, other));
        all.iter().for_each(|attached| drop(attached.check().ok()));
        choose(&node, other);
        // After the change of variant CHECK of the masquerade looks in both.
        made.check().ok();
        for attached in all.iter().rev().chain([&made]) {
            attached.call(Verb::Del).run(&node).ok();
        }
        let left: Vec<_> = saved(&node, one).into_iter().filter(|line| line.contains("-A CNI-DN-")).collect();
        assert_eq!(left, [""; 0], "{one}");
        assert!(!saved(&node, one).iter().any(|line| line.contains("-s 10.7.0.2/32 -j") || line.contains("-A CNI-4")));
        assert_eq!(foreign(&saved(&node, one)).len(), 8, "{one}: {:#?}", saved(&node, one));
    }
}

/// The kernel lets no rule jump to a base chain, and says only that this is not supported.
#[test]
fn a_base_chain_with_the_name_of_one_of_ours_is_named() {
    testns::needs!(conformance::iptables::has_iptables());
    let [_, portmap, firewall] = plugins();
    for (config, table, chain) in [
        (&portmap, "nat", "CNI-HOSTPORT-DNAT"),
        (&portmap, "nat", "CNI-HOSTPORT-SETMARK"),
        (&firewall, "filter", "CNI-FORWARD"),
        (&firewall, "filter", "CNI-ADMIN"),
    ] {
        let node = node();
        let hook = format!("nft 'table ip {table} {{ chain {chain} {{ type filter hook forward priority 0; }}; }}'");
        sh(node.host(), &hook);
        let config =
            with(config.clone(), json!({"prevResult": conformance::portmap::made_up("eth0", &["10.1.0.2/24"])}));
        let error = node.call(Verb::Add, config, &node.container()).fails();
        let named = format!(
            "cannot use nft chain ip {table} {chain}: it is a filter chain on hook forward, and no rule can jump to a chain \
             that is on a hook: delete or rename it"
        );
        assert!(error.msg.contains(&named), "{error:?}");
    }
}
