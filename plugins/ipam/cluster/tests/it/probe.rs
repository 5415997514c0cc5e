//! `check --probe`: real containers, and a station of the network that has what it should not have.

use std::process::{Command, Output};

use serde_json::{Value, json};
use testns::{Call, Container, Feature, Namespace, Node, Subject, Verb};

use crate::crash;
use crate::test_cluster::PLUGIN;

/// A node with macvlans on `eth0`, whose other end is a station.
struct Lan {
    node: Node,
    station: Namespace,
    store: tempfile::TempDir,
}

impl Lan {
    fn new() -> Self {
        let node = crash::node();
        node.install_one(&Subject::ours(), "macvlan");
        let station = node.remote("station");
        node.host().add_veth("eth0", &station, "eth0");
        let lan = Self { node, station, store: tempfile::tempdir().unwrap() };
        assert!(lan.command("init", &lan.config()).output().unwrap().status.success());
        lan
    }

    fn config(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "eth0",
            "ipam": self.ipam("a", &json!([[{ "subnet": "10.9.0.0/27" }], [{ "subnet": "fd09::/120" }]])),
        })
    }

    fn ipam(&self, node: &str, ranges: &Value) -> Value {
        json!({
            "type": "cluster", "claimSize": 4, "node": node, "store": { "path": self.store.path() }, "ranges": ranges,
            "dataDir": format!("/var/lib/cni/{node}"),
        })
    }

    /// A container; its addresses.
    fn add(&self) -> (Container, Vec<String>) {
        self.add_as(&self.config(), "")
    }

    fn add_as(&self, config: &Value, args: &str) -> (Container, Vec<String>) {
        let pod = self.node.container_without_probes();
        let result = Call::new(Verb::Add, config.clone(), &pod).args(args).run(&self.node).ok();
        let bare = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let addresses = result["ips"].as_array().unwrap().iter().map(bare).collect();
        (pod, addresses)
    }

    fn probe(&self, words: &[&str]) -> Output {
        self.probe_as(&self.config(), words)
    }

    fn probe_as(&self, config: &Value, words: &[&str]) -> Output {
        self.command("check", config).arg("--probe").args(words).output().unwrap()
    }

    fn command(&self, verb: &str, config: &Value) -> Command {
        let path = self.node.work_dir().join("net.conf");
        std::fs::write(&path, config.to_string()).unwrap();
        let mut command = Command::new(PLUGIN);
        command.arg(verb).arg(path);
        command
    }

    /// Probes until the outcome is as expected: on a loaded machine an answer may come after the command has ended. The last
    /// outcome, if none is.
    fn probe_until(&self, config: &Value, words: &[&str], is_expected: impl Fn(&Output) -> bool) -> Output {
        let mut output = self.probe_as(config, words);
        for _again in 0..4 {
            if is_expected(&output) {
                break;
            }
            output = self.probe_as(config, words);
        }
        output
    }

    /// Stdout of a probe without a fault, with that text in it.
    #[track_caller]
    fn says(&self, config: &Value, expected: &str) -> String {
        let output = self.probe_until(config, &[], |output| contains(&output.stdout, expected));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(expected), "no {expected:?}: {said}");
        said
    }

    #[track_caller]
    fn assert_finds(&self, expected: &[&str]) {
        self.assert_finds_as(&self.config(), expected);
    }

    #[track_caller]
    fn assert_finds_as(&self, config: &Value, expected: &[&str]) {
        let has_all = |output: &Output| expected.iter().all(|expected| contains(&output.stderr, expected));
        let output = self.probe_until(config, &[], has_all);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&output.stdout));
        for expected in expected {
            assert!(said.contains(expected), "no {expected:?}: {said}");
        }
    }
}

fn contains(output: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(output).contains(text)
}

