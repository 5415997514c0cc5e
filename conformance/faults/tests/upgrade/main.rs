//! Upgrades under load: the executables are replaced while containers come and go without pause, and no call fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use conformance::configs::with;
use conformance::iptables::has_iptables;
use conformance::shared_objects::stays;
use conformance::subjects::reference_or_skip;
use conformance::wait;
use libcni::{NetworkConf, Runtime, RuntimeConf};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use testns::{Container, Node, note};

const WORKERS: usize = 2;
const DEADLINE: Duration = Duration::from_secs(60);
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// A node's folder of plugins, and a network whose plugins are all in it.
struct PluginFolder<'a> {
    node: &'a Node,
    bin_dir: PathBuf,
    network: NetworkConf,
}

impl<'a> PluginFolder<'a> {
    fn new(node: &'a Node, version: &str, own: Value) -> Self {
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]});
        let bridge = json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam});
        let plugins = [with(bridge, own), json!({"type": "loopback"})];
        let network = json!({"cniVersion": version, "name": "net", "plugins": plugins});
        let network = NetworkConf::parse(network.to_string().as_bytes()).unwrap();
        let bin_dir = node.work_dir().join("opt-cni-bin");
        fs::create_dir(&bin_dir).unwrap();
        Self { node, bin_dir, network }
    }

    fn runtime(&self) -> Runtime {
        Runtime::builder().plugin_dirs([&self.bin_dir]).build()
    }

    /// A release: `cnitool` and `cni-plugins`, each with a suffix that no other release has.
    fn build(&self, release: &str) -> PathBuf {
        let folder = self.node.work_dir().join(release);
        fs::create_dir(&folder).unwrap();
        let executables = [("cnitool", testns::cnitool()), ("cni-plugins", testns::plugins())];
        for (name, executable) in executables {
            copy(executable, &folder.join(name), release);
        }
        folder
    }

    fn install(&self, release: &Path) {
        let mut command = Command::new(release.join("cnitool"));
        command.args(["install", "--replace-foreign", "--bin-dir"]).arg(&self.bin_dir).env_clear();
        // What a later release has besides is none of the network's.
        command.args(PLUGINS.iter().flat_map(|name| ["--plugin", name]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.bin_dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    fn add(&self, pod: &Container) -> RuntimeConf {
        let attachment = RuntimeConf::new(pod.id(), "eth0").unwrap().netns(pod.namespace().path().to_str().unwrap());
        let result = wait(self.runtime().add(&self.network, &attachment)).unwrap();
        let all: Vec<_> =
            result.ips.iter().map(|ip| ip.address.to_string()).filter(|ip| !ip.starts_with("127.")).collect();
        assert_eq!(pod.namespace().global_addresses("eth0"), all);
        attachment
    }

    fn del(&self, pod: &Container, attachment: &RuntimeConf) {
        wait(self.runtime().del(&self.network, attachment)).unwrap();
        assert!(pod.namespace().find_link("eth0").is_none());
    }

    /// Adds and deletes by [`WORKERS`] without pause while `work` runs; a failed call fails the test. Returns how many
    /// ADDs began and ended during that time.
    fn under_load(&self, work: impl FnOnce(&Load)) -> usize {
        let load = Load::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    scope.spawn({
                        let load = &load;
                        move || self.work(worker, load)
                    })
                })
                .collect();
            let ends = EndsWork(&load);
            load.wait_for_adds(WORKERS);
            let before = load.adds();
            work(&load);
            let count = load.adds() - before;
            drop(ends);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            count
        })
    }

    fn work(&self, worker: usize, load: &Load) {
        let _ends = EndsWork(load);
        let pod = self.node.container_named(&format!("worker{worker}"));
        while !load.has_ended() {
            let attachment = self.add(&pod);
            load.change(|state| state.added += 1);
            self.del(&pod, &attachment);
        }
    }

    /// Nothing is left of any container, and the folder contains only what was installed.
    fn assert_clean(&self, more: &[&str]) {
        let mut files = [&PLUGINS, more].concat();
        files.sort_unstable();
        assert_eq!(self.files(), files);
        let cache = fs::read_dir("/var/lib/cni/results").unwrap().flatten().count();
        assert_eq!(cache, 0, "entries in the cache");
        self.node.assert_as_before_except(|line| {
            let stay = ["folder /var/lib/cni/results ", "/var/lib/cni/locks", " fe80::"];
            stays(line) || stay.iter().any(|part| line.contains(part))
        });
    }
}

/// The channel of commands to the workers and of their progress.
#[derive(Default)]
struct Load {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    added: usize,
    ended: bool,
}

impl Load {
    fn adds(&self) -> usize {
        self.state.lock().unwrap().added
    }

    fn has_ended(&self) -> bool {
        self.state.lock().unwrap().ended
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait_for_adds(&self, more: usize) {
        let state = self.state.lock().unwrap();
        let wanted = state.added + more;
        let is_waiting = |state: &mut State| state.added < wanted && !state.ended;
        let (_state, timeout) = self.changed.wait_timeout_while(state, DEADLINE, is_waiting).unwrap();
        assert!(!timeout.timed_out(), "no ADD within {DEADLINE:?}");
    }
}

/// Ends the workers, also when one of them, or the test, panics.
struct EndsWork<'a>(&'a Load);

impl Drop for EndsWork<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}

/// Copies an executable and appends `end`; ours is stripped first, where `strip` is there.
///
/// Other processes do this: a child that another thread of the test is just starting inherits every file that this
/// process has open for writing, and the kernel does not execute such a file.
fn copy(from: &Path, to: &Path, end: &str) {
    let lean = "{ [ -n \"$3\" ] && strip -o \"$2\" \"$1\" 2>/dev/null; } || cp \"$1\" \"$2\"";
    let script = format!("{{ {lean}; }} && printf %s \"$3\" >> \"$2\"");
    let status = Command::new("sh").args(["-c", &script, "sh"]).args([from, to]).arg(end).status().unwrap();
    assert!(status.success(), "cannot copy {}", from.display());
}

/// An upgrade from the reference to ours and back, as the README of `cnitool` says. Each time a container added by one is deleted
/// by the other.
#[test]
fn from_the_reference_to_ours_and_back_under_load() {
    const TIMES: usize = 3;
    let Some(reference) = reference_or_skip().filter(|_| has_iptables()) else { return };
    let node = Node::with(&reference);
    let place = PluginFolder::new(&node, "1.0.0", json!({"ipMasqBackend": "iptables"}));
    for name in PLUGINS {
        copy(&testns::find_reference().unwrap().join(name), &place.bin_dir.join(name), "");
    }
    let build = place.build("one");
    let start = Instant::now();
    let adds = place.under_load(|load| {
        for round in 0..TIMES {
            let theirs = node.container_named(&format!("theirs{round}"));
            let attachment = place.add(&theirs);
            place.install(&build);
            load.wait_for_adds(1);
            place.del(&theirs, &attachment);
            let ours = node.container_named(&format!("ours{round}"));
            let attachment = place.add(&ours);
            go_back(&place.bin_dir);
            load.wait_for_adds(1);
            place.del(&ours, &attachment);
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    note(&format!("{TIMES} times there and back in {seconds:.1} s, {adds} ADDs meanwhile"));
    assert!(adds >= 2 * TIMES, "only {adds} ADDs");
    place.assert_clean(&[".replaced", "cnitool"]);
}

/// `mv .replaced/* .`
fn go_back(bin_dir: &Path) {
    for entry in fs::read_dir(bin_dir.join(".replaced")).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), bin_dir.join(entry.file_name())).unwrap();
    }
}
