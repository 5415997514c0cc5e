//! `check --probe`: real containers, and a station of the network that has what it should not have.

use std::process::{Command, Output};

use serde_json::{Value, json};
use testns::{Call, Container, Feature, Namespace, Node, Subject, Verb};

use crate::crash;
use crate::machine::PLUGIN;

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
        Self { node, station, store: tempfile::tempdir().unwrap() }
    }

    fn config(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "eth0",
            "ipam": {
                "type": "cluster", "claimSize": 4, "node": "a", "store": { "path": self.store.path() },
                "ranges": [[{ "subnet": "10.9.0.0/28" }], [{ "subnet": "fd09::/124" }]],
            },
        })
    }

    /// A container; its addresses.
    fn add(&self) -> (Container, Vec<String>) {
        let pod = self.node.container_without_probes();
        let result = Call::new(Verb::Add, self.config(), &pod).run(&self.node).ok();
        let bare = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let addresses = result["ips"].as_array().unwrap().iter().map(bare).collect();
        (pod, addresses)
    }

    fn probe(&self, words: &[&str]) -> Output {
        let path = self.node.work_dir().join("net.conf");
        std::fs::write(&path, self.config().to_string()).unwrap();
        Command::new(PLUGIN).arg("check").arg(&path).arg("--probe").args(words).output().unwrap()
    }

    #[track_caller]
    fn assert_finds(&self, expected: &[&str]) {
        let output = self.probe(&[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&output.stdout));
        for expected in expected {
            assert!(said.contains(expected), "no {expected:?}: {said}");
        }
    }
}

#[test]
fn the_network_is_asked_who_has_an_address() {
    testns::needs!(Feature::Macvlan.or_skip());
    let lan = Lan::new();
    let ((first, own), (second, others)) = (lan.add(), lan.add());
    let macs = [&first, &second].map(|pod| pod.namespace().link("eth0").mac);
    let output = lan.probe(&["--json"]);
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
    for (address, prefix) in [(&own[0], 28), (&own[1], 124)] {
        let with_prefix = format!("{address}/{prefix}");
        lan.station.add_address("eth0", &with_prefix);
        lan.assert_finds(&[&format!("{address} is answered by "), &station, &macs[0], "two stations have it"]);
        lan.station.delete_address("eth0", &with_prefix);
    }
    // An address that no run has, and one of this node's run that no container has.
    lan.station.add_address("eth0", "10.9.0.14/28");
    lan.station.add_address("eth0", "10.9.0.5/28");
    lan.assert_finds(&[
        &format!("10.9.0.14 is answered by {station}, and is in no run"),
        &format!("10.9.0.5 is answered by {station}, and is in a run of this node, which has no container with it"),
    ]);
    lan.station.delete_address("eth0", "10.9.0.5/28");
    lan.station.delete_address("eth0", "10.9.0.14/28");

    // A container that lost its address is no fault of the records.
    second.namespace().delete_addresses("eth0");
    let output = lan.probe(&[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let id = second.id();
    assert!(said.contains(&format!("{} of container {id} is held here, and nobody answers", others[0])), "{said}");
    let said = String::from_utf8_lossy(&lan.probe(&["--link", "none"]).stderr).into_owned();
    assert!(said.contains("cannot ask the network") && said.contains("--link LINK"), "{said}");
}
