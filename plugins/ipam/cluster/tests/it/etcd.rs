//! A real etcd: three members on loopback, which verify the nodes' certificates.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testns::Node;

use crate::crash;
use crate::machine::{Machine, Site, assert_distinct, assert_refused};

/// An authority, a certificate of the members and one of the nodes: `make NAME OPTIONS`.
const CERTIFICATES: &str = r#"set -e
new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -x509"
for name in ca other; do $new -subj "/CN=$name" -keyout $name.key -out $name.pem; done
for name in member node stranger; do
    $new -CA ca.pem -CAkey ca.key -subj "/CN=$name" -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout $name.key -out $name.pem
done
chmod 600 *.key"#;

/// The members, and a site whose store they are.
struct Etcd {
    members: Vec<Child>,
    site: Site,
    node: Node,
}

impl Etcd {
    /// Starts three members; `None` where there is no etcd.
    fn start_or_skip(test: &str, ipam: Value) -> Option<Self> {
        for program in [["etcd", "--version"], ["etcdctl", "version"], ["openssl", "version"]] {
            if Command::new(program[0]).arg(program[1]).stdout(Stdio::null()).status().is_err() {
                testns::skip(test, &format!("there is no {}: packages etcd-server, etcd-client, openssl", program[0]));
                return None;
            }
        }
        let node = crash::node();
        let mut site = Site::new(ipam);
        let folder = site.folder.path();
        let made = Command::new("sh").args(["-c", CERTIFICATES]).current_dir(folder).stderr(Stdio::null()).status();
        assert!(made.unwrap().success());
        let of = |name: &str| folder.join(name);
        site.keys["store"] = json!({
            "endpoints": (0..3).map(|at| format!("https://127.0.0.1:{}", 2379 + 10 * at)).collect::<Vec<_>>(),
            "caFile": of("ca.pem"), "certFile": of("node.pem"), "keyFile": of("node.key"),
            "prefix": "/cni", "timeoutSeconds": 20,
        });
        let members = (0..3).map(|at| member(site.folder.path(), at, "new")).collect();
        let etcd = Self { members, site, node };
        etcd.site.machine("x").operator(&["show"]);
        Some(etcd)
    }

    fn kill(&mut self, at: usize) {
        self.members[at].kill().unwrap();
        self.members[at].wait().unwrap();
    }

    fn restart(&mut self, at: usize) {
        self.members[at] = member(self.site.folder.path(), at, "existing");
    }

    /// The number of the leader among the members.
    fn leader(&self) -> usize {
        let text = self.ctl("node", &["endpoint", "status", "--cluster", "--write-out=json"]);
        let all: Value = serde_json::from_str(&text).unwrap();
        let is_leader = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let leader = all.as_array().unwrap().iter().find(is_leader).unwrap();
        let port: usize = leader["Endpoint"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        (port - 2379) / 10
    }

    /// `etcdctl` as the user of a certificate.
    fn ctl(&self, user: &str, words: &[&str]) -> String {
        let of = |name: String| self.site.folder.path().join(name);
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints=https://127.0.0.1:2379,https://127.0.0.1:2389");
        command.arg("--cacert").arg(of("ca.pem".to_owned()));
        command.arg("--cert").arg(of(format!("{user}.pem"))).arg("--key").arg(of(format!("{user}.key")));
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.kill().ok();
            member.wait().ok();
        }
    }
}

