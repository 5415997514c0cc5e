//! Killed before any state-changing system call of ADD that claims, of DEL that gives back, both also with a claim, and of an operator's command.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use std::time::Duration;

use serde_json::{Value, json};
use testns::trace::Program;
use testns::{Attachment, Call, Node, Subject, Verb};

use crate::test_cluster::{self, PLUGIN};

/// Two nodes, `a` and `b`, in folders of one machine.
struct Bench<'a> {
    node: &'a Node,
    store: Value,
}

impl<'a> Bench<'a> {
    fn new(node: &'a Node, store: Value) -> Self {
        let bench = Self { node, store };
        bench.operate("b", &["init"]);
        bench
    }

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

    fn claim(&self, verb: Verb, name: &str, claim: &str) -> Call {
        self.call(verb, name, "vm").args(&format!("claim={claim}"))
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

    /// An operator's command that is killed before its nth call; that call.
    fn kill_operator(&self, name: &str, words: &[&str], n: usize) -> Option<String> {
        let path = self.node.work_dir().join("net.conf");
        std::fs::write(&path, self.config(name).to_string()).unwrap();
        let (first, rest) = words.split_first().unwrap();
        let arguments: Vec<_> =
            [*first, path.to_str().unwrap()].iter().chain(rest).map(|word| (*word).to_owned()).collect();
        let (executable, deadline) = (Path::new(PLUGIN), Duration::from_secs(60));
        let program = Program { executable, arguments: &arguments, environment: &[], stdin: "", deadline };
        program.kill_before(self.node, n).map(|hit| hit.to_string())
    }

    /// An operator's command for the second time, which may have nothing left to do.
    fn again(&self, name: &str, words: &[&str], nothing_left: &str, label: &str) {
        let path = self.node.work_dir().join("net.conf");
        let (first, rest) = words.split_first().unwrap();
        let output = Command::new(PLUGIN).arg(first).arg(&path).args(rest).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains(nothing_left), "{label}: {name}: {said}");
    }

    /// A node gets this many addresses and no more, none twice: nothing is lost.
    fn assert_gets(&self, name: &str, count: usize, label: &str) {
        let ids: Vec<_> = (0..count).map(|number| format!("all{number}")).collect();
        let given: BTreeSet<_> = ids.iter().map(|id| self.add(name, id)).collect();
        assert_eq!(given.len(), count, "{label}: {given:?}");
        self.call(Verb::Add, name, "more").run(self.node).fails_with(105);
        ids.iter().for_each(|id| self.del(name, id));
        self.operate(name, &["upkeep"]);
    }

    /// Both nodes together can use the range to its last address.
    fn assert_serves(&self, label: &str) {
        let mut given = BTreeSet::new();
        for (node, count) in [("a", 2), ("b", 2)] {
            for number in 0..count {
                assert!(given.insert(self.add(node, &format!("s{number}"))), "{label}: twice: {given:?}");
            }
        }
        assert!(self.operate("a", &["check"]).contains("no address in two"), "{label}");
        for node in ["a", "b"] {
            for number in 0..2 {
                self.del(node, &format!("s{number}"));
            }
            self.operate(node, &["upkeep"]);
        }
    }
}

/// Before each state-changing call of an ADD or DEL, and of the process that it starts for what is due then. Their number differs by how
/// far the processes of earlier calls have come: a DEL had 12 to 36 of them.
fn at_each_call(check: impl FnMut(usize) -> bool) {
    at_calls(6, check);
}

fn at_calls(least: usize, mut check: impl FnMut(usize) -> bool) {
    let count = (1..).take_while(|n| check(*n)).count();
    assert!(count >= least, "only {count} state-changing calls were seen");
}

/// A node whose only plugin is `cluster`.
pub(crate) fn node() -> Node {
    let node = Node::new();
    node.install_one(&Subject::Folder(Path::new(PLUGIN).parent().unwrap().to_owned()), "cluster");
    node
}

/// Kills ADD before each of its calls, while it claims.
pub(crate) fn kill_add(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
    bench.add("b", "other");
    at_each_call(|n| {
        // Each container needs a claim, as a run is one address.
        let hit = bench.call(Verb::Add, "a", "c1").kill_before(node, n).hit;
        let label = format!("ADD killed before {n}: {hit:?}");
        bench.del("a", "c1");
        bench.assert_serves(&label);
        std::fs::remove_dir_all("/var/lib/cni/a").unwrap();
        bench.operate("b", &["forget", "a", "--fenced", "--force"]);
        hit.is_some()
    });
}

