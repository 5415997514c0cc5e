//! A node's identity: restarts, clones, emptied folders, forgotten nodes, and a store that is older than its readers.

use std::fs;

use serde_json::json;

use crate::test_cluster::{TestCluster, assert_distinct, assert_refused, copy};

fn cluster() -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }))
}

#[test]
fn a_machine_that_was_started_again_goes_on_in_its_runs() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    let before = machine.add("c0").unwrap();
    machine.boot = "boot-of-a-2-0000-0000-000000000000".to_owned();
    let after = machine.add("c1").unwrap();
    assert_distinct([before, after].iter());
    assert_eq!((cluster.state().runs.len(), cluster.state().nodes["a"].boot.as_str()), (1, machine.boot.as_str()));
}

#[test]
fn a_clone_is_refused_and_the_original_goes_on() {
    let cluster = cluster();
    let original = cluster.machine("a");
    original.add("c0").unwrap();
    let mut clone = cluster.machine("a");
    clone.home = cluster.folder.path().join("clone");
    copy(&original.home, &clone.home);
    (clone.boot, clone.card) = ("boot-of-clone-0000-0000-000000000000".to_owned(), "0a:00:00:00:99:99".to_owned());
    let refused = clone.add("c1");
    assert_refused(&refused, 106, &["node a gets no addresses", "copy of the recorded one", "remove"]);
    // A copy of a running machine has the boot, too.
    clone.boot.clone_from(&original.boot);
    clone.later_seconds = 4000;
    assert_refused(&clone.add("c1"), 106, &["copy of the recorded one"]);
    original.add("c2").unwrap();
    let (mut renamed, _) = (clone, refused);
    renamed.name = "b".to_owned();
    assert_refused(&renamed.add("c1"), 106, &["node a's, and this is node b"]);
    fs::remove_dir_all(renamed.data()).unwrap();
    renamed.add("c1").unwrap();
}

#[test]
fn an_emptied_folder_gives_nothing_until_the_node_is_forgotten() {
    let cluster = cluster();
    let machine = cluster.machine("a");
    let lost = machine.add("c0").unwrap();
    fs::remove_dir_all(machine.data()).unwrap();
    assert_refused(&machine.add("c1"), 106, &["its data folder does not know", "cnitool cluster forget net a"]);
    assert_refused(&machine.status(), 50, &["its data folder does not know"]);
    assert!(machine.operator(&["forget", "a", "--fenced"]).contains("1 runs are free"));
    assert_eq!(machine.add("c1").unwrap(), lost);
}

#[test]
fn a_forgotten_node_that_comes_back_gives_nothing_of_its_old_runs() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let old = a.add("c0").unwrap();
    b.operator(&["forget", "a", "--fenced"]);
    assert!(b.operator(&["show"]).contains("253 of 253"), "{}", b.operator(&["show"]));
    assert_eq!(b.add("c1").unwrap(), old, "its addresses are free");
    // Its trust is over: by the clock of the same boot, not by the time of day.
    a.later_seconds = 4000;
    let new = a.add("c2").unwrap();
    let state = cluster.state();
    let owner = |address: &str| {
        let address: std::net::IpAddr = address.split('/').next().unwrap().parse().unwrap();
        state.runs.iter().find(|run| run.span().contains(address.into())).map(|run| run.node.clone())
    };
    assert_eq!((owner(&old).as_deref(), owner(&new).as_deref()), (Some("b"), Some("a")));
    let mut config = a.config();
    config["prevResult"] = json!({ "cniVersion": "1.1.0", "ips": [{ "address": old }] });
    assert_refused(&a.call("CHECK", "c0", "", &config), 107, &["in no run of this node any more"]);
}

#[test]
fn while_a_node_is_being_forgotten_it_is_confirmed_nothing() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    machine.add("c0").unwrap();
    let path = cluster.store().join("net.json");
    let state = cluster::protocol::begin_to_forget(&cluster.state(), "a").unwrap();
    fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
    machine.add("c1").unwrap();
    machine.later_seconds = 4000;
    assert_refused(&machine.add("c2"), 11, &["an operator is forgetting the node"]);
}

