//! Killed before any state-changing system call of ADD that claims, and of DEL that gives back.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testns::{Attachment, Call, Node, Subject, Verb};

use crate::machine::PLUGIN;

/// Two nodes, `a` and `b`, in folders of one machine.
struct Bench<'a> {
    node: &'a Node,
    store: Value,
}

impl Bench<'_> {
    fn config(&self, name: &str) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "net", "type": "cluster",
            "ipam": {
                "type": "cluster", "subnet": "10.9.0.0/28", "claimSize": 1, "node": name,
                "dataDir": format!("/var/lib/cni/{name}"), "store": self.store,
            },
        })
    }

    fn call(&self, verb: Verb, name: &str, id: &str) -> Call {
        let netns = "/var/run/netns/none".to_owned();
        Call::new(verb, self.config(name), Attachment { container_id: id.to_owned(), netns, ifname: "eth0".to_owned() })
    }

    fn add(&self, name: &str, id: &str) -> String {
        let result = self.call(Verb::Add, name, id).run(self.node).ok();
        result["ips"][0]["address"].as_str().unwrap().to_owned()
    }

    fn del(&self, name: &str, id: &str) {
        self.call(Verb::Del, name, id).run(self.node).ok();
    }

    /// An operator's command; its output.
    fn operate(&self, name: &str, words: &[&str]) -> String {
        let path = self.node.work_dir().join("net.conf");
        std::fs::write(&path, self.config(name).to_string()).unwrap();
        let (first, rest) = words.split_first().unwrap();
        let output = Command::new(PLUGIN).arg(first).arg(&path).args(rest).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Both nodes together can use the range to its last address.
    fn assert_serves(&self, label: &str) {
        assert!(self.operate("a", &["check"]).contains("no address in two"), "{label}");
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

/// A node whose only plugin is `cluster`.
pub(crate) fn node() -> Node {
    let node = Node::new();
    node.install_one(&Subject::Folder(Path::new(PLUGIN).parent().unwrap().to_owned()), "cluster");
    node
}

/// Kills ADD before each of its calls, while it claims.
pub(crate) fn kill_add(node: &Node, store: Value) {
    let bench = Bench { node, store };
    bench.add("b", "other");
    at_each_call(|n| {
        // Each container needs a claim, as a run is one address.
        let hit = bench.call(Verb::Add, "a", "c1").kill_before(node, n).hit;
        let label = format!("ADD killed before {n}: {hit:?}");
        bench.del("a", "c1");
        bench.assert_serves(&label);
        std::fs::remove_dir_all("/var/lib/cni/a").unwrap();
        bench.operate("b", &["forget", "a", "--fenced"]);
        hit.is_some()
    });
}

/// Kills DEL before each of its calls, while it gives back.
pub(crate) fn kill_del(node: &Node, store: Value) {
    let bench = Bench { node, store };
    at_each_call(|n| {
        for id in ["c1", "c2", "c3"] {
            bench.add("a", id);
        }
        for id in ["c2", "c3"] {
            bench.del("a", id);
        }
        let hit = bench.call(Verb::Del, "a", "c1").kill_before(node, n).hit;
        let label = format!("DEL killed before {n}: {hit:?}");
        bench.del("a", "c1");
        bench.assert_serves(&label);
        hit.is_some()
    });
}

fn folder() -> (tempfile::TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let keys = json!({ "path": folder.path() });
    (folder, keys)
}

#[test]
fn add_killed_anywhere_while_it_claims_leaves_nothing_owned_twice() {
    let (_folder, store) = folder();
    kill_add(&node(), store);
}

#[test]
fn del_killed_anywhere_while_it_gives_back_leaves_nothing_owned_twice() {
    let (_folder, store) = folder();
    kill_del(&node(), store);
}
