//! A store that was restored from a copy, and what the operator's commands make of it.

use std::fs;

use serde_json::json;

use crate::test_cluster::{TestCluster, assert_distinct, assert_refused};

fn cluster() -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 2 }))
}

/// A node whose records are not the ones that it left is refused, although the store has more writes than it has read.
#[test]
fn a_restored_store_that_has_caught_up_is_found_and_repaired() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let path = cluster.store().join("net.json");
    let mut given = vec![a.add("a0").unwrap(), b.add("b0").unwrap()];
    let copy = fs::read(&path).unwrap();
    given.extend((1..6).map(|number| a.add(&format!("a{number}")).unwrap()));
    fs::write(&path, copy).unwrap();
    // Node b has read nothing newer than the copy, and claims until it has more writes than a has read.
    let read = |name: &str| cluster.machine(name).view()["writes"].as_u64().unwrap();
    let mut count = 1;
    while cluster.state().writes <= read("a") {
        b.add(&format!("b{count}")).unwrap();
        count += 1;
    }
    a.later_seconds = 4000;
    assert_refused(&a.add("a9"), 106, &["cnitool cluster repair"]);
    assert!(a.operator_fails(&["check"]).contains("cnitool cluster repair"));
    // What b has got meanwhile is named; the rest is a's again.
    let said = a.operator_fails(&["repair"]);
    assert!(said.contains("belongs to node b") && said.contains("of container a"), "{said}");
    cluster.state();
    a.add("a9").unwrap();
}

#[test]
fn nodes_that_write_back_first_lose_nothing() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let path = cluster.store().join("net.json");
    let mut given: Vec<String> = (0..2).map(|number| a.add(&format!("a{number}")).unwrap()).collect();
    let copy = fs::read(&path).unwrap();
    // After the copy, a gives a run back, b claims it, and both claim more.
    given.extend((2..6).map(|number| a.add(&format!("a{number}")).unwrap()));
    given.push(a.call("ADD", "vm", "claim=db", &a.config()).unwrap());
    given.extend((0..9).map(|number| b.add(&format!("b{number}")).unwrap()));
    let before = cluster.state();
    fs::write(&path, copy).unwrap();
    for machine in [&a, &b] {
        assert!(machine.operator(&["repair"]).contains("the store has what node"));
    }
    let after = cluster.state();
    assert_eq!((&after.claims, after.runs.len()), (&before.claims, before.runs.len()), "{after:#?}");
    assert!(after.writes > before.writes);
    for machine in [&a, &b] {
        machine.operator(&["check"]);
        given.push(machine.add("new").unwrap());
    }
    assert_distinct(given.iter());
    assert!(a.operator(&["repair"]).contains("node a"), "a second time changes nothing");
}

#[test]
fn an_emptied_store_is_filled_by_the_nodes() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let mut given = vec![a.add("a0").unwrap(), b.add("b0").unwrap()];
    fs::remove_file(cluster.store().join("net.json")).unwrap();
    for machine in [&a, &b] {
        machine.operator(&["repair"]);
    }
    given.extend([&a, &b].iter().flat_map(|machine| (1..5).map(|n| machine.add(&format!("c{n}")).unwrap())));
    assert_distinct(given.iter());
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
