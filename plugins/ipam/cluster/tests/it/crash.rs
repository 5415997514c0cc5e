//! Killed before any state-changing system call of ADD that claims, and of DEL that gives back.

use std::collections::BTreeSet;
use std::path::Path;

use cluster::protocol;
use serde_json::json;
use testns::{Attachment, Call, Node, Subject, Verb};

use crate::machine::PLUGIN;

struct Bench {
    node: Node,
    store: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bin = Path::new(PLUGIN).parent().unwrap();
        let node = Node::new();
        node.install_one(&Subject::Folder(bin.to_owned()), "cluster");
        Self { node, store: tempfile::tempdir().unwrap() }
    }

    fn call(&self, verb: Verb, name: &str, id: &str) -> Call {
        let config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "cluster",
            "ipam": {
                "type": "cluster", "subnet": "10.9.0.0/28", "claimSize": 1, "node": name,
                "dataDir": format!("/var/lib/cni/{name}"), "store": { "path": self.store.path() },
            },
        });
        let netns = "/var/run/netns/none".to_owned();
        Call::new(verb, config, Attachment { container_id: id.to_owned(), netns, ifname: "eth0".to_owned() })
    }

    fn add(&self, name: &str, id: &str) -> String {
        let result = self.call(Verb::Add, name, id).run(&self.node).ok();
        result["ips"][0]["address"].as_str().unwrap().to_owned()
    }

    fn del(&self, name: &str, id: &str) {
        self.call(Verb::Del, name, id).run(&self.node).ok();
    }

    /// Both nodes together can use the range to its last address.
    fn assert_serves(&self, label: &str) {
        let bytes = std::fs::read(self.store.path().join("net.json")).unwrap();
        let state = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(protocol::faults(&state), [] as [String; 0], "{label}");
        let mut given = BTreeSet::new();
        for (node, count) in [("a", 2), ("b", 2)] {
            for number in 0..count {
                assert!(given.insert(self.add(node, &format!("s{number}"))), "{label}: twice: {given:?}");
            }
        }
        for node in ["a", "b"] {
            for number in 0..2 {
                self.del(node, &format!("s{number}"));
            }
        }
    }
}

fn at_each_call(mut check: impl FnMut(usize) -> bool) {
    let count = (1..).take_while(|n| check(*n)).count();
    assert!(count >= 12, "only {count} state-changing calls were seen");
}

#[test]
fn add_killed_anywhere_while_it_claims_leaves_nothing_owned_twice() {
    let bench = Bench::new();
    bench.add("b", "other");
    at_each_call(|n| {
        // Each container needs a claim, as a run is one address.
        let hit = bench.call(Verb::Add, "a", "c1").kill_before(&bench.node, n).hit;
        let label = format!("ADD killed before {n}: {hit:?}");
        bench.del("a", "c1");
        bench.assert_serves(&label);
        std::fs::remove_dir_all("/var/lib/cni/a").unwrap();
        bench.forget("a");
        hit.is_some()
    });
}

#[test]
fn del_killed_anywhere_while_it_gives_back_leaves_nothing_owned_twice() {
    let bench = Bench::new();
    at_each_call(|n| {
        for id in ["c1", "c2", "c3"] {
            bench.add("a", id);
        }
        for id in ["c2", "c3"] {
            bench.del("a", id);
        }
        let hit = bench.call(Verb::Del, "a", "c1").kill_before(&bench.node, n).hit;
        let label = format!("DEL killed before {n}: {hit:?}");
        bench.del("a", "c1");
        bench.assert_serves(&label);
        hit.is_some()
    });
}

impl Bench {
    fn forget(&self, name: &str) {
        let path = self.store.path().join("net.json");
        let state: protocol::State = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let Some(begun) = protocol::begin_to_forget(&state, name) else { return };
        let ended = protocol::end_forgetting(&begun, name).unwrap();
        std::fs::write(path, serde_json::to_string(&ended).unwrap()).unwrap();
    }
}
