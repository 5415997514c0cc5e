//! Several nodes on one store: who gets which address, and what works while the store is away.

use std::fs;
use std::thread;

use serde_json::json;

use crate::test_cluster::{Machine, TestCluster, assert_distinct, assert_refused};

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
    assert!(machines[0].operator(&["check"]).contains("3 nodes"));

    // A node that loses all its containers leaves their addresses to the others, who want them.
    let (given, _) = &filled[0];
    for number in 0..given.len() {
        machines[0].del(&format!("a-{number}"));
    }
    machines[0].upkeep();
    assert_eq!(cluster.state().runs_of("a").count(), 0, "{:?}", cluster.state().runs);
    let (more, _) = machines[1].fill_as("more");
    assert_distinct(filled.iter().skip(1).flat_map(|(given, _)| given).chain(&more));
    assert_eq!(more.len(), given.len(), "what a has given back is given again");
}

#[test]
fn without_the_store_a_node_gives_what_it_has() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
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
    // For a while no other call asks a store that was away.
    machine.upkeep();
    machine.status().unwrap();
    let entries = fs::read_dir(cluster.store().join("net")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(entries.collect::<Vec<_>>().iter().all(|name| !name.to_string_lossy().starts_with('.')));
    machine.add("c6").unwrap();
}

/// By the numbers of its record, which each look into the store writes; half of the first hour follows a change.
#[test]
fn a_node_in_use_writes_once_in_a_quarter_of_its_trust() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "trustSeconds": 3600 }));
    let mut machine = cluster.machine("a");
    machine.add("c0").unwrap();
    let mut hours = Vec::new();
    for hour in 0..3 {
        for minutes in (0..60).step_by(5) {
            machine.later_seconds = hour * 3600 + minutes * 60;
            machine.add("c1").unwrap();
            machine.del("c1");
            machine.status().unwrap();
            machine.operator(&["upkeep", "--if-due"]);
        }
        hours.push(cluster.newest("nodes/a").1);
    }
    assert!(hours[1] - hours[0] <= 4 && hours[2] - hours[1] == 4, "{hours:?}");
}

#[test]
fn a_requested_address_is_claimed_or_its_node_is_named() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    a.add("c0").unwrap();
    let ask = |address: &str| b.call("ADD", "c1", &format!("IP={address}"), &b.config());
    assert_refused(&ask("10.9.0.2"), 103, &["10.9.0.2 belongs to node a"]);
    assert_refused(&ask("10.9.0.3"), 103, &["10.9.0.3 belongs to node a", "gives it back at its next call"]);
    a.upkeep();
    assert_eq!(ask("10.9.0.3").unwrap(), "10.9.0.3/24", "no container of a has it");
    b.del("c1");
    assert_refused(&ask("10.9.0.2"), 103, &["10.9.0.2 belongs to node a"]);
    assert_eq!(ask("10.9.0.77").unwrap(), "10.9.0.77/24");
    assert_refused(&a.call("ADD", "c2", "IP=10.9.0.77", &a.config()), 103, &["belongs to node b"]);
}

#[test]
fn what_host_local_has_given_is_adopted_by_all_nodes_before_any_claims() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }));
    let (a, b, c) = (cluster.machine("a"), cluster.machine("b"), cluster.machine("c"));
    for (machine, held) in [(&a, &["10.9.0.2", "10.9.0.3", "10.9.0.50"][..]), (&b, &["10.9.0.50"])] {
        fs::create_dir_all(machine.data()).unwrap();
        for address in held {
            fs::write(machine.data().join(address), "old\r\neth0").unwrap();
        }
    }
    for machine in [&a, &b] {
        assert_refused(&machine.add("c0"), 106, &["given without this store", "cnitool cluster adopt net --begin"]);
    }
    a.operator(&["adopt", "--begin"]);
    assert_refused(&c.add("c0"), 11, &["write down what they gave before", "adopt net --end"]);
    a.operator(&["adopt"]);
    assert!(b.operator_fails(&["adopt"]).contains("10.9.0.50 of container old belongs to node a"));
    a.operator(&["adopt", "--end"]);
    let runs: Vec<_> = cluster.state().runs_of("a").map(|run| run.to_string()).collect();
    assert_eq!(runs, ["10.9.0.2-10.9.0.3", "10.9.0.50-10.9.0.50"]);
    b.del("old");
    for machine in [&b, &c] {
        let given = machine.add("c1").unwrap();
        assert!(!["10.9.0.50/24", "10.9.0.2/24", "10.9.0.3/24"].contains(&given.as_str()), "{given}");
    }
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
    machine.upkeep();
    let more: Vec<_> = (2..5).map(|number| machine.add(&format!("c{number}")).unwrap()).collect();
    assert_distinct(more.iter().chain([&first, &second]));
    // .2 to .6 were given once; now the one that was released first.
    assert_eq!([machine.add("c5").unwrap(), machine.add("c6").unwrap()], [first, second]);
    assert_refused(&machine.add("c7"), 105, &["5 of 5"]);
}

/// Half of the containers first on half of the nodes, then on all; and a drained node leaves all it has.
#[test]
fn as_many_containers_as_addresses_get_one_each() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/26", "claimSize": 16 }));
    let machines = ["a", "b", "c", "d"].map(|name| cluster.machine(name));
    let mut given = Vec::new();
    // .1 is the gateway: 61 addresses.
    for number in 0..61 {
        let machine = &machines[if number < 30 { number % 2 } else { number % 4 }];
        let mut answer = machine.add(&format!("c{number}"));
        for _again in 0..2 {
            if answer.is_err() {
                machines.iter().for_each(Machine::upkeep);
                answer = machine.add(&format!("c{number}"));
            }
        }
        given.push(answer.unwrap());
    }
    assert_distinct(given.iter());
    assert_refused(&machines[0].add("more"), 105, &["no IP addresses available"]);
    assert!(machines[1].operator(&["show"]).contains("an ADD was refused on a"));
    for number in (0..61).filter(|number| *number < 30 && number % 2 == 0 || *number >= 30 && number % 4 == 0) {
        machines[0].del(&format!("c{number}"));
    }
    assert!(machines[0].operator(&["leave"]).contains("node a has left"));
    assert!(!cluster.state().nodes.contains_key("a"));
    assert!(machines[1].operator_fails(&["leave"]).contains("containers of this node have addresses"));
    machines[1].operator(&["leave", "--ending"]);
    assert_eq!(machines[3].fill().0.len(), 23 + 22);
}

#[test]
fn a_folder_without_the_network_is_that_of_a_missing_mount() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24" }));
    fs::remove_dir_all(cluster.store().join("net")).unwrap();
    let a = cluster.machine("a");
    assert_refused(&a.add("c0"), 11, &["mount it", "cnitool cluster init net"]);
    a.operator(&["init"]);
    a.add("c0").unwrap();
}

#[cfg(not(feature = "kubernetes"))]
#[test]
fn an_executable_without_the_store_in_kubernetes_says_so() {
    let mut cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/24" }));
    cluster.keys["store"] = json!({ "kubernetes": {} });
    assert_refused(&cluster.machine("a").add("c0"), 7, &["ipam.store.kubernetes", "was built without", "--features"]);
}
