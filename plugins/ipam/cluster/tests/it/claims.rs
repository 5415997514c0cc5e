//! Claims: the same address on any node, for two nodes at most, until an operator releases it.

use serde_json::{Value, json};

use crate::test_cluster::{Answer, Machine, TestCluster, assert_distinct, assert_refused};

fn cluster() -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/28", "claimSize": 4 }))
}

fn config(machine: &Machine<'_>, claim: &str) -> Value {
    let mut config = machine.config();
    config["args"] = json!({ "cni": { "claim": claim } });
    config
}

fn add(machine: &Machine<'_>, container: &str, claim: &str) -> Answer {
    machine.call("ADD", container, "", &config(machine, claim))
}

/// The second container of a claim, as a live migration marks it.
fn moving(machine: &Machine<'_>, container: &str, claim: &str) -> Answer {
    machine.call("ADD", container, &format!("claim={claim};claimMoves=true"), &machine.config())
}

#[test]
fn a_claim_has_its_address_on_any_node_and_two_at_once() {
    let cluster = cluster();
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.machine(name));
    let plain = a.add("plain").unwrap();
    let address = add(&a, "vm", "shop/db-0").unwrap();
    assert_ne!(address, plain);
    assert_refused(&add(&b, "vm-moved", "shop/db-0"), 103, &["shop/db-0 is held by a", "claimMoves"]);
    assert_eq!(moving(&b, "vm-moved", "shop/db-0").unwrap(), address, "by CNI_ARGS");
    assert_refused(&moving(&c, "third", "shop/db-0"), 103, &["shop/db-0 is held by a and b"]);
    assert_refused(&add(&b, "fourth", "shop/db-0"), 103, &["not available"]);
    a.del("vm");
    a.upkeep();
    assert_eq!(moving(&c, "third", "shop/db-0").unwrap(), address, "a holds it no longer");
    let mut config = config(&c, "shop/db-0");
    config["prevResult"] = json!({ "cniVersion": "1.1.0", "ips": [{ "address": address }] });
    c.call("CHECK", "third", "", &config).unwrap();
    for machine in [&a, &b, &c] {
        machine.operator(&["check"]);
    }
    assert!(a.operator(&["show"]).contains("shop/db-0  b c"), "{}", a.operator(&["show"]));
}

#[test]
fn a_claims_address_is_given_to_no_other_until_it_is_released() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let address = add(&a, "c0", "db").unwrap();
    assert!(a.operator_fails(&["release", "db"]).contains("claim db is held by a"));
    a.del("c0");
    a.upkeep();
    let (given, _) = b.fill();
    assert_eq!(given.len(), 12, "13 addresses, one of them the claim's");
    assert_distinct(given.iter().chain([&address]));
    assert_refused(
        &b.call("ADD", "c9", &format!("IP={}", address.split('/').next().unwrap()), &b.config()),
        103,
        &["belongs to claim db"],
    );
    assert_eq!(add(&b, "again", "db").unwrap(), address, "as for a StatefulSet's next pod");
    b.del("again");
    b.upkeep();
    assert!(a.operator(&["release", "db"]).contains("claim db is released"));
    assert_eq!(b.add("free").unwrap(), address);
    assert!(a.operator_fails(&["release", "db"]).contains("no claim db"));
    assert_refused(&add(&a, "c1", "other"), 105, &["no IP addresses available"]);
}

#[test]
fn a_claim_is_asked_for_in_words_that_can_be_its_name() {
    let cluster = cluster();
    let a = cluster.machine("a");
    assert_refused(&add(&a, "c0", "a b"), 7, &["args.cni.claim", "NAMESPACE/NAME"]);
    assert_refused(&a.call("ADD", "c0", "claim=\u{1b}[2J", &a.config()), 7, &["CNI_ARGS"]);
    let wanted = a.call("ADD", "c0", "IP=10.9.0.9;claim=web", &a.config()).unwrap();
    assert_eq!(wanted, "10.9.0.9/28", "the first ADD chooses");
    assert_refused(
        &a.call("ADD", "c1", "IP=10.9.0.8;claim=web", &a.config()),
        103,
        &["10.9.0.8 is not that of claim web, which has 10.9.0.9"],
    );
}

#[test]
fn a_claim_does_not_get_an_address_of_a_nodes_run() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let address = a.add("c0").unwrap().replace("/28", "");
    for machine in [&a, &b] {
        let asked = machine.call("ADD", "vm", &format!("IP={address};claim=db"), &machine.config());
        assert_refused(&asked, 103, &[&format!("requested IP address {address} belongs to node a")]);
    }
    assert!(cluster.state().claims.is_empty());
}

/// Two nodes hold the claim, and one of them gets a second range set first.
#[test]
fn a_claim_gets_an_address_of_a_second_range_set() {
    let cluster = cluster();
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let address = add(&a, "c0", "db").unwrap();
    assert_eq!(moving(&b, "c1", "db").unwrap(), address);
    let mut two = config(&a, "db");
    two["ipam"].as_object_mut().unwrap().remove("subnet");
    two["ipam"]["ranges"] = json!([[{ "subnet": "10.9.0.0/28" }], [{ "subnet": "fd09::/124" }]]);
    a.del("c0");
    assert_eq!(a.call("ADD", "c2", "claimMoves=true", &two).unwrap(), address);
    assert_eq!(cluster.state().claims["db"].addresses.len(), 2);
    for machine in [&a, &b] {
        machine.add("plain").unwrap();
        machine.operator(&["check"]);
    }
}

/// The annotation of a StatefulSet's template is the same for all replicas; the names of its pods are not.
#[test]
fn a_pods_name_is_its_claim_where_the_configuration_says_so() {
    let mut cluster = cluster();
    cluster.keys["claim"] = json!("pod");
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let pod = |machine: &Machine<'_>, container: &str, name: &str| {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID=1");
        machine.call("ADD", container, &args, &machine.config())
    };
    let given = [pod(&a, "c0", "db-0").unwrap(), pod(&b, "c1", "db-1").unwrap()];
    assert_distinct(given.iter());
    a.del("c0");
    a.upkeep();
    assert_eq!(pod(&b, "c2", "db-0").unwrap(), given[0], "a StatefulSet keeps its addresses");
    assert_refused(&a.add("c3"), 4, &["K8S_POD_NAME"]);
}

#[test]
fn a_forgotten_node_holds_no_claim() {
    let cluster = cluster();
    let (mut a, b, c) = (cluster.machine("a"), cluster.machine("b"), cluster.machine("c"));
    let address = add(&a, "c0", "db").unwrap();
    assert_eq!(moving(&b, "c1", "db").unwrap(), address);
    b.operator(&["forget", "a", "--fenced", "--force"]);
    assert_eq!(moving(&c, "c2", "db").unwrap(), address);
    // The node comes back with its container, whose address it does not get again.
    a.later_seconds = 4000;
    assert_refused(&add(&a, "c3", "db"), 103, &["held by b and c"]);
    assert!(a.operator_fails(&["check"]).contains("claim db"));
}
