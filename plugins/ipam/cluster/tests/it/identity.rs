//! A node's identity: restarts, clones, emptied folders, forgotten nodes, and a store that is older than its readers.

use std::fs;

use serde_json::json;

use crate::test_cluster::{TestCluster, assert_distinct, assert_refused, copy};

fn cluster() -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/24", "claimSize": 4 }))
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
    let view = machine.data().join("cluster/view");
    fs::write(&view, &fs::read(&view).unwrap()[..40]).unwrap();
    let remedy = format!("remove {}", machine.data().display());
    assert_refused(&machine.add("c1"), 106, &["cluster/view", "damaged", &remedy, "forget net NODE --force"]);
    fs::remove_dir_all(machine.data()).unwrap();
    assert_refused(&machine.add("c1"), 106, &["its data folder does not know", "cnitool cluster forget net a"]);
    assert_refused(&machine.status(), 50, &["its data folder does not know"]);
    assert!(machine.operator(&["forget", "a", "--fenced", "--force"]).contains("1 runs are free"));
    assert_eq!(machine.add("c1").unwrap(), lost);
}

#[test]
fn a_store_that_is_older_than_its_reader_is_refused() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    machine.add("c0").unwrap();
    fs::remove_dir_all(cluster.store().join("net")).unwrap();
    machine.later_seconds = 4000;
    assert_refused(&machine.add("c1"), 11, &["mount it"]);
    machine.operator(&["init"]);
    machine.later_seconds = 4010;
    assert_refused(&machine.add("c1"), 106, &["older than what this node has left", "cnitool cluster repair net"]);
    machine.operator(&["repair"]);
    machine.add("c1").unwrap();
    assert!(cluster.state().runs.iter().any(|run| run.span.to_string() == "10.9.0.2-10.9.0.5"));
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
    cluster.overwrite("nodes/a", |node| node["heardAt"] = json!(node["heardAt"].as_u64().unwrap() + 10_000_000));
    b.add("later").unwrap();
    a.add("later").unwrap();
    let shown = a.operator(&["show"]);
    let ago = shown.split_once("a     recorded  ").and_then(|(_, rest)| rest.split_once(" s ago"));
    assert!(ago.is_some_and(|(seconds, _)| seconds.parse::<u8>().is_ok()), "{shown}");
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
    cluster.overwrite("nodes/a", |node| node["heardAt"] = json!(node["heardAt"].as_u64().unwrap() - 3 * 3600));
    let shown = b.operator(&["show"]);
    assert!(shown.contains("a     silent    3 h ago") && shown.contains("cnitool cluster forget net NODE"), "{shown}");
    let value: serde_json::Value = serde_json::from_str(&b.operator(&["show", "--json"])).unwrap();
    assert_eq!((&value["nodes"][0]["state"], &value["nodes"][1]["state"]), (&json!("silent"), &json!("recorded")));
    assert!(value["nodes"][0]["heardSecondsAgo"].as_u64().unwrap() >= 3 * 3600, "{value:#}");
    let (given, _) = b.fill();
    assert!(!given.contains(&own), "nothing is moved by time");
    // Its next call of any verb is heard.
    a.status().unwrap();
    a.upkeep();
    assert!(!b.operator(&["show"]).contains("silent"), "{}", b.operator(&["show"]));
}

/// The machine's containers ended with the boot, and so did its folder, in memory.
#[test]
fn a_machine_with_its_folder_in_memory_enters_anew_after_a_restart() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    (0..6).for_each(|number| drop(machine.add(&format!("c{number}")).unwrap()));
    machine.call("ADD", "vm", "claim=db", &machine.config()).unwrap();
    let before = cluster.state();
    fs::remove_dir_all(machine.data()).unwrap();
    assert_refused(&machine.add("c9"), 106, &["its data folder does not know"]);
    machine.boot = "boot-of-a-2-0000-0000-000000000000".to_owned();
    machine.add("c0").unwrap();
    let after = cluster.state();
    assert_eq!(after.runs_of("a").count(), 1, "what the earlier boot had is free: {:?}", after.runs);
    assert_ne!(after.nodes["a"].store_id, before.nodes["a"].store_id);
    assert_eq!(after.claims["db"].addresses, before.claims["db"].addresses);
    assert!(after.claims["db"].holders.is_empty());
    machine.operator(&["check"]);
    // Another machine of that name has other cards.
    fs::remove_dir_all(machine.data()).unwrap();
    (machine.boot, machine.card) = ("boot-of-b-1-0000-0000-000000000000".to_owned(), "0a:00:00:00:99:99".to_owned());
    assert_refused(&machine.add("c1"), 106, &["its data folder does not know"]);
}