#[test]
fn a_store_that_is_older_than_its_reader_is_refused() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    machine.add("c0").unwrap();
    fs::remove_file(cluster.store().join("net.json")).unwrap();
    machine.later_seconds = 4000;
    assert_refused(&machine.add("c1"), 106, &["older than what this node has read", "cnitool cluster repair"]);
    machine.operator(&["repair"]);
    machine.add("c1").unwrap();
    assert!(cluster.state().runs.iter().any(|run| run.span().to_string() == "10.9.0.2-10.9.0.5"));
}

/// The time since the machine's start differs, as between any two machines, and no time of day is compared.
#[test]
fn machines_whose_clocks_are_apart_share_no_address() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    a.later_seconds = 400_000;
    let given: Vec<_> = (0..12).map(|number| [&a, &b][number % 2].add(&format!("c{number}")).unwrap()).collect();
    assert_distinct(given.iter());
    // The time of day in the records is for people: one of the future changes nothing.
    let path = cluster.store().join("net.json");
    let mut state = cluster.state();
    state.nodes.get_mut("a").unwrap().heard_at += 10_000_000;
    fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
    b.add("later").unwrap();
    a.add("later").unwrap();
    assert!(a.operator(&["show"]).contains("a     recorded  0 s ago"), "{}", a.operator(&["show"]));
}

#[test]
fn of_two_machines_with_one_name_the_second_gets_nothing() {
    let cluster = cluster();
    let (first, mut second) = (cluster.machine("a"), cluster.machine("a"));
    second.home = cluster.folder.path().join("second");
    fs::create_dir(&second.home).unwrap();
    (second.boot, second.card) = ("boot-of-second-0000-0000-000000000000".to_owned(), "0a:00:00:00:99:99".to_owned());
    // Both at once: one is recorded.
    let answers = std::thread::scope(|scope| {
        let threads = [&first, &second].map(|machine| scope.spawn(|| machine.add("c0")));
        threads.map(|thread| thread.join().unwrap())
    });
    let (winner, loser) = if answers[0].is_ok() { (&first, &second) } else { (&second, &first) };
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for number in 1..3 {
        assert_refused(&loser.add(&format!("c{number}")), 106, &["node a gets no addresses", "machine has this name"]);
    }
    winner.add("c1").unwrap();
}

#[test]
fn a_node_of_which_nothing_is_heard_is_shown_and_keeps_what_it_has() {
    let cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/28", "claimSize": 4 }));
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let own = a.add("c0").unwrap();
    b.add("c0").unwrap();
    assert!(!b.operator(&["show"]).contains("silent"), "{}", b.operator(&["show"]));
    let path = cluster.store().join("net.json");
    let mut state = cluster.state();
    state.nodes.get_mut("a").unwrap().heard_at -= 3 * 3600;
    fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
    let shown = b.operator(&["show"]);
    assert!(shown.contains("a     silent    3 h ago") && shown.contains("cnitool cluster forget net NODE"), "{shown}");
    let value: serde_json::Value = serde_json::from_str(&b.operator(&["show", "--json"])).unwrap();
    assert_eq!((&value["nodes"][0]["state"], &value["nodes"][1]["state"]), (&json!("silent"), &json!("recorded")));
    assert!(value["nodes"][0]["heardSecondsAgo"].as_u64().unwrap() >= 3 * 3600, "{value:#}");
    let (given, _) = b.fill();
    assert!(!given.contains(&own), "nothing is moved by time");
    assert_eq!((b.view()["nodes"].clone(), b.view()["silent"].clone()), (json!(2), json!(1)));
    // Its next ADD that asks the store is heard.
    let mut late = cluster.machine("a");
    late.later_seconds = 4000;
    late.add("c1").unwrap();
    assert!(!b.operator(&["show"]).contains("silent"), "{}", b.operator(&["show"]));
}
