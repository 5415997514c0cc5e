//! `ctr run --cni`: containerd's library calls the plugins, with `/proc/PID/ns/net` for ADD and no namespace for DEL.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use clients::DEADLINE;
use clients::containerd::{Daemon, IMAGE};
use testns::Namespace;

use crate::networks::{self, GATEWAYS, NAME};

const NETWORKS: &str = "/etc/cni/net.d";

/// A container and the `ctr` that waits for its end, to take its network down.
struct Running<'daemon> {
    daemon: &'daemon Daemon,
    name: &'static str,
    ctr: Child,
}

impl<'daemon> Running<'daemon> {
    /// Starts a container. Its process says a word, which it can only when its network is set up.
    fn start(daemon: &'daemon Daemon, name: &'static str) -> Self {
        let program = "echo up; exec sleep 1000000";
        let mut command = daemon.ctr(&["run", "--rm", "--cni", IMAGE, name, "sh", "-c", program]);
        let mut ctr = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = ctr.stdout.take().unwrap();
        let (say, hear) = channel();
        thread::spawn(move || say.send(BufReader::new(stdout).lines().next()));
        let word = hear.recv_timeout(DEADLINE).unwrap();
        assert_eq!(word.map(Result::unwrap).as_deref(), Some("up"), "{name} does not start");
        Self { daemon, name, ctr }
    }

    fn container_id(&self) -> String {
        format!("default-{}", self.name)
    }

    fn namespace(&self) -> Namespace {
        let tasks = self.daemon.run_ctr(&["task", "list"]).stdout;
        let line = tasks.lines().find(|line| line.split_whitespace().next() == Some(self.name));
        let pid = line.and_then(|line| line.split_whitespace().nth(1)).unwrap();
        Namespace::at(format!("/proc/{pid}/ns/net"))
    }

    fn ping(&self, address: &str) {
        let exec = ["task", "exec", "--exec-id", "ping", self.name, "ping", "-c", "1", "-W", "10", address];
        let output = self.daemon.run_ctr(&exec);
        assert_eq!(output.code(), 0, "{}{}", output.stdout, output.stderr);
    }

    fn end(mut self) {
        let killed = self.daemon.run_ctr(&["task", "kill", "--signal", "KILL", self.name]);
        assert_eq!(killed.code(), 0, "{}", killed.stderr);
        self.ctr.wait().unwrap();
    }
}

fn without_prefix(address: &str) -> &str {
    address.split('/').next().unwrap_or_default()
}

/// A container has the addresses that the cache entry of its attachment says, and reaches its gateway and its
/// neighbour.
#[test]
fn ctr_run_gives_containers_a_network() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.import_images("default");
    daemon.configure(NETWORKS, "10-pods.conflist", &networks::pods());
    let (first, second) = (Running::start(&daemon, "first"), Running::start(&daemon, "second"));
    let mut addresses = Vec::new();
    for container in [&first, &second] {
        let cached = daemon.cached(&container.container_id());
        assert_eq!(cached.len(), 1, "{cached:?}");
        let mut live = container.namespace().global_addresses("eth0");
        let mut reported = cached[0].addresses();
        (live.sort(), reported.sort());
        assert_eq!(live, reported);
        assert_eq!(live.len(), 2);
        addresses.push(live);
    }
    for address in GATEWAYS.into_iter().chain(addresses[1].iter().map(|address| without_prefix(address))) {
        first.ping(address);
    }
    first.end();
    second.end();
}

/// After the end of a container nothing of it is left, beside another that runs; after the last one, only the network's
/// bridge.
#[test]
fn ctr_run_leaves_nothing() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.import_images("default");
    daemon.configure(NETWORKS, "10-pods.conflist", &networks::pods());
    let stays = Running::start(&daemon, "stays");
    daemon.remember_settled();
    let goes = Running::start(&daemon, "goes");
    assert_eq!(daemon.cached(&goes.container_id()).len(), 1);
    // The namespace outlives the container here, so only DEL removes the link, and it gets no namespace.
    let held = File::open(goes.namespace().path()).unwrap();
    goes.end();
    daemon.assert_as_before_except(networks::is_counter);
    drop(held);
    let id = stays.container_id();
    stays.end();
    assert_eq!((daemon.reservations(NAME), daemon.cached(&id)), (vec![], vec![]));
    let now = daemon.snapshot();
    let of_container = |line: &&String| line.contains(&id) || line.contains("veth");
    assert_eq!(now.lines().iter().filter(of_container).collect::<Vec<_>>(), [""; 0]);
}
