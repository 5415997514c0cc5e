//! The rules, as iptables shows them, and whose they are.

use super::{accepting, add, config, has_iptables, isolating, made_up, on, saved};
use crate::prelude::*;
use testns::Subject;

const BOTH: [&str; 2] = ["10.1.0.2/24", "fd01::2/64"];

/// `iptables-save` and `ip6tables-save` print the same lines in the same order after either's ADD, and after its DEL. The
/// reference of Debian 12 has one policy, newer ones have two and so another comment.
#[test]
fn what_iptables_shows_is_the_references() {
    testns::needs!(has_iptables());
    for own in [json!({}), json!({"iptablesAdminChainName": "MINE"}), json!({"ingressPolicy": "same-bridge"})] {
        let (added, _) = same(|node| {
            let one = add(node, config(own.clone()), &node.container_named("c1"), made_up("cni0", &BOTH));
            add(node, config(own.clone()), &node.container_named("c2"), made_up("cni0", &["10.1.0.3/24"]));
            let added = saved(node).replace("same-bridge|isolated", "same-bridge");
            one.del().ok();
            (added, accepting(node))
        });
        assert!(added.contains("-A CNI-FORWARD -s fd01::2/128 -j ACCEPT"), "{added}");
    }
}

#[test]
fn isolated_containers_get_nothing_from_their_own_bridge() {
    testns::needs!(has_iptables());
    let node = node();
    add(&node, config(json!({"ingressPolicy": "isolated"})), &node.container(), made_up("cni0", &BOTH[..1]));
    let rules = isolating(&node, "cni0");
    let words =
        |line: &String| line.replace(" -m comment --comment \"CNI firewall plugin rules", "").replace(")\"", ")");
    let expected = [
        "-A CNI-ISOLATION-STAGE-1 -i cni0 -o cni0 (ingressPolicy: isolated) -j DROP",
        "-A CNI-ISOLATION-STAGE-1 -i cni0 ! -o cni0 (ingressPolicy: isolated) -j CNI-ISOLATION-STAGE-2",
        "-A CNI-ISOLATION-STAGE-2 -o cni0 (ingressPolicy: same-bridge|isolated) -j DROP",
    ];
    assert_eq!(rules.iter().map(words).collect::<Vec<_>>(), expected);
}

/// A container ends without DEL, its address is given to another one, and then its DEL comes.
#[test]
fn an_address_that_changed_hands_keeps_its_new_owners_rules() {
    testns::needs!(has_iptables());
    let node = node();
    let (one, two) = (node.container_named("c1"), node.container_named("c2"));
    let old = add(&node, config(json!({})), &one, made_up("cni0", &BOTH));
    let new = add(&node, config(json!({})), &two, made_up("cni0", &BOTH));
    old.del().ok();
    new.check().ok();
    assert_eq!(accepting(&node).len(), 4);
    new.del().ok();
    assert_eq!(accepting(&node), [""; 0]);
}

/// host-local has given the address to the next container, whose rules, made by the reference, name no attachment.
#[test]
fn a_late_del_leaves_the_rules_of_the_next_owner_of_the_address() {
    testns::needs!(has_iptables());
    let Some(reference) = reference_or_skip() else { return };
    for network in ["net", "other"] {
        let node = Node::with(&reference);
        let (ended, pod) = (node.container(), node.container());
        let late = with(config(json!({})), json!({"prevResult": made_up("cni0", &BOTH)}));
        let next = add(&node, with(config(json!({})), json!({"name": network})), &pod, made_up("cni0", &BOTH));
        let rules = accepting(&node);
        let folder = std::path::Path::new("/var/lib/cni/networks").join(network);
        std::fs::create_dir_all(&folder).unwrap();
        for address in ["10.1.0.2", "fd01::2"] {
            std::fs::write(folder.join(address), format!("{}\r\neth0", pod.id())).unwrap();
        }
        node.install(&Subject::ours());
        node.call(Verb::Del, &late, &ended).ok();
        assert_eq!(accepting(&node), rules, "{network}");
        next.del().ok();
        assert_eq!(accepting(&node), [""; 0]);
    }
}

/// DEL is one `iptables -D` for each rule, whichever side's ADD made it: an equal one that was added later stays.
#[test]
fn del_takes_one_of_equal_rules() {
    testns::needs!(has_iptables());
    let sides: Vec<Subject> = [Some(Subject::ours()), reference_or_skip()].into_iter().flatten().collect();
    for (first, second) in sides.iter().flat_map(|first| sides.iter().map(move |second| (first, second))) {
        let node = Node::with(first);
        let added = add(&node, config(json!({})), &node.container(), made_up("cni0", &BOTH[..1]));
        for _ in 0..2 {
            on(&node, "iptables", &["-A", "CNI-FORWARD", "-s", "10.1.0.2/32", "-j", "ACCEPT"]);
        }
        node.install(second);
        added.del().ok();
        assert_eq!(accepting(&node), ["-A CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT"; 2]);
    }
}

