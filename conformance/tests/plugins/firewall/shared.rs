//! Key `"rules": "shared"`: packets pass by a mark, and containers have elements alone.

use super::packets::{attach, closed, is_kept_from, network, other_network, reaches, remote};
use super::{add, config, made_up, on, saved};
use crate::bridge::nft_for_containers;
use crate::configs::with;
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Attachment, Node, Verb};

fn shared() -> Value {
    json!({"cniVersion": "1.1.0", "rules": "shared"})
}

fn elements(node: &Node) -> Vec<String> {
    nft_for_containers(node).into_iter().filter(|line| line.contains(" accept_")).collect()
}

#[test]
fn a_mark_lets_the_containers_pass_and_nobody_else() {
    let node = node();
    if !closed(&node) {
        return;
    }
    let (remote, one, two) = (remote(&node), node.container(), node.container());
    let first = attach(&node, &network(), shared(), &one);
    let rules = || saved(&node).lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect::<Vec<_>>();
    let before = rules();
    let text = before.join("\n");
    assert!(text.contains("-m mark --mark 0x1000/0x1000 -j ACCEPT") && !text.contains("10.7.0.2"), "{text}");
    let second = attach(&node, &network(), shared(), &two);
    assert_eq!(rules(), before, "a rule was made for a container");
    assert!([&one, &two].iter().all(|pod| reaches(pod.namespace(), &remote, "192.0.2.2")));
    assert!(reaches(one.namespace(), &remote, "2001:db8::2"));
    // Another program's marks neither open the way nor are lost.
    on(&node, "iptables", &["-t", "mangle", "-A", "PREROUTING", "-j", "MARK", "--set-mark", "0x1001"]);
    assert!(is_kept_from(&remote, one.namespace(), "10.7.0.2"), "only answers come in");
    on(
        &node,
        "iptables",
        &["-t", "mangle", "-A", "POSTROUTING", "-d", "192.0.2.2", "-m", "mark", "!", "--mark", "1", "-j", "DROP"],
    );
    assert!(reaches(one.namespace(), &remote, "192.0.2.2"), "the mark is 1 again");
    on(&node, "iptables", &["-A", "CNI-ADMIN", "-s", "10.7.0.2", "-j", "DROP"]);
    assert!(is_kept_from(one.namespace(), &remote, "192.0.2.2"), "the administrator's chain comes first");
    on(&node, "iptables", &["-F", "CNI-ADMIN"]);
    [&first, &second].into_iter().for_each(|added| drop(added.check().ok()));
    first.call(Verb::Del).without("CNI_NETNS").run(&node).ok();
    first.check().fails_with(107);
    assert!(is_kept_from(one.namespace(), &remote, "192.0.2.2"));
    assert!(reaches(two.namespace(), &remote, "192.0.2.2"));
    let none = with(config(shared()), json!({"cni.dev/valid-attachments": []}));
    node.call(Verb::Gc, with(none.clone(), json!({"name": "elsewhere"})), Attachment::none()).ok();
    second.check().ok();
    node.call(Verb::Gc, none, Attachment::none()).ok();
    assert_eq!(elements(&node), [""; 0]);
    assert!(is_kept_from(two.namespace(), &remote, "192.0.2.2"));
}

#[test]
fn policies_hold_between_containers_of_both_forms() {
    testns::needs!(super::has_iptables());
    let node = node();
    let (one, two, other) = (node.container(), node.container(), node.container());
    let policy = json!({"ingressPolicy": "same-bridge"});
    let first = attach(&node, &network(), with(shared(), policy.clone()), &one);
    let second = attach(&node, &network(), policy.clone(), &two);
    attach(&node, &other_network(), with(policy, json!({"name": "other"})), &other);
    assert!(reaches(one.namespace(), two.namespace(), "10.7.0.3"));
    let is_apart = || {
        is_kept_from(other.namespace(), one.namespace(), "10.7.0.2")
            && is_kept_from(one.namespace(), other.namespace(), "10.8.0.2")
    };
    assert!(is_apart());
    first.check().ok();
    second.del().ok();
    assert!(is_apart(), "the other form's last container took the policy along");
}

/// The key may change while containers live, in either direction.
#[test]
fn check_and_del_go_by_what_the_container_has() {
    testns::needs!(super::has_iptables());
    for (at_add, later) in [(shared(), json!({"rules": null})), (json!({"cniVersion": "1.1.0"}), shared())] {
        let node = node();
        let mut added = add(&node, config(at_add), &node.container(), made_up("cni0", &["10.1.0.2/24", "fd01::2/64"]));
        added.config = with(added.config.clone(), later);
        added.check().ok();
        added.del().ok();
        added.check().fails_with(107);
        assert!(elements(&node).is_empty() && !saved(&node).contains("10.1.0.2"));
    }
}

/// A living container's address is refused to another attachment; an ADD that comes again and is refused leaves what the first one made.
#[test]
fn a_refused_add_changes_nothing() {
    let node = node();
    let (one, two) = (node.container(), node.container());
    let first = attach(&node, &network(), shared(), &one);
    let before = nft_for_containers(&node);
    let again = with(config(shared()), json!({"prevResult": first.result}));
    node.call(Verb::Add, &again, &two).fails();
    assert_eq!(nft_for_containers(&node), before);
    first.check().ok();
}