/// Kills DEL before each of its calls, while it gives back.
pub(crate) fn kill_del(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
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

/// Kills ADD, and then DEL, with a claim before each of its calls. The claim keeps its address, and is released then.
pub(crate) fn kill_claim(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
    bench.add("a", "other");
    let claim = |verb, name: &str| bench.claim(verb, name, "db");
    let ip = |result: Value| result["ips"][0]["address"].as_str().unwrap().to_owned();
    for verb in [Verb::Add, Verb::Del] {
        at_each_call(|n| {
            let before = (verb == Verb::Del).then(|| ip(claim(Verb::Add, "a").run(node).ok()));
            let hit = claim(verb, "a").kill_before(node, n).hit;
            let label = format!("{verb} with a claim killed before {n}: {hit:?}");
            claim(Verb::Del, "a").run(node).ok();
            bench.operate("a", &["upkeep"]);
            let address = ip(claim(Verb::Add, "b").run(node).ok());
            assert!(before.is_none_or(|before| before == address), "{label}: {address}");
            assert!(bench.operate("b", &["check"]).contains("no address in two"), "{label}");
            claim(Verb::Del, "b").run(node).ok();
            bench.operate("b", &["upkeep"]);
            bench.operate("b", &["release", "db"]);
            hit.is_some()
        });
    }
    bench.del("a", "other");
}

/// Kills an operator's `forget` before each of its calls.
pub(crate) fn kill_forget(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
    let words = ["forget", "a", "--fenced", "--force"];
    bench.add("b", "other");
    at_calls(4, |n| {
        bench.add("a", "c1");
        bench.operate("a", &["upkeep"]);
        let hit = bench.kill_operator("b", &words, n);
        let label = format!("forget killed before {n}: {hit:?}");
        bench.again("b", &words, "no node a is recorded", &label);
        std::fs::remove_dir_all("/var/lib/cni/a").unwrap();
        assert!(bench.operate("b", &["check"]).contains("1 nodes"), "{label}");
        bench.assert_gets("b", 12, &label);
        hit.is_some()
    });
}

/// Kills an operator's `release` before each of its calls.
pub(crate) fn kill_release(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
    let words = ["release", "db"];
    bench.add("b", "other");
    at_calls(1, |n| {
        let given = bench.claim(Verb::Add, "a", "db").run(node).ok();
        bench.claim(Verb::Del, "a", "db").run(node).ok();
        bench.operate("a", &["upkeep"]);
        let hit = bench.kill_operator("b", &words, n);
        let label = format!("release killed before {n}: {hit:?}");
        bench.again("b", &words, "there is no claim db", &label);
        assert!(bench.operate("b", &["check"]).contains("0 claims"), "{label}");
        let address = given["ips"][0]["address"].as_str().unwrap().replace("/28", "");
        bench.call(Verb::Add, "b", "next").args(&format!("IP={address}")).run(node).ok();
        bench.del("b", "next");
        hit.is_some()
    });
}

/// Kills an operator's `import` before each of its calls.
pub(crate) fn kill_import(node: &Node, store: Value) {
    let bench = Bench::new(node, store);
    let file = node.work_dir().join("pools.json");
    let allocations = json!({ "5": { "podref": "shop/a" }, "6": { "podref": "shop/b" } });
    std::fs::write(&file, json!({ "spec": { "range": "10.9.0.0/28", "allocations": allocations } }).to_string())
        .unwrap();
    let words = ["import", file.to_str().unwrap()];
    bench.add("b", "other");
    at_calls(1, |n| {
        let hit = bench.kill_operator("b", &words, n);
        let label = format!("import killed before {n}: {hit:?}");
        assert!(bench.operate("b", &words).contains("2 addresses are those of 2 claims now"), "{label}");
        assert!(bench.operate("b", &["check"]).contains("2 claims"), "{label}");
        for (claim, address) in [("shop/a", "10.9.0.5/28"), ("shop/b", "10.9.0.6/28")] {
            let given = bench.claim(Verb::Add, "a", claim).run(node).ok();
            assert_eq!(given["ips"][0]["address"], address, "{label}");
            bench.claim(Verb::Del, "a", claim).run(node).ok();
            bench.operate("a", &["upkeep"]);
            bench.operate("b", &["release", claim]);
        }
        hit.is_some()
    });
}

/// Removes the data folders of both nodes.
pub(crate) fn empty_folders() {
    ["a", "b"].iter().for_each(|name| drop(std::fs::remove_dir_all(Path::new("/var/lib/cni").join(name))));
}

/// Kills an operator's `repair` before each of its calls, after the folder of the store went back to a copy.
fn kill_repair(node: &Node, store: Value) {
    let path = std::path::PathBuf::from(store["path"].as_str().unwrap()).join("net");
    let bench = Bench::new(node, store);
    let saved = tempfile::tempdir().unwrap();
    let saved = saved.path().join("net");
    at_calls(4, |n| {
        let first = bench.add("a", "c1");
        bench.operate("a", &["upkeep"]);
        test_cluster::copy(&path, &saved);
        let more = ["c2", "c3"].map(|id| bench.add("a", id));
        bench.operate("a", &["upkeep"]);
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&saved, &path).unwrap();
        let hit = bench.kill_operator("a", &["repair"], n);
        let label = format!("repair killed before {n}: {hit:?}");
        bench.operate("a", &["repair"]);
        assert!(bench.operate("a", &["check"]).contains("no address in two"), "{label}");
        let others: BTreeSet<_> = (0..3).map(|number| bench.add("b", &format!("b{number}"))).collect();
        assert!(
            others.len() == 3 && more.iter().chain([&first]).all(|own| !others.contains(own)),
            "{label}: {others:?}"
        );
        (0..3).for_each(|number| bench.del("b", &format!("b{number}")));
        bench.operate("b", &["upkeep"]);
        bench.operate("b", &["forget", "a", "--fenced", "--force"]);
        std::fs::remove_dir_all("/var/lib/cni/a").unwrap();
        bench.assert_gets("b", 13, &label);
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

#[test]
fn calls_with_a_claim_killed_anywhere_lose_no_claim_and_no_address() {
    let (_folder, store) = folder();
    kill_claim(&node(), store);
}

#[test]
fn an_operators_commands_killed_anywhere_are_called_again() {
    let node = node();
    for kill in [kill_forget, kill_release, kill_import] {
        let (_folder, store) = folder();
        kill(&node, store);
        empty_folders();
    }
    let (_folder, store) = folder();
    kill_repair(&node, store);
}
