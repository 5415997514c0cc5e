//! The reference's plugins and ours at once: many workers on one data folder and one bridge, each call made by either.
//! This is a test executable of its own, as it counts the processes that it leaves.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::collections::BTreeMap;
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testns::{Attachment, Call, Container, Node, Remains, Reply, Verb};

use faults::random::Random;
use faults::settings::number_or;
use faults::subjects::{self, Who};

const WORKERS: u64 = 32;

/// The network, at a version that both support; GC and STATUS exist from a later one on.
fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "ipMasq": true, "ipMasqBackend": "iptables",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/120"}]]}})
}

struct Load<'a> {
    node: &'a Node,
    /// Workers on a pod hold it shared, GC exclusively: the runtime keeps them apart (SPEC 2, GC).
    collecting: RwLock<()>,
    /// The owner of each address.
    held: Mutex<BTreeMap<String, String>>,
    calls: Mutex<BTreeMap<String, usize>>,
}

impl Load<'_> {
    fn call(
        &self,
        who: Who,
        verb: Verb,
        config: &Value,
        attachment: impl Into<Attachment>,
        prev: Option<&Value>,
    ) -> Reply {
        let call = Call::new(verb, config, attachment).deadline(Duration::from_secs(120));
        let call = prev.map_or(call.clone(), |prev| call.prev_result(prev));
        *self.calls.lock().unwrap().entry(format!("{who:?} {verb}")).or_default() += 1;
        subjects::by(who, self.node, "bridge", call).run(self.node)
    }

    /// Takes a pod from ADD to DEL.
    fn pod(&self, pod: &Container, numbers: &mut Random) {
        let mut who = || if numbers.one_in(2) { Who::Ours } else { Who::Reference };
        let (adds, checks, deletes) = (who(), who(), who());
        let config = config("1.0.0");
        let pods = self.collecting.read().unwrap();
        let result = self.call(adds, Verb::Add, &config, pod, None).ok();
        let addresses: Vec<_> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].to_string()).collect();
        assert_eq!(addresses.len(), 2);
        for address in &addresses {
            let other = self.held.lock().unwrap().insert(address.clone(), pod.id().to_owned());
            assert_eq!(other, None, "{address} was given to two pods");
        }
        self.call(checks, Verb::Check, &config, pod, Some(&result)).ok();
        drop(pods);
        if numbers.one_in(4) {
            self.call(Who::Ours, Verb::Status, &self::config("1.1.0"), Attachment::none(), None).ok();
        }
        if numbers.one_in(12) {
            self.collect();
        }
        let _pods = self.collecting.read().unwrap();
        self.call(checks, Verb::Check, &config, pod, Some(&result)).ok();
        addresses.iter().for_each(|address| drop(self.held.lock().unwrap().remove(address)));
        self.call(deletes, Verb::Del, &config, pod, Some(&result)).ok();
    }

    /// GC with every existing pod in the list, and one stale reservation.
    fn collect(&self) {
        let _alone = self.collecting.write().unwrap();
        let held = self.held.lock().unwrap().clone();
        let valid: Vec<_> = held.values().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
        let mut config = config("1.1.0");
        config["cni.dev/valid-attachments"] = json!(valid);
        // Outside the range: no ADD gives it to a container.
        let stale = "/var/lib/cni/networks/net/10.7.1.250";
        std::fs::write(stale, "gone\r\neth0").unwrap();
        let ended = self.call(Who::Ours, Verb::Gc, &config, Attachment::none(), None);
        assert!(!std::path::Path::new(stale).exists(), "GC left a stale reservation: {ended}");
        ended.ok();
    }
}

/// Names in the store that are addresses.
fn reservations() -> Vec<String> {
    let entries = std::fs::read_dir("/var/lib/cni/networks/net").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// How many processes DEL leaves at most where nothing waits for them: as in `helper_processes`.
const HELPERS: usize = 1;

/// Zombie children: plugins leave processes that outlive them to this process.
fn zombies() -> usize {
    let task = format!("/proc/self/task/{}/children", std::process::id());
    let children = std::fs::read_to_string(task).unwrap();
    let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    children.split_whitespace().filter(|pid| stat(pid).contains(") Z ")).count()
}

/// No address is given twice, no call fails, and nothing is left. `LOAD_SECONDS` is the duration.
#[test]
fn both_at_once_give_no_address_twice_fail_nothing_and_leave_nothing() {
    testns::needs!(subjects::has_reference());
    let node = subjects::node();
    let load = Load { node: &node, collecting: RwLock::default(), held: Mutex::default(), calls: Mutex::default() };
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    // The bridge and the store are made for the first pod, and stay.
    load.pod(&node.container(), &mut Random::from_seed(0));
    node.remember();
    let end = Instant::now() + Duration::from_secs(number_or("LOAD_SECONDS", 15));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (load, node) = (&load, &node);
            scope.spawn(move || {
                let mut numbers = Random::from_seed(worker);
                while Instant::now() < end {
                    let pod = node.container();
                    load.pod(&pod, &mut numbers);
                    pod.leave(Remains::Gone);
                }
            });
        }
    });
    testns::note(&format!("CALLS {:?}", load.calls.lock().unwrap()));
    assert_eq!(reservations(), [""; 0]);
    assert!(zombies() <= HELPERS, "{} processes were left where nothing waits for strangers", zombies());
    let is_note = |line: &str| line.contains("/last_reserved_ip.") || line.contains(" /run/cni");
    node.assert_as_before_except(|line| is_note(line) || subjects::is_the_kernels(line));
}
