//! A real etcd: three members on loopback, which verify the nodes' certificates.

use std::path::Path;

use serde_json::{Value, json};
use testns::Node;

use crate::crash;
use crate::restored_store::{History, nodes_write_back_what_they_hold};
use crate::test_cluster::{TestCluster, assert_distinct, assert_refused};

/// The members, and a cluster whose store they are.
struct Etcd {
    members: testns::Etcd,
    cluster: TestCluster,
    node: Node,
}

impl Etcd {
    /// Starts three members; `None` where there is no etcd.
    fn start_or_skip(test: &str, ipam: Value) -> Option<Self> {
        let node = crash::node();
        let mut cluster = TestCluster::new(ipam);
        let members = match testns::Etcd::start(cluster.folder.path(), "127.0.0.1") {
            Ok(members) => members,
            Err(why) => {
                testns::skip(test, &why);
                return None;
            }
        };
        cluster.keys["store"] = members.store();
        let etcd = Self { members, cluster, node };
        etcd.cluster.machine("x").operator(&["show"]);
        Some(etcd)
    }
}

#[test]
fn a_killed_leader_and_a_lost_quorum_delay_claims_and_nothing_else() {
    let ipam = json!({ "subnet": "10.9.0.0/24", "claimSize": 4 });
    let Some(mut etcd) = Etcd::start_or_skip("a_killed_leader_and_a_lost_quorum_delay_claims", ipam) else { return };
    let leader = etcd.members.leader();
    let mut given = vec![etcd.cluster.machine("a").add("c0").unwrap()];
    etcd.members.kill(leader);
    // Another claim, with two members.
    for number in 1..10 {
        given.push(etcd.cluster.machine("a").add(&format!("c{number}")).unwrap());
    }
    etcd.members.kill((leader + 1) % 3);
    let mut keys = etcd.cluster.keys.clone();
    keys["store"]["timeoutSeconds"] = json!(1);
    let whole = std::mem::replace(&mut etcd.cluster.keys, keys);
    let (more, (code, text)) = etcd.cluster.machine("a").fill_as("q");
    assert!(!more.is_empty(), "what the node has is given without the store");
    assert!(code == 11 && text.contains("https://127.0.0.1:2379") && text.contains("addresses are reserved"), "{text}");
    etcd.cluster.machine("a").del("c3");
    assert_eq!(etcd.cluster.machine("a").add("d3").unwrap(), given[3], "the one that is free");
    etcd.cluster.keys = whole;
    etcd.members.restart(leader);
    etcd.cluster.machine("a").upkeep();
    given.extend(more);
    given.push(etcd.cluster.machine("a").add("last").unwrap());
    given.push(etcd.cluster.machine("b").add("other").unwrap());
    assert_distinct(given.iter());
}

#[test]
fn etcd_and_node_verify_each_other_and_a_role_without_the_key_is_refused() {
    let ipam = json!({ "subnet": "10.9.0.0/24" });
    let Some(mut etcd) = Etcd::start_or_skip("etcd_and_node_verify_each_other", ipam) else { return };
    etcd.cluster.machine("a").add("c0").unwrap();
    let folder = etcd.cluster.folder.path().to_owned();
    etcd.members.enable_auth(&["--prefix", "/cni/net/"]);
    etcd.cluster.machine("b").add("c1").unwrap();
    let mut refused = |change: &[(&str, &Path)], code: u64, words: &[&str]| {
        let before = etcd.cluster.keys.clone();
        etcd.cluster.keys["store"]["timeoutSeconds"] = json!(3);
        for (key, value) in change {
            etcd.cluster.keys["store"][key] = json!(value);
        }
        // Each by a node of its own: a store that was away is not asked again at once.
        let name = format!("c{code}-{}", change.len());
        assert_refused(&etcd.cluster.machine(&name).add("c2"), code, words);
        etcd.cluster.keys = before;
    };
    let of = |name: &str| folder.join(name);
    let stranger = [("certFile", &*of("stranger.pem")), ("keyFile", &*of("stranger.key"))];
    refused(&stranger, 102, &["permission denied", "readwrite --prefix /cni/net/"]);
    refused(&[("caFile", &*of("other.pem"))], 11, &["invalid peer certificate", "ipam.store.caFile"]);
    let foreign = [("certFile", &*of("other.pem")), ("keyFile", &*of("other.key"))];
    refused(&foreign, 11, &["https://127.0.0.1:2389"]);
    refused(&[("keyFile", &*of("ca.pem"))], 7, &["ipam.store.keyFile", "chmod 600"]);
}