/// ADD again has the addresses of the last one, and changes nothing where they are the same.
#[test]
fn add_again_replaces_the_addresses() {
    testns::needs!(has_iptables());
    let (node, pod) = node_with_pod();
    add(&node, config(json!({"ingressPolicy": "same-bridge"})), &pod, made_up("cni0", &BOTH));
    let first = saved(&node);
    add(&node, config(json!({"ingressPolicy": "same-bridge"})), &pod, made_up("cni0", &BOTH));
    assert_eq!(saved(&node), first);
    let again = add(&node, config(json!({})), &pod, made_up("cni0", &["10.1.0.7/24", "fd01::7/64"]));
    assert_eq!(accepting(&node).len(), 4);
    assert!(accepting(&node).iter().all(|line| line.contains("10.1.0.7") || line.contains("fd01::7")));
    again.check().ok();
}

/// The reference leaves them for ever.
#[test]
fn isolation_ends_with_the_last_container_of_the_bridge() {
    testns::needs!(has_iptables());
    let node = node();
    let policy = |policy: &str| config(json!({"ingressPolicy": policy}));
    let result = |bridge: &str, last: u8| made_up(bridge, &[&format!("10.1.0.{last}/24")]);
    let one = add(&node, policy("isolated"), &node.container(), result("cni0", 2));
    let two = add(&node, policy("same-bridge"), &node.container(), result("cni0", 3));
    let other = add(&node, policy("same-bridge"), &node.container(), result("cni1", 4));
    let own_bridge = || isolating(&node, "cni0").iter().any(|line| line.contains("-i cni0 -o cni0"));
    assert!(isolating(&node, "cni0").len() == 3 && own_bridge());
    one.del().ok();
    assert!(isolating(&node, "cni0").len() == 2 && !own_bridge(), "no isolated container is left");
    two.check_and_del();
    assert_eq!(isolating(&node, "cni0"), [""; 0]);
    assert_eq!(isolating(&node, "cni1").len(), 2);
    other.check().ok();
}

/// Two entries of one list cannot be told from an ADD again with another configuration.
#[test]
fn each_entry_of_a_list_has_its_policy_until_del() {
    testns::needs!(has_iptables());
    for (policies, rules) in [
        (["isolated", "open"], 3),
        (["open", "isolated"], 3),
        (["same-bridge", "open"], 2),
        (["open", "same-bridge"], 2),
        (["same-bridge", "isolated"], 3),
        (["isolated", "same-bridge"], 3),
    ] {
        let (node, result) = (node(), made_up("cni0", &BOTH[..1]));
        let pod = node.container();
        let entry = |policy: &str| add(&node, config(json!({"ingressPolicy": policy})), &pod, result.clone());
        let entries = policies.map(entry);
        assert_eq!(isolating(&node, "cni0").len(), rules, "{policies:?}");
        entries.iter().for_each(|entry| drop(entry.check().ok()));
        let added = saved(&node);
        drop(policies.map(entry));
        assert_eq!(saved(&node), added, "{policies:?}, added again");
        entries.into_iter().rev().for_each(|entry| drop(entry.del().ok()));
        assert_eq!((isolating(&node, "cni0"), accepting(&node)), Default::default(), "{policies:?}");
    }
}

/// Else the rules that let packets pass come first, and no policy counts.
#[test]
fn policies_come_first_again_after_an_administrator_has_taken_a_jump_out() {
    testns::needs!(has_iptables());
    let node = node();
    let policy = config(json!({"ingressPolicy": "same-bridge"}));
    let result = |last: u8| made_up("cni0", &[&format!("10.1.0.{last}/24")]);
    let jumps = || {
        let text = on(&node, "iptables", &["-S", "FORWARD"]);
        let chains = text.lines().filter_map(|line| line.split(" -j ").nth(1));
        chains.map(str::to_owned).collect::<Vec<_>>()
    };
    let jump = ["FORWARD", "-m", "comment", "--comment", "CNI firewall plugin rules", "-j", "CNI-FORWARD"];
    let in_order = ["CNI-ISOLATION-STAGE-1", "CNI-FORWARD"];
    let one = add(&node, policy.clone(), &node.container(), result(2));
    assert_eq!(jumps(), in_order);
    on(&node, "iptables", &[&["-D"], &jump[..]].concat());
    let open = add(&node, config(json!({})), &node.container(), result(3));
    assert_eq!(jumps(), in_order);
    one.check().ok();
    // As the reference's ADD leaves it.
    on(&node, "iptables", &[&["-D"], &jump[..]].concat());
    on(&node, "iptables", &[&["-I"], &jump[..]].concat());
    let error = one.check().fails_with(107);
    assert!(error.msg.contains("before CNI-ISOLATION-STAGE-1"), "{error:?}");
    let status = with(policy.clone(), json!({"cniVersion": "1.1.0"}));
    node.call(Verb::Status, status, Attachment::none()).fails_with(50);
    open.check().ok();
    add(&node, policy, &node.container(), result(4));
    assert_eq!(jumps(), in_order);
    one.check().ok();
}

/// Nothing is made for a policy that does not exist, or a network without a bridge.
#[test]
fn a_policy_is_checked_before_any_rule() {
    let (node, pod) = node_with_pod();
    node.remember();
    let call = |own: Value, previous: Value| {
        node.call(Verb::Add, with(config(own), json!({"prevResult": previous})), &pod).fails_with(7).msg
    };
    let error = call(json!({"ingressPolicy": "closed"}), made_up("cni0", &BOTH));
    assert!(error.contains(r#"ingressPolicy = "closed""#), "{error}");
    let error = call(json!({"ingressPolicy": "isolated"}), crate::firewall::made_up("", &BOTH));
    assert!(error.contains("needs a bridge"), "{error}");
    node.assert_as_before();
}