/// A machine after a restart: with these cards it is the recorded one, or a copy of it.
#[test]
fn all_cards_but_one_have_to_be_the_recorded_ones() {
    let card = |name: &str| format!("0a:00:00:00:01:{name}");
    for (number, (other, before, after, is_same)) in [
        (&[][..], &["01", "02", "03"][..], &["01", "02", "03"][..], true),
        (&[], &["01", "02", "03"], &["01", "02", "04"], true),
        (&[], &["01", "02", "03"], &["01", "04", "05"], false),
        (&[], &["01", "02"], &["01", "02", "03", "04"], true),
        (&[], &["01", "02"], &["01", "04"], false),
        (&[], &["01"], &["02"], false),
        // The cards of a kind of management controller, or of a hypervisor.
        (&["01", "02"], &["01", "02", "03"], &["01", "02", "04"], false),
        (&["01"], &["01"], &["01"], false),
        (&["01"], &["01", "03"], &["01", "03"], true),
    ]
    .into_iter()
    .enumerate()
    {
        let cluster = cluster();
        if let Some((first, more)) = other.split_first() {
            let mut beside = cluster.machine("b");
            (beside.card, beside.more_cards) = (card(first), more.iter().map(|name| card(name)).collect());
            beside.add("c0").unwrap();
        }
        let mut machine = cluster.machine("a");
        (machine.card, machine.more_cards) = (card(before[0]), before[1..].iter().map(|name| card(name)).collect());
        machine.add("c0").unwrap();
        machine.boot = "boot-of-a-2-0000-0000-000000000000".to_owned();
        fs::remove_dir_all(machine.home.join("links")).unwrap();
        (machine.card, machine.more_cards) = (card(after[0]), after[1..].iter().map(|name| card(name)).collect());
        match is_same {
            true => drop(machine.add("c1").unwrap_or_else(|error| panic!("row {number}: {error:?}"))),
            false if other.is_empty() => {
                assert_refused(&machine.add("c1"), 106, &["copy of the recorded one", "all but one"]);
            }
            false => {
                let remedy = "They are of: b. If that is the name which this machine had before, run: cnitool cluster forget net b";
                assert_refused(&machine.add("c1"), 106, &[remedy]);
                machine.operator(&["forget", "b", "--fenced", "--force"]);
                machine.add("c1").unwrap();
            }
        }
    }
}

/// A record that cannot be read shows who reads it.
#[test]
fn after_a_restart_a_node_reads_its_own_record_and_no_other_nodes() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    a.more_cards = vec!["0a:00:00:00:03:01".to_owned()];
    a.add("c0").unwrap();
    b.add("c0").unwrap();
    cluster.overwrite("nodes/b", |record| record["lease"] = json!(1));
    a.boot = "boot-of-a-2-0000-0000-000000000000".to_owned();
    a.add("c1").unwrap();
    (a.boot, a.card) = ("boot-of-a-3-0000-0000-000000000000".to_owned(), "0a:00:00:00:03:02".to_owned());
    assert_refused(&a.add("c2"), 106, &["nodes/b", "upgrade this node"]);
    // Nor is a card a proof that was found in two records.
    (a.card, a.more_cards) = (cluster.machine("a").card, Vec::new());
    fs::remove_dir_all(a.home.join("links")).unwrap();
    let noted = serde_json::json!({ "shared": [a.card, "0a:00:00:00:03:01"] });
    fs::create_dir(cluster.store().join("net/cards")).unwrap();
    fs::write(cluster.store().join("net/cards/1"), noted.to_string()).unwrap();
    a.more_cards = vec!["0a:00:00:00:03:01".to_owned()];
    assert_refused(&a.add("c2"), 106, &["nodes/b", "upgrade this node"]);
}

