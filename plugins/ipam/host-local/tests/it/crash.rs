//! Killed before any state-changing system call, or with that call failing: DEL removes everything that is left.

use std::path::{Path, PathBuf};

use testns::{Attachment, Call, Node, Subject, Verb};

use crate::call::{Net, OURS};

const KEYS: &str = r#""ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/64"}]]"#;

struct Bench {
    node: Node,
    net: Net,
}

impl Bench {
    /// A node with two containers of which the second was deleted, so that all files are there.
    fn new() -> Self {
        let node = Node::with(&Subject::Multicall(PathBuf::from(&*OURS)));
        let net = Net::new(Path::new("/var/lib/cni/networks"), KEYS);
        let bench = Self { node, net };
        bench.call(Verb::Add, "other").run(&bench.node).ok();
        bench.call(Verb::Add, "gone").run(&bench.node).ok();
        bench.call(Verb::Del, "gone").run(&bench.node).ok();
        bench
    }

    fn call(&self, verb: Verb, id: &str) -> Call {
        let (container_id, ifname) = (id.to_owned(), "eth0".to_owned());
        let attachment = Attachment { container_id, netns: "/var/run/netns/none".to_owned(), ifname };
        Call::new(verb, self.net.config(), attachment)
    }

    /// Nothing but the other container's reservations, complete, and the files that stay.
    fn assert_clean(&self, label: &str) {
        let reservations = self.net.reservations();
        let expected = ["10.0.0.2", "fd00::2"].map(|name| (name.to_owned(), "other\r\neth0".to_owned()));
        assert_eq!(reservations.into_iter().collect::<Vec<_>>(), expected, "{label}");
        assert_eq!(self.net.others(), ["last_reserved_ip.0", "last_reserved_ip.1", "lock"], "{label}");
    }

    /// The store still works: an address each for a new container, and then again as before.
    fn assert_serves(&self, label: &str) {
        self.call(Verb::Check, "other").run(&self.node).ok();
        let result = self.call(Verb::Add, "next").run(&self.node).ok();
        assert_eq!(result["ips"].as_array().map(Vec::len), Some(2), "{label}: {result}");
        self.call(Verb::Del, "next").run(&self.node).ok();
        self.assert_clean(label);
    }
}

/// Runs `check` for n = 1, 2, ... until it reports that there was no nth call.
fn at_each_call(mut check: impl FnMut(usize) -> bool) {
    let count = (1..).take_while(|n| check(*n)).count();
    assert!(count >= 8, "only {count} state-changing calls were seen");
}

#[test]
fn add_killed_anywhere_leaves_nothing_after_del() {
    let bench = Bench::new();
    at_each_call(|n| {
        let hit = bench.call(Verb::Add, "c1").kill_before(&bench.node, n).hit;
        let label = format!("ADD killed before {n}: {hit:?}");
        for (name, content) in bench.net.reservations() {
            assert!(content.ends_with("\r\neth0"), "{label}: {name} is not complete: {content:?}");
        }
        bench.call(Verb::Del, "c1").run(&bench.node).ok();
        bench.assert_clean(&label);
        bench.assert_serves(&label);
        hit.is_some()
    });
}

#[test]
fn del_killed_anywhere_leaves_nothing_after_del() {
    let bench = Bench::new();
    at_each_call(|n| {
        bench.call(Verb::Add, "c1").run(&bench.node).ok();
        let hit = bench.call(Verb::Del, "c1").kill_before(&bench.node, n).hit;
        let label = format!("DEL killed before {n}: {hit:?}");
        bench.call(Verb::Del, "c1").run(&bench.node).ok();
        bench.assert_clean(&label);
        bench.assert_serves(&label);
        hit.is_some()
    });
}

/// ADD either succeeds or has reserved nothing, whichever of its calls the disk refuses.
#[test]
fn add_on_a_failing_disk_is_all_or_nothing() {
    let bench = Bench::new();
    at_each_call(|n| {
        let traced = bench.call(Verb::Add, "c1").fail_at(&bench.node, n, nix::errno::Errno::ENOSPC);
        let label = format!("ADD with {n} failing: {:?}", traced.hit);
        if traced.reply.output.code() == 0 {
            bench.call(Verb::Check, "c1").run(&bench.node).ok();
            bench.call(Verb::Del, "c1").run(&bench.node).ok();
        } else {
            let left = bench.net.reservations().into_values().filter(|content| content.starts_with("c1")).count();
            // A result that cannot be printed is lost with its reader; the DEL that follows releases.
            let printing = traced.hit.as_ref().is_some_and(|call| call.name() == "write" && call.arguments[0] == 1);
            assert!(left == 0 || printing, "{label}: {left} reservations are left");
            bench.call(Verb::Del, "c1").run(&bench.node).ok();
        }
        bench.assert_clean(&label);
        bench.assert_serves(&label);
        traced.hit.is_some()
    });
}