fn member(folder: &Path, at: usize, state: &str) -> Child {
    let (client, peer) =
        (format!("https://127.0.0.1:{}", 2379 + 10 * at), format!("http://127.0.0.1:{}", 2380 + 10 * at));
    let all: Vec<_> = (0..3).map(|at| format!("m{at}=http://127.0.0.1:{}", 2380 + 10 * at)).collect();
    let log = fs::File::create(folder.join(format!("m{at}.log"))).unwrap();
    let mut command = Command::new("etcd");
    command.current_dir(folder).args(["--name", &format!("m{at}"), "--data-dir", &format!("m{at}")]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", state]);
    command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
    command.args(["--cert-file", "member.pem", "--key-file", "member.key"]);
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

#[test]
fn on_etcd_a_range_is_used_to_its_last_address_and_none_is_given_twice() {
    let ipam = json!({ "subnet": "10.9.0.0/27", "claimSize": 4 });
    let Some(etcd) = Etcd::start_or_skip("on_etcd_a_range_is_used_to_its_last_address", ipam) else { return };
    let machines = ["a", "b", "c"].map(|name| etcd.site.machine(name));
    let filled: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = machines.iter().map(|machine| scope.spawn(|| machine.fill())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_distinct(filled.iter().flat_map(|(given, _)| given));
    assert_eq!(filled.iter().map(|(given, _)| given.len()).sum::<usize>(), 29, "{filled:?}");
    assert!(machines[0].operator(&["check"]).contains("3 nodes"));
    assert!(machines[1].operator(&["forget", "a", "--fenced"]).contains("node a is forgotten"));
}

#[test]
fn a_killed_leader_and_a_lost_quorum_delay_claims_and_nothing_else() {
    let ipam = json!({ "subnet": "10.9.0.0/24", "claimSize": 4 });
    let Some(mut etcd) = Etcd::start_or_skip("a_killed_leader_and_a_lost_quorum_delay_claims", ipam) else { return };
    let leader = etcd.leader();
    let mut given = vec![etcd.site.machine("a").add("c0").unwrap()];
    etcd.kill(leader);
    // Another claim, with two members.
    for number in 1..10 {
        given.push(etcd.site.machine("a").add(&format!("c{number}")).unwrap());
    }
    etcd.kill((leader + 1) % 3);
    let mut keys = etcd.site.keys.clone();
    keys["store"]["timeoutSeconds"] = json!(1);
    let whole = std::mem::replace(&mut etcd.site.keys, keys);
    let (more, (code, text)) = etcd.site.machine("a").fill_as("q");
    assert!(!more.is_empty(), "what the node has is given without the store");
    assert!(code == 11 && text.contains("https://127.0.0.1:2379") && text.contains("addresses are reserved"), "{text}");
    etcd.site.machine("a").del("c3");
    assert_eq!(etcd.site.machine("a").add("d3").unwrap(), given[3], "the one that is free");
    etcd.site.keys = whole;
    etcd.restart(leader);
    given.extend(more);
    given.push(etcd.site.machine("a").add("last").unwrap());
    given.push(etcd.site.machine("b").add("other").unwrap());
    assert_distinct(given.iter());
}

#[test]
fn etcd_and_node_verify_each_other_and_a_role_without_the_key_is_refused() {
    let ipam = json!({ "subnet": "10.9.0.0/24" });
    let Some(mut etcd) = Etcd::start_or_skip("etcd_and_node_verify_each_other", ipam) else { return };
    etcd.site.machine("a").add("c0").unwrap();
    let folder = etcd.site.folder.path().to_owned();
    for words in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "cluster"],
        &["role", "grant-permission", "cluster", "readwrite", "/cni/net"],
        &["user", "add", "node", "--no-password"],
        &["user", "grant-role", "node", "cluster"],
        &["user", "add", "stranger", "--no-password"],
        &["auth", "enable"],
    ] {
        etcd.ctl("node", words);
    }
    etcd.site.machine("b").add("c1").unwrap();
    let mut refused = |change: &[(&str, &Path)], code: u64, words: &[&str]| {
        let before = etcd.site.keys.clone();
        etcd.site.keys["store"]["timeoutSeconds"] = json!(1);
        for (key, value) in change {
            etcd.site.keys["store"][key] = json!(value);
        }
        assert_refused(&etcd.site.machine("c").add("c2"), code, words);
        etcd.site.keys = before;
    };
    let of = |name: &str| folder.join(name);
    let stranger = [("certFile", &*of("stranger.pem")), ("keyFile", &*of("stranger.key"))];
    refused(&stranger, 102, &["permission denied", "readwrite /cni/net"]);
    refused(&[("caFile", &*of("other.pem"))], 11, &["invalid peer certificate"]);
    let foreign = [("certFile", &*of("other.pem")), ("keyFile", &*of("other.key"))];
    refused(&foreign, 11, &["https://127.0.0.1:2389"]);
    refused(&[("keyFile", &*of("ca.pem"))], 7, &["ipam.store.keyFile", "chmod 600"]);
}

#[test]
fn calls_on_etcd_killed_anywhere_leave_nothing_owned_twice() {
    let Some(etcd) = Etcd::start_or_skip("calls_on_etcd_killed_anywhere", json!({ "subnet": "10.9.0.0/24" })) else {
        return;
    };
    let mut store = etcd.site.keys["store"].clone();
    crash::kill_add(&etcd.node, store.clone());
    store["prefix"] = json!("/second");
    fs::remove_dir_all("/var/lib/cni").ok();
    crash::kill_del(&etcd.node, store);
}

/// Adds a hundred containers, and repeats what code 11 says may be repeated, as runtimes do: the addresses, the longest ADD, and the
/// number of repetitions.
fn add_hundred(machine: &Machine<'_>, half: &Barrier) -> (Vec<String>, Duration, usize) {
    let (mut given, mut longest, mut repeated) = (Vec::new(), Duration::ZERO, 0);
    for number in 0..100 {
        // All nodes are there before one has used up an equal part; and once more for the accident.
        if [1, 50].contains(&number) {
            half.wait();
        }
        loop {
            let start = Instant::now();
            let answer = machine.add(&format!("c{number}"));
            longest = longest.max(start.elapsed());
            match answer {
                Ok(address) => given.push(address),
                Err((11, _)) => {
                    repeated += 1;
                    continue;
                }
                Err((code, text)) => assert_eq!(code, 105, "{text}"),
            }
            break;
        }
    }
    (given, longest, repeated)
}

/// The published case: 1,000 addresses for 100 containers on each of ten nodes; here the leader is killed in the middle.
#[test]
fn ten_nodes_share_a_thousand_addresses_while_the_leader_is_killed() {
    let ipam = json!({ "subnet": "10.9.0.0/22", "rangeStart": "10.9.0.2", "rangeEnd": "10.9.3.233" });
    let Some(mut etcd) = Etcd::start_or_skip("ten_nodes_share_a_thousand_addresses", ipam) else { return };
    etcd.site.keys["store"]["timeoutSeconds"] = json!(2);
    let machines: Vec<_> = ('a'..='j').map(|name| etcd.site.machine(&name.to_string())).collect();
    let (leader, begin, half) = (etcd.leader(), Instant::now(), Barrier::new(machines.len() + 1));
    let filled: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = machines.iter().map(|machine| scope.spawn(|| add_hundred(machine, &half))).collect();
        half.wait();
        half.wait();
        etcd.members[leader].kill().unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (seconds, given) = (begin.elapsed().as_secs_f64(), filled.iter().map(|(given, ..)| given.len()).sum::<usize>());
    assert_distinct(filled.iter().flat_map(|(given, ..)| given));
    assert_eq!(given, 1000);
    let free = machines[0].operator(&["show"]);
    assert!(free.contains(": 0 of 1000 addresses"), "{free}");
    let revision: Value = serde_json::from_str(&etcd.ctl("node", &["get", "/cni/net", "--write-out=json"])).unwrap();
    let longest = filled.iter().map(|(_, longest, _)| longest.as_millis()).max().unwrap();
    let again: usize = filled.iter().map(|(.., again)| again).sum();
    assert!(revision["kvs"][0]["version"].as_u64().unwrap() <= 100, "{revision}");
    testns::note(&format!(
        "{given} of 1000 addresses, {seconds:.1} s, {} writes, longest ADD {longest} ms, {again} repeated",
        revision["kvs"][0]["version"]
    ));
}
