//! Sick nodes at random: three or four faults at once, while two pods exchange packets with each other and with a machine beyond
//! the node. `cnitool doctor` has to name each fault, each remedy that is a command is run as it is printed, and when there is
//! nothing left to mend, all packets pass again.
//!
//! The seed of a node that fails is printed; `STATES_SEED` repeats it, and `STATES_COUNT` is the number of nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod damage;

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faults::random::Random;
use faults::settings::number_or;
use faults::subjects;
use serde_json::{Value, json};
use testns::{Container, Namespace, Node, PidNamespace, Transport, exchange};

use damage::{Damage, SUBNET, UNDOING, damages};

const COUNT: u64 = 20;

/// How long one node may take, from the damage to the traffic that is back.
const NODE_WITHIN: Duration = Duration::from_secs(90);

/// How often doctor is asked: a fault may hide another, as a bridge that is gone hides its address.
const ROUNDS: usize = 5;

const OUTSIDE: &str = "192.168.1.1";
const PORT: u16 = 8080;

struct Sick {
    node: Node,
    outside: Namespace,
    pods: [Container; 2],
    path: String,
    processes: PidNamespace,
}

impl Sick {
    fn new() -> Self {
        let node = subjects::node();
        let bin_dir = node.work_dir().join("opt-cni-bin");
        fs::create_dir_all(&bin_dir).unwrap();
        fs::create_dir_all("/etc/cni/net.d").unwrap();
        let list = json!({"cniVersion": "1.1.0", "name": "office", "plugins": [
            {"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
             "ipam": {"type": "host-local", "subnet": format!("{SUBNET}.0/24")}},
            {"type": "portmap", "capabilities": {"portMappings": true}}]});
        fs::write("/etc/cni/net.d/10-office.conflist", list.to_string()).unwrap();
        let outside = node.remote("outside");
        node.host().add_veth("ens3", &outside, "eth0");
        [(node.host(), "ens3"), (&outside, "eth0")].iter().for_each(|(place, link)| place.set_up(link));
        node.host().add_address("ens3", "192.168.1.7/24");
        outside.add_address("eth0", &format!("{OUTSIDE}/24"));
        node.host().add_route("0.0.0.0/0", OUTSIDE, "ens3");
        let pods = [node.container_named("web"), node.container_named("other")];
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin_dir.display());
        let sick = Self { node, outside, pods, path, processes: PidNamespace::new().expect("unshare") };
        let install = format!(
            "{} install --link hard --bin-dir {} --from {}",
            testns::cnitool().display(),
            bin_dir.display(),
            testns::plugins().display()
        );
        sick.run(&install);
        sick.pods.iter().for_each(|pod| sick.add(pod));
        assert_eq!(sick.doctor(), [Value::Null; 0], "before any damage");
        sick
    }

    /// A command of an administrator, in the node's PID namespace: doctor looks for containers in those of all processes.
    fn shell(&self, script: &str) -> Output {
        let bin_dir = self.path.split(':').next().unwrap();
        let mut command = self.processes.command();
        command.args(["sh", "-ec", script]);
        command.env_clear().env("PATH", &self.path).env("CNI_PATH", bin_dir).output().unwrap()
    }

    fn run(&self, script: &str) {
        let done = self.shell(script);
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn add(&self, pod: &Container) {
        let netns = pod.namespace().path().display().to_string();
        let port = if pod.id() == "web" { PORT } else { PORT + 1 };
        self.run(&format!(
            "cnitool add office {netns} --container-id {} --cap-args \
             '{{\"portMappings\":[{{\"hostPort\":{port},\"containerPort\":80,\"protocol\":\"tcp\"}}]}}'",
            pod.id()
        ));
    }

    fn doctor(&self) -> Vec<Value> {
        let output = self.shell("cnitool doctor --json || [ $? -ge 3 ]");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// A remedy as it is printed: a line for a shell, or a sentence, of which one is about containers.
    fn obey(&self, remedy: &str) {
        if remedy == "Start the container anew." {
            for pod in &self.pods {
                let netns = pod.namespace().path().display().to_string();
                self.run(&format!("cnitool del office {netns} --container-id {}", pod.id()));
                self.add(pod);
            }
        } else if remedy.starts_with(|first: char| first.is_ascii_lowercase()) {
            self.run(remedy);
        }
    }

    /// Returns the pod's first address now: a container that was started anew has another address.
    fn address(&self, pod: &Container) -> IpAddr {
        let all = pod.namespace().global_addresses("eth0");
        all.first().and_then(|net| net.split('/').next()?.parse().ok()).expect("an address")
    }

    /// Packets between the pods, from both to the machine beyond the node, and from there to the port of the node.
    fn traffic_is_back(&self, what: &str) {
        let within = Duration::from_secs(10);
        let outside: IpAddr = OUTSIDE.parse().unwrap();
        let [web, other] = &self.pods;
        for pod in &self.pods {
            assert!(pod.namespace().pings(outside, within), "{what}: {} does not reach {OUTSIDE}", pod.id());
            exchange(Transport::Tcp, pod.namespace(), (&self.outside, outside), within)
                .unwrap_or_else(|error| panic!("{what}: {} to {OUTSIDE}: {error}", pod.id()));
        }
        let address = self.address(web);
        exchange(Transport::Tcp, other.namespace(), (web.namespace(), address), within)
            .unwrap_or_else(|error| panic!("{what}: other to web: {error}"));
        let server = web.namespace().enter(|| TcpListener::bind("0.0.0.0:80")).unwrap();
        let port = SocketAddr::new("192.168.1.7".parse().unwrap(), PORT);
        let client = self.outside.enter(|| TcpStream::connect_timeout(&port, within));
        assert!(client.is_ok(), "{what}: the port of the node: {client:?}");
        drop(server);
    }
}

/// Pods that send until `is_over`; returns how many requests were answered.
fn send_on(sick: &Sick, is_over: &AtomicBool) -> u64 {
    let mut answered = 0;
    let outside: IpAddr = OUTSIDE.parse().unwrap();
    let [web, other] = &sick.pods;
    let to_web: IpAddr = format!("{SUBNET}.2").parse().unwrap();
    while !is_over.load(Ordering::Relaxed) {
        answered += u64::from(web.namespace().pings(outside, Duration::ZERO));
        answered += u64::from(other.namespace().pings(to_web, Duration::ZERO));
    }
    answered
}

/// Three or four faults of different places, in the order of the list.
fn draw<'all>(all: &'all [Damage], numbers: &mut Random) -> Vec<&'all Damage> {
    let count = 3 + numbers.below(2);
    let mut drawn: Vec<usize> = Vec::new();
    while drawn.len() < count {
        let next = numbers.below(all.len());
        if drawn.iter().all(|one| go_together(&all[*one], &all[next])) {
            drawn.push(next);
        }
    }
    drawn.sort_unstable();
    drawn.into_iter().map(|place| &all[place]).collect()
}