#[test]
fn cards_on_usb_virtual_functions_and_changed_addresses_are_no_proof() {
    let cluster = cluster();
    let mut machine = cluster.machine("a");
    machine.more_cards = (1..5).map(|number| format!("0a:00:00:00:02:{number:02}")).collect();
    machine.add("c0").unwrap();
    assert_eq!(cluster.state().nodes["a"].macs.len(), 5);
    let link = |at: usize| machine.home.join(format!("links/eth{at}"));
    std::os::unix::fs::symlink("/sys/bus/usb", link(1).join("device/subsystem")).unwrap();
    fs::create_dir(link(2).join("device/physfn")).unwrap();
    // A bond has set the address of its port; the kernel has made up another one.
    fs::create_dir(link(3).join("bonding_slave")).unwrap();
    fs::write(link(3).join("bonding_slave/perm_hwaddr"), "0a:00:00:00:02:99\n").unwrap();
    fs::write(link(4).join("addr_assign_type"), "1\n").unwrap();
    machine.later_seconds = 4000;
    machine.add("c1").unwrap();
    let macs: Vec<String> = cluster.state().nodes["a"].macs.iter().cloned().collect();
    assert_eq!(macs, [machine.card.as_str(), "0a:00:00:00:02:99"]);
}

#[test]
fn a_node_that_was_heard_just_now_is_forgotten_by_force_only() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    a.add("c0").unwrap();
    for words in [&["forget", "a"][..], &["forget", "a", "--fenced"]] {
        let said = b.operator_fails(words);
        assert!(said.contains("node a seems to live: it was heard") && said.contains("--force"), "{said}");
    }
    assert!(!cluster.state().nodes["a"].leaving);
    // An operator's command that was ended while it waited.
    cluster.overwrite("nodes/a", |node| node["leaving"] = json!(true));
    a.later_seconds = 4000;
    assert_refused(&a.add("c1"), 11, &["an operator is forgetting the node"]);
    b.operator(&["forget", "a", "--cancel"]);
    a.add("c1").unwrap();
    assert!(b.operator_fails(&["forget", "a", "--cancel"]).contains("is not being forgotten"));
    cluster.overwrite("nodes/a", |node| (node["leaving"], node["freeing"]) = (json!(true), json!(true)));
    assert!(b.operator_fails(&["forget", "a", "--cancel"]).contains("run forget to its end"));
    let said = b.operator_fails(&["forget", "c"]);
    assert!(
        said.contains("There are: a. It was forgotten before") && said.contains("cnitool cluster show net"),
        "{said}"
    );
    b.operator(&["forget", "a", "--fenced"]);
    assert!(cluster.state().nodes.is_empty());
    assert!(b.operator_fails(&["forget", "a"]).contains("No node is, so there is nothing to free"));
    // One that is silent needs no force.
    a.later_seconds = 8000;
    a.add("c2").unwrap();
    cluster.overwrite("nodes/a", |node| node["heardAt"] = json!(node["heardAt"].as_u64().unwrap() - 3000));
    b.operator(&["forget", "a", "--fenced"]);
}

#[test]
fn a_forgotten_node_that_comes_back_gives_nothing_of_its_old_runs() {
    let cluster = cluster();
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let old = a.add("c0").unwrap();
    b.operator(&["forget", "a", "--fenced", "--force"]);
    assert!(b.operator(&["show"]).contains("253 of 253"), "{}", b.operator(&["show"]));
    assert_eq!(b.add("c1").unwrap(), old, "its addresses are free");
    // Its trust is over: by the clock of the same boot, not by the time of day.
    a.later_seconds = 4000;
    let new = a.add("c2").unwrap();
    let state = cluster.state();
    let owner = |address: &str| {
        let address: std::net::IpAddr = address.split('/').next().unwrap().parse().unwrap();
        state.find(address.into()).map(|run| run.owner.clone())
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
    cluster.overwrite("nodes/a", |node| node["leaving"] = json!(true));
    machine.add("c1").unwrap();
    machine.later_seconds = 4000;
    assert_refused(&machine.add("c2"), 11, &["an operator is forgetting the node"]);
}