#[test]
fn status_fails_where_members_have_no_space_for_what_the_next_add_writes() {
    let ipam = json!({ "subnet": "10.9.0.0/24", "claimSize": 2 });
    let Some(mut etcd) = Etcd::start_or_skip("status_fails_where_members_have_no_space", ipam) else { return };
    etcd.cluster.machine("a").add("c0").unwrap();
    etcd.members.fill();
    let a = etcd.cluster.machine("a");
    a.status().unwrap();
    a.add("c1").unwrap();
    assert_refused(&a.status(), 50, &["takes no more", "etcdctl alarm disarm"]);
    assert_refused(&a.add("c2"), 5, &["takes no more"]);
}

#[test]
fn calls_on_etcd_killed_anywhere_leave_nothing_owned_twice() {
    let Some(etcd) = Etcd::start_or_skip("calls_on_etcd_killed_anywhere", json!({ "subnet": "10.9.0.0/24" })) else {
        return;
    };
    let mut store = etcd.cluster.keys["store"].clone();
    crash::kill_add(&etcd.node, store.clone());
    store["prefix"] = json!("/second");
    crash::empty_folders();
    crash::kill_del(&etcd.node, store.clone());
    store["prefix"] = json!("/third");
    crash::empty_folders();
    crash::kill_claim(&etcd.node, store);
}

/// The members have an older history: a node that has written since then is refused until it has written back what it holds.
#[test]
fn etcd_restored_from_a_snapshot_is_found_and_repaired() {
    let ipam = json!({ "subnet": "10.9.0.0/24", "claimSize": 2 });
    let Some(mut etcd) = Etcd::start_or_skip("etcd_restored_from_a_snapshot", ipam) else { return };
    let snapshot = etcd.cluster.folder.path().join("snapshot.db").display().to_string();
    // The snapshot of one member, which etcdctl takes of one endpoint only.
    nodes_write_back_what_they_hold(&etcd.cluster, |history| match history {
        History::Saved => etcd.members.save(&snapshot),
        History::Restored => etcd.members.restore(&snapshot),
    });
}

#[test]
fn an_operators_commands_on_etcd_killed_anywhere_are_called_again() {
    let test = "an_operators_commands_on_etcd_killed_anywhere";
    let Some(etcd) = Etcd::start_or_skip(test, json!({ "subnet": "10.9.0.0/24" })) else { return };
    let mut store = etcd.cluster.keys["store"].clone();
    for (at, kill) in [crash::kill_forget, crash::kill_release, crash::kill_import].into_iter().enumerate() {
        store["prefix"] = json!(format!("/prefix{at}"));
        kill(&etcd.node, store.clone());
        crash::empty_folders();
    }
}

/// A node that is cut off from the members gives what it has, the others go on, and it goes on when it is back.
#[test]
fn a_node_that_is_cut_off_from_etcd_and_back_shares_no_address() {
    let ipam = json!({ "subnet": "10.9.0.0/26", "claimSize": 4 });
    let Some(etcd) = Etcd::start_or_skip("a_node_that_is_cut_off_from_etcd", ipam) else { return };
    let (a, b) = (etcd.cluster.machine("a"), etcd.cluster.machine("b"));
    let mut given = vec![a.add("c0").unwrap(), b.add("c0").unwrap()];
    let mut cut = a.config();
    cut["ipam"]["store"]["endpoints"] = json!(["https://127.0.0.1:9"]);
    cut["ipam"]["store"]["timeoutSeconds"] = json!(1);
    let mut refused = None;
    for number in 1.. {
        given.push(b.add(&format!("c{number}")).unwrap());
        match a.call("ADD", &format!("c{number}"), "", &cut) {
            Ok(address) => given.push(address),
            answer => {
                refused = Some(answer);
                break;
            }
        }
    }
    assert_refused(&refused.unwrap(), 11, &["https://127.0.0.1:9", "addresses are reserved"]);
    // A new node, too, asks a store that was away no second time at once.
    let c = etcd.cluster.machine("c");
    cut["ipam"]["node"] = json!("c");
    cut["ipam"]["dataDir"] = json!(c.home);
    assert_refused(&c.call("ADD", "c0", "", &cut), 11, &["https://127.0.0.1:9"]);
    assert_refused(&c.add("c0"), 11, &["https://127.0.0.1:9"]);
    a.upkeep();
    given.extend((10..14).map(|number| a.add(&format!("c{number}")).unwrap()));
    assert_distinct(given.iter());
    for machine in [&a, &b] {
        machine.operator(&["check"]);
    }
}