fn go_together(one: &Damage, other: &Damage) -> bool {
    let undoes = |one: &Damage, other: &Damage| UNDOING.contains(&(one.place, other.name));
    one.place != other.place && !undoes(one, other) && !undoes(other, one)
}

/// Damages the node, asks doctor and obeys it until it has no finding, and compares what it named.
fn heal(sick: &Sick, damages: &[&Damage], what: &str) {
    for damage in damages {
        sick.run(damage.script);
        // The kernel removes the links of a deleted namespace after `ip netns del` has ended.
        let veths = |host: &Namespace| host.links().iter().filter(|link| link.name.starts_with("veth")).count();
        sick.node.host().wait_for("the end of the links of a pod", |host| veths(host) <= sick.pods.len());
    }
    let mut named: Vec<Value> = Vec::new();
    for _ in 0..ROUNDS {
        let findings = sick.doctor();
        if findings.is_empty() {
            break;
        }
        for finding in &findings {
            assert_ne!(finding["remedy"], "", "{what}: {finding:#}");
        }
        let mut done: Vec<&str> = Vec::new();
        for remedy in findings.iter().filter_map(|finding| finding["remedy"].as_str()) {
            if !done.contains(&remedy) {
                sick.obey(remedy);
                done.push(remedy);
            }
        }
        named.extend(findings);
    }
    let left = sick.doctor();
    assert_eq!(left, [Value::Null; 0], "{what}: not mended in {ROUNDS} rounds; named before: {named:#?}");
    for damage in damages {
        let is_it = |finding: &&Value| finding["kind"] == damage.kind && finding.to_string().contains(damage.text);
        assert!(named.iter().any(|one| is_it(&one)), "{what}: no {} with {} in {named:#?}", damage.kind, damage.text);
    }
}

#[test]
fn doctor_names_each_of_several_faults_and_its_remedies_bring_the_traffic_back() {
    let (first, count) = (number_or("STATES_SEED", 1), number_or("STATES_COUNT", COUNT));
    let (all, begin) = (damages(), Instant::now());
    for seed in first..first + count {
        let damages = draw(&all, &mut Random::from_seed(seed));
        let what = format!(
            "STATES_SEED={seed} STATES_COUNT=1 ({})",
            damages.iter().map(|one| one.name).collect::<Vec<_>>().join("; ")
        );
        testns::note(&what);
        let sick = Sick::new();
        let is_over = AtomicBool::new(false);
        let since = Instant::now();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| send_on(&sick, &is_over));
            let healed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| heal(&sick, &damages, &what)));
            is_over.store(true, Ordering::Relaxed);
            healed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            testns::note(&format!("{} requests answered meanwhile", sending.join().unwrap()));
        });
        sick.traffic_is_back(&what);
        assert!(since.elapsed() < NODE_WITHIN, "{what}: {:?}", since.elapsed());
    }
    testns::note(&format!("{count} sick nodes mended in {:?}", begin.elapsed()));
}
