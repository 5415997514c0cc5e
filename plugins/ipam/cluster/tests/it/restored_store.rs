//! A store that was restored from a copy, and what the operator's commands make of it.

use std::fs;

use serde_json::json;

use cluster::protocol::Records;

use crate::test_cluster::{TestCluster, assert_distinct, assert_refused, copy};

fn cluster() -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 2 }))
}

/// The store's folder, copied; or put back.
fn save(cluster: &TestCluster) -> std::path::PathBuf {
    let saved = cluster.folder.path().join("saved");
    copy(&cluster.store(), &saved);
    saved
}

fn restore(cluster: &TestCluster, saved: &std::path::Path) {
    fs::remove_dir_all(cluster.store()).unwrap();
    copy(saved, &cluster.store());
}

/// Without the mark, other nodes may have claimed what the copy has as free.
#[test]
fn a_restored_store_is_refused_by_who_has_changed_it_since() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let mut given = vec![a.add("a0").unwrap(), b.add("b0").unwrap()];
    let saved = save(&cluster);
    given.extend((1..6).map(|number| a.add(&format!("a{number}")).unwrap()));
    a.upkeep();
    restore(&cluster, &saved);
    (1..9).for_each(|number| drop(b.add(&format!("b{number}")).unwrap()));
    a.later_seconds = 4000;
    assert_refused(&a.add("a9"), 106, &["cnitool cluster repair net --begin"]);
    assert!(a.operator_fails(&["check"]).contains("cnitool cluster repair"));
    // What b has got meanwhile is named; the rest is a's again.
    let said = a.operator_fails(&["repair"]);
    assert!(said.contains("belongs to node b") && said.contains("of container a"), "{said}");
    cluster.state();
    a.add("a9").unwrap();
}

#[test]
fn with_the_mark_a_restored_store_gives_nothing_until_all_nodes_have_written_back() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let mut given = vec![a.add("a0").unwrap(), b.add("b").unwrap()];
    let saved = save(&cluster);
    given.extend((2..6).map(|number| a.add(&format!("a{number}")).unwrap()));
    given.push(a.call("ADD", "vm", "claim=db", &a.config()).unwrap());
    given.extend((0..9).map(|number| b.add(&format!("b{number}")).unwrap()));
    [&a, &b].iter().for_each(|machine| machine.upkeep());
    let before = cluster.state();
    restore(&cluster, &saved);
    let c = cluster.machine("c");
    c.operator(&["repair", "--begin"]);
    assert_refused(&c.add("c0"), 11, &["have not written back yet: a, b"]);
    a.operator(&["repair"]);
    assert_refused(&c.add("c0"), 11, &["have not written back yet: b"]);
    b.operator(&["repair"]);
    let after = cluster.state();
    assert_eq!(after.claims["db"].addresses, before.claims["db"].addresses);
    let runs = |records: &Records| records.runs.clone();
    assert_eq!(runs(&after), runs(&before));
    for machine in [&a, &b, &c] {
        machine.operator(&["check"]);
        given.push(machine.add("new").unwrap());
    }
    assert_distinct(given.iter());
    assert!(a.operator(&["repair"]).contains("node a"), "a second time changes nothing");
}

#[test]
fn what_whereabouts_has_given_becomes_claims() {
    let cluster = cluster();
    let a = cluster.machine("a");
    let file = cluster.folder.path().join("pools.json");
    let pool = |range: &str, allocations: serde_json::Value| json!({ "kind": "IPPool", "spec": { "range": range, "allocations": allocations } });
    let pools = json!({ "kind": "List", "items": [
        pool("10.9.0.0/24", json!({
            "2": { "id": "c2", "podref": "shop/web-0", "ifname": "net1" },
            "3": { "id": "c3", "podref": "shop/web-1" },
            "4": { "id": "c3", "podref": "shop/web-1", "ifname": "net2" },
        })),
        pool("10.8.0.0/24", json!({ "2": { "podref": "shop/other" } })),
    ]});
    fs::write(&file, pools.to_string()).unwrap();
    let words = ["import", file.to_str().unwrap()];
    let said = a.operator(&words);
    assert!(said.contains("3 addresses are those of 3 claims now; 1 were in no range"), "{said}");
    a.operator(&words);
    assert_eq!(a.add("new").unwrap(), "10.9.0.5/24");
    assert_eq!(a.call("ADD", "web-0", "claim=shop/web-0", &a.config()).unwrap(), "10.9.0.2/24", "the pod's own");
    assert!(a.operator_fails(&words).contains("claim shop/web-0 is held by a"));
    a.operator(&["release", "shop/web-1/2"]);
    for (text, word) in [
        ("{", "cannot import"),
        ("{}", "no IPPool"),
        (r#"{"items":[{"spec":{"range":"10.9.0.0/24","allocations":{"x":{}}}}]}"#, "is no address"),
        (r#"{"spec":{"range":"10.9.0.0/24","allocations":{"99999999999999":{}}}}"#, "is no address"),
        (r#"{"spec":{"range":"10.9.0.0/24","allocations":{"9":{"podref":"a b"}}}}"#, "cannot be the name"),
        (r#"{"spec":{"range":"10.9.0.0/24","allocations":{"5":{"podref":"n/p"}}}}"#, "a run of node a"),
    ] {
        fs::write(&file, text).unwrap();
        let said = a.operator_fails(&words);
        assert!(said.contains(word), "{text}: {said}");
    }
}

/// A moment of a store's history.
pub(crate) enum History {
    Saved,
    Restored,
}

/// A store goes back to an older history: a node that has written since then is refused until it has written back what it holds.
pub(crate) fn nodes_write_back_what_they_hold(cluster: &TestCluster, mut history: impl FnMut(History)) {
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let mut given = vec![a.add("a0").unwrap(), b.add("b0").unwrap()];
    history(History::Saved);
    for (machine, name) in [(&a, "a"), (&b, "b")] {
        given.extend((1..6).map(|number| machine.add(&format!("{name}{number}")).unwrap()));
        machine.upkeep();
    }
    history(History::Restored);
    a.operator(&["repair", "--begin"]);
    a.later_seconds = 4000;
    assert_refused(&a.add("a9"), 106, &["cnitool cluster repair net"]);
    assert_refused(&cluster.machine("c").add("c0"), 11, &["have not written back yet: a, b"]);
    for machine in [&a, &b] {
        assert!(machine.operator(&["repair"]).contains("the store has what node"));
    }
    for machine in [&a, &b] {
        given.push(machine.add("new").unwrap());
        machine.operator(&["check"]);
    }
    assert_distinct(given.iter());
}