#[test]
fn the_network_is_asked_who_has_an_address() {
    testns::needs!(Feature::Macvlan.or_skip());
    let lan = Lan::new();
    let ((first, own), (second, others)) = (lan.add(), lan.add());
    let macs = [&first, &second].map(|pod| pod.namespace().link("eth0").mac);
    let is_complete = |output: &Output| {
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        value["probe"]["answers"].as_object().is_some_and(|answers| answers.len() == 4)
    };
    let output = lan.probe_until(&lan.config(), &["--json"], is_complete);
    let said = String::from_utf8_lossy(&output.stderr);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let answers = &value["probe"]["answers"];
    assert_eq!(answers.as_object().unwrap().len(), 4, "{value:#}");
    for (addresses, mac) in [(&own, &macs[0]), (&others, &macs[1])] {
        for address in addresses {
            assert_eq!(answers[address], json!([mac]), "{value:#}");
        }
    }
    assert_eq!(value["probe"]["silent"], json!([]));
    assert!(lan.node.host().find_link("probe0").is_none(), "the link that asks is gone");

    // A second station with an address of each family.
    let station = lan.station.link("eth0").mac;
    for (address, prefix) in [(&own[0], 27), (&own[1], 120)] {
        let with_prefix = format!("{address}/{prefix}");
        lan.station.add_address("eth0", &with_prefix);
        lan.assert_finds(&[&format!("{address} is answered by "), &station, &macs[0], "two stations have it"]);
        lan.station.delete_address("eth0", &with_prefix);
    }
    // An address that no run has, and one of this node's run that no container has.
    lan.station.add_address("eth0", "10.9.0.14/27");
    lan.station.add_address("eth0", "10.9.0.5/27");
    lan.assert_finds(&[
        &format!("10.9.0.14 is answered by {station}, and is in no run"),
        &format!("10.9.0.5 is answered by {station}, and is in a run of this node, which has no container with it"),
    ]);
    lan.station.delete_address("eth0", "10.9.0.5/27");
    lan.station.delete_address("eth0", "10.9.0.14/27");

    // A container that lost its address is no fault of the records.
    second.namespace().delete_addresses("eth0");
    let output = lan.probe(&[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let id = second.id();
    assert!(said.contains(&format!("{} of container {id} is held here, and no station answers", others[0])), "{said}");
    let said = String::from_utf8_lossy(&lan.probe(&["--link", "none"]).stderr).into_owned();
    assert!(said.contains("cannot ask the network") && said.contains("--link LINK"), "{said}");
}

/// Nothing was heard of the node for long, and a container of it answers.
#[test]
fn a_node_whose_containers_answer_is_forgotten_by_force_only() {
    testns::needs!(Feature::Macvlan.or_skip());
    let lan = Lan::new();
    let (pod, own) = lan.add();
    assert!(lan.command("upkeep", &lan.config()).output().unwrap().status.success());
    let folder = lan.store.path().join("net/nodes/a");
    let newest = (1..).take_while(|number| folder.join(number.to_string()).exists()).last().unwrap();
    let mut record: Value = serde_json::from_slice(&std::fs::read(folder.join(newest.to_string())).unwrap()).unwrap();
    record["heardAt"] = json!(0);
    std::fs::write(folder.join((newest + 1).to_string()), record.to_string()).unwrap();
    let forget = |more: &[&str]| {
        let output = lan.command("forget", &lan.config()).args(["a", "--fenced"]).args(more).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_done, said) = forget(&[]);
    let answer = format!("{} is answered by {}", own[0], pod.namespace().link("eth0").mac);
    assert!(!is_done && said.contains(&answer) && said.contains("--force"), "{said}");
    assert!(forget(&["--force"]).0);
}

/// As in a live migration: both nodes hold the claim, and both containers answer.
#[test]
fn a_claim_that_moves_is_answered_twice_and_is_no_conflict() {
    testns::needs!(Feature::Macvlan.or_skip());
    let lan = Lan::new();
    let of = |node: &str| {
        let ipam = lan.ipam(node, &json!([[{ "subnet": "10.9.0.0/28" }]]));
        json!({ "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "eth0", "ipam": ipam })
    };
    let (source, address) = lan.add_as(&of("a"), "claim=vm;IgnoreUnknown=1");
    let (target, moved) = lan.add_as(&of("b"), "claim=vm;claimMoves=true;IgnoreUnknown=1");
    assert_eq!(address, moved);
    let macs = [&source, &target].map(|pod| pod.namespace().link("eth0").mac);
    for node in ["a", "b"] {
        let said = lan.says(&of(node), "two nodes hold claim vm, as while it moves");
        assert!(macs.iter().all(|mac| said.contains(mac)), "{said}");
    }
    // A third station is none of the two.
    let (station, with_prefix) = (lan.station.link("eth0").mac, format!("{}/28", address[0]));
    lan.station.add_address("eth0", &with_prefix);
    lan.assert_finds_as(&of("a"), &[&station, &macs[0], &macs[1], "3 stations have it, and 2 nodes hold claim vm"]);
    // The target alone holds it: another answer is a conflict.
    Call::new(Verb::Del, of("a"), &source).run(&lan.node).ok();
    lan.assert_finds_as(&of("b"), &[&station, &macs[1], "two stations have it"]);
    lan.station.delete_address("eth0", &with_prefix);
    let said = lan.says(&of("b"), ", 1 are answered");
    assert!(!said.contains("moves"), "{said}");
}

/// The node's containers are ports of a bridge, or macvlans on one; another port leads to the station.
#[test]
fn a_bridge_asks_its_ports_and_a_macvlan_on_a_bridge_those_beside_it() {
    testns::needs!(Feature::Macvlan.or_skip());
    for keys in [json!({ "type": "bridge", "bridge": "br0" }), json!({ "type": "macvlan", "master": "br0" })] {
        let lan = Lan::new();
        let ipam = lan.ipam("a", &json!([[{ "subnet": "10.9.0.0/28" }]]));
        let mut config = json!({ "cniVersion": "1.1.0", "name": "net", "ipam": ipam });
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        lan.node.install_one(&Subject::ours(), "bridge");
        lan.node.host().add_link("br0", "bridge");
        lan.node.host().set_master("eth0", "br0");
        let (pod, address) = lan.add_as(&config, "");
        let mac = pod.namespace().link("eth0").mac;
        let said = lan.says(&config, "on br0, 1 are answered");
        assert!(!said.contains("no station answers"), "{keys}: {said}");
        let (station, with_prefix) = (lan.station.link("eth0").mac, format!("{}/28", address[0]));
        lan.station.add_address("eth0", &with_prefix);
        lan.assert_finds_as(&config, &[&mac, &station, "two stations have it"]);
    }
    // Without the key it is the plugin's default.
    let lan = Lan::new();
    let ipam = lan.ipam("a", &json!([[{ "subnet": "10.9.0.0/28" }]]));
    let config = json!({ "cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": ipam });
    lan.assert_finds_as(&config, &["cannot ask the network", "cni0", "--link LINK"]);
}
