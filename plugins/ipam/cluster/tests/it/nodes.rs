//! Several nodes on one store: who gets which address, and what works while the store is away.

use std::fs;
use std::thread;

use serde_json::json;

use crate::test_cluster::{TestCluster, assert_distinct, assert_refused};

#[test]
fn three_nodes_use_a_range_to_its_last_address_and_none_twice() {
    // .1 is the gateway; 29 addresses.
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/27", "claimSize": 4 }));
    let machines = ["a", "b", "c"].map(|name| cluster.machine(name));
    let filled: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = machines.iter().map(|machine| scope.spawn(|| machine.fill())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_distinct(filled.iter().flat_map(|(given, _)| given));
    assert_eq!(filled.iter().map(|(given, _)| given.len()).sum::<usize>(), 29);
    for (_, (code, text)) in &filled {
        assert!(*code == 105 && text.contains("no IP addresses available in range set"), "{code}: {text}");
    }
    let writes = cluster.state().writes;
    assert!(writes <= 3 + 29_u64.div_ceil(2), "{writes} writes for 29 addresses");
    assert!(machines[0].operator(&["check"]).contains("3 nodes"));

    // A node that loses all its containers gives its runs back, but for one.
    let (given, _) = &filled[0];
    for number in 0..given.len() {
        machines[0].del(&format!("a-{number}"));
    }
    machines[0].del("a-0");
    let own = cluster.state().runs.iter().filter(|run| run.node == "a").count();
    assert_eq!(own, 1, "{:?}", cluster.state().runs);
    let (more, _) = machines[1].fill_as("more");
    assert_distinct(filled.iter().skip(1).flat_map(|(given, _)| given).chain(&more));
    assert!(given.len() <= 4 || !more.is_empty(), "what a has given back is given again");
}

#[test]
fn without_the_store_a_node_gives_what_it_has() {
    let cluster = TestCluster::new(
        json!({ "subnet": "10.9.0.0/24", "claimSize": 4, "store": { "path": "/none", "timeoutSeconds": 1 } }),
    );
    let mut keys = cluster.keys.clone();
    keys["store"]["path"] = json!(cluster.store());
    let cluster = TestCluster { keys, ..cluster };
    let machine = cluster.machine("a");
    let first = machine.add("c0").unwrap();
    let away = cluster.folder.path().join("away");
    fs::rename(cluster.store(), &away).unwrap();
    let given: Vec<_> = (1..4).map(|number| machine.add(&format!("c{number}")).unwrap()).collect();
    assert_distinct(given.iter().chain([&first]));
    assert_refused(&machine.add("c4"), 11, &["store", "4 of 4 addresses are reserved", "ipam.store.path"]);
    assert_refused(&machine.status(), 50, &["store"]);
    // DEL frees at once, whatever the store does.
    machine.del("c1");
    machine.status().unwrap();
    assert_eq!(machine.add("c5").unwrap(), given[0]);
    fs::rename(&away, cluster.store()).unwrap();
    machine.add("c6").unwrap();
}

#[test]
fn a_requested_address_is_claimed_or_its_node_is_named() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    a.add("c0").unwrap();
    let ask = |address: &str| b.call("ADD", "c1", &format!("IP={address}"), &b.config());
    assert_refused(&ask("10.9.0.3"), 103, &["10.9.0.3 belongs to node a"]);
    assert_eq!(ask("10.9.0.77").unwrap(), "10.9.0.77/24");
    assert_refused(&a.call("ADD", "c2", "IP=10.9.0.77", &a.config()), 103, &["belongs to node b"]);
}

#[test]
fn what_host_local_has_given_is_claimed_first_and_conflicts_are_named() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    for (machine, held) in [(&a, &["10.9.0.2", "10.9.0.3", "10.9.0.50"][..]), (&b, &["10.9.0.50"])] {
        fs::create_dir_all(machine.data()).unwrap();
        for address in held {
            fs::write(machine.data().join(address), "old\r\neth0").unwrap();
        }
    }
    a.add("c0").unwrap();
    let runs: Vec<_> = cluster.state().runs.iter().map(|run| run.span().to_string()).collect();
    assert!(
        runs.contains(&"10.9.0.2-10.9.0.3".to_owned()) && runs.contains(&"10.9.0.50-10.9.0.50".to_owned()),
        "{runs:?}"
    );
    assert_refused(&b.add("c1"), 106, &["10.9.0.50 of container old belongs to node a"]);
    b.del("old");
    let given = b.add("c1").unwrap();
    assert!(!given.starts_with("10.9.0.50/") && !given.starts_with("10.9.0.2/"), "{given}");
}

#[test]
fn check_and_gc_are_host_locals() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
    let machine = cluster.machine("a");
    let address = machine.add("c0").unwrap();
    let mut config = machine.config();
    config["prevResult"] = json!({ "cniVersion": "1.1.0", "ips": [{ "address": address }] });
    machine.call("CHECK", "c0", "", &config).unwrap();
    assert_refused(&machine.call("CHECK", "c1", "", &config), 107, &["Failed to find address"]);
    config["prevResult"]["ips"][0]["address"] = json!("10.9.0.200/24");
    assert_refused(&machine.call("CHECK", "c0", "", &config), 107, &["10.9.0.200", "no run of this node"]);
    let mut config = machine.config();
    config["cni.dev/valid-attachments"] = json!([]);
    machine.call("GC", "", "", &config).unwrap();
    assert!(!machine.data().join(address.split('/').next().unwrap()).exists());
}

#[test]
fn an_address_that_cools_down_is_given_after_those_of_new_runs() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/29", "claimSize": 2, "releaseCooldownSeconds": 3600 }));
    let machine = cluster.machine("a");
    let first = machine.add("c0").unwrap();
    let second = machine.add("c1").unwrap();
    machine.del("c0");
    machine.del("c1");
    let more: Vec<_> = (2..5).map(|number| machine.add(&format!("c{number}")).unwrap()).collect();
    assert_distinct(more.iter().chain([&first, &second]));
    // .2 to .6 were given once; now the one that was released first.
    assert_eq!([machine.add("c5").unwrap(), machine.add("c6").unwrap()], [first, second]);
    assert_refused(&machine.add("c7"), 105, &["5 of 5"]);
}
