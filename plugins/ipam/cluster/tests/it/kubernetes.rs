//! The store in Kubernetes, on a server that behaves as its API.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kube_api::{Api, Fault};
use serde_json::{Value, json};
use testns::Node;

use crate::crash;
use crate::restored_store::{History, nodes_write_back_what_they_hold};
use crate::test_cluster::{Answer, Machine, TestCluster, assert_distinct, assert_refused};

const MANIFEST: &str = include_str!("../../../../packages/kubernetes/cluster-store/store.yaml");
const RECORDS: &str = "clusterrecords";

/// The API, and a cluster whose store it is.
struct Kubernetes {
    api: Api,
    cluster: TestCluster,
    node: Node,
}

impl Kubernetes {
    fn start(ipam: Value) -> Self {
        let kubernetes = Self::start_empty(ipam);
        kubernetes.api.define(MANIFEST);
        kubernetes
    }

    /// Starts without the resource.
    fn start_empty(ipam: Value) -> Self {
        let node = crash::node();
        let (cluster, api) = (TestCluster::new(ipam), Api::start());
        let mut kubernetes = Self { api, cluster, node };
        kubernetes.write_credentials("first");
        kubernetes.cluster.keys["store"] =
            json!({ "kubernetes": { "kubeconfig": kubernetes.kubeconfig() }, "timeoutSeconds": 5 });
        kubernetes
    }

    fn kubeconfig(&self) -> PathBuf {
        self.cluster.folder.path().join("kubeconfig")
    }

    fn write_credentials(&self, token: &str) {
        let server = format!("http://{}", self.api.address);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": { "token": token } }],
        });
        fs::write(self.kubeconfig(), text.to_string()).unwrap();
        self.protect(0o600);
    }

    fn protect(&self, mode: u32) {
        fs::set_permissions(self.kubeconfig(), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A machine with a card of its own.
    fn machine(&self, number: usize) -> Machine<'_> {
        let mut machine = self.cluster.machine(&format!("n{number}"));
        machine.card = format!("0a:00:00:00:01:{number:02x}");
        machine
    }
}

#[test]
fn a_record_is_an_object_whose_faults_cost_time_and_no_address() {
    let mut kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/24", "claimSize": 1 }));
    // Enough for a machine on which 64 nodes come at once, in the test beside.
    kubernetes.cluster.keys["store"]["timeoutSeconds"] = json!(20);
    let (a, b) = (kubernetes.cluster.machine("a"), kubernetes.cluster.machine("b"));
    let mut given = vec![a.add("c0").unwrap(), b.add("c0").unwrap()];
    let objects = kubernetes.api.objects(RECORDS);
    assert!(objects.contains_key("net--network") && objects.contains_key("net--runs--10.9.0.0"), "{objects:?}");
    let object = &objects["net--nodes--a"];
    assert_eq!((&object["spec"]["network"], &object["spec"]["key"]), (&json!("net"), &json!("nodes/a")));
    let labels = json!({ "cni-plugins-rust.internal/network": "net", "cni-plugins-rust.internal/kind": "nodes" });
    assert_eq!(object["metadata"]["labels"], labels);
    for (number, (request, fault)) in [
        ("GET net--network", Fault::Status(429)),
        ("GET net--network", Fault::Status(503)),
        ("GET net--network", Fault::Drop),
        ("GET net--network", Fault::Half),
        ("PUT net--runs", Fault::Status(429)),
        ("PUT net--runs", Fault::Status(500)),
        ("PUT net--runs", Fault::Drop),
        ("PUT net--runs", Fault::Half),
        ("PUT net--runs", Fault::Status(409)),
        ("PUT net--nodes", Fault::Half),
        ("PUT net--nodes", Fault::Status(409)),
    ]
    .into_iter()
    .enumerate()
    {
        kubernetes.api.fail_at(request, fault);
        // What an earlier write without an answer has brought needs no other one.
        for again in 0..5 {
            let answers = [&a, &b].map(|machine| machine.add(&format!("f{number}-{again}")));
            let [of_a, of_b] =
                answers.map(|answer| answer.unwrap_or_else(|why| panic!("{request}, {fault:?}: {why:?}")));
            given.extend([of_a, of_b]);
            if kubernetes.api.faults_left() == 0 {
                break;
            }
        }
    }
    assert_distinct(given.iter());
    assert_eq!(kubernetes.api.faults_left(), 0);
    // No answer in time: what came of it is unknown, and is found out by the next call.
    kubernetes.cluster.keys["store"]["timeoutSeconds"] = json!(2);
    let (a, b) = (kubernetes.cluster.machine("a"), kubernetes.cluster.machine("b"));
    [&a, &b].iter().for_each(|machine| machine.upkeep());
    kubernetes.api.fail_at("PUT net--runs", Fault::Hang);
    let mut lost = None;
    for number in 0..9 {
        match a.add(&format!("lost{number}")) {
            Ok(address) => given.push(address),
            refused => {
                lost = Some(refused);
                break;
            }
        }
    }
    assert_refused(&lost.unwrap(), 11, &["Kubernetes at http://127.0.0.1:", "get --raw /readyz"]);
    a.upkeep();
    given.push(a.add("lost").unwrap());
    assert_distinct(given.iter());
    for machine in [&a, &b] {
        assert!(machine.operator(&["check"]).contains("2 nodes"));
    }
}

#[test]
fn what_the_api_refuses_is_said_with_its_remedy() {
    let kubernetes = Kubernetes::start_empty(json!({ "subnet": "10.9.0.0/24" }));
    let mut number = 0;
    // Each by a node of its own: a store that was away is not asked again at once.
    let mut refused = |code: u64, words: &[&str]| {
        number += 1;
        assert_refused(&kubernetes.machine(number).add("c"), code, words);
    };
    refused(11, &["no clusterrecords.cni-plugins-rust.internal", "kubectl apply -k cluster-store"]);
    kubernetes.api.define(MANIFEST);
    kubernetes.api.fail_at("GET", Fault::Status(403));
    refused(102, &["status 403", "get, list, create, update and delete", "namespace kube-system"]);
    kubernetes.api.accept_token("second");
    refused(102, &["status 401", "are not valid"]);
    kubernetes.write_credentials("second");
    kubernetes.protect(0o640);
    refused(7, &["ipam.store.kubernetes.kubeconfig", "chmod 600"]);
    fs::remove_file(kubernetes.kubeconfig()).unwrap();
    refused(7, &["ipam.store.kubernetes.kubeconfig", "cannot be read"]);
    kubernetes.write_credentials("second");
    kubernetes.machine(0).add("c").unwrap();
    let mut keys = kubernetes.machine(99).config();
    keys["ipam"]["store"]["kubernetes"]["namespace"] = json!("none");
    let answer = kubernetes.machine(99).call("ADD", "c", "", &keys);
    assert_refused(&answer, 11, &["no namespace none", "namespaces", "ipam.store.kubernetes.namespace"]);
    // An object whose key is another one is not taken for the record.
    kubernetes.api.change(RECORDS, "net--nodes--n0", |object| object["spec"]["key"] = json!("nodes/n1"));
    let said = kubernetes.machine(0).operator_fails(&["upkeep"]);
    assert!(said.contains("it has record \"nodes/n1\" of network \"net\""), "{said}");
}

#[test]
fn a_node_that_is_cut_off_gives_what_it_has_and_asks_no_one_for_it() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/26", "claimSize": 4 }));
    let (a, b) = (kubernetes.cluster.machine("a"), kubernetes.cluster.machine("b"));
    let mut given = vec![a.add("c0").unwrap(), b.add("c0").unwrap()];
    // What follows the calls that claimed may still be at it.
    [&a, &b].iter().for_each(|machine| machine.upkeep());
    let before = kubernetes.api.requests().len();
    kubernetes.api.is_away(true);
    fs::rename(kubernetes.kubeconfig(), kubernetes.cluster.folder.path().join("away")).unwrap();
    given.push(a.add("c1").unwrap());
    a.status().unwrap();
    assert_eq!(kubernetes.api.requests().len(), before, "a call inside a run asks no one");
    fs::rename(kubernetes.cluster.folder.path().join("away"), kubernetes.kubeconfig()).unwrap();
    let (more, (code, text)) = a.fill_as("q");
    given.extend(more);
    assert!(code == 11 && text.contains("addresses are reserved") && text.contains("Kubernetes"), "{code}: {text}");
    assert_refused(&a.status(), 50, &["Kubernetes"]);
    kubernetes.api.is_away(false);
    a.upkeep();
    given.extend((10..14).map(|number| a.add(&format!("c{number}")).unwrap()));
    given.push(b.add("c1").unwrap());
    assert_distinct(given.iter());
    for machine in [&a, &b] {
        machine.operator(&["check"]);
    }
}

#[test]
fn objects_that_are_removed_or_of_a_backup_are_found_and_repaired() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/24", "claimSize": 2 }));
    let mut snapshot = None;
    nodes_write_back_what_they_hold(&kubernetes.cluster, |history| match history {
        History::Saved => snapshot = Some(kubernetes.api.save()),
        History::Restored => kubernetes.api.restore(snapshot.take().unwrap()),
    });
    kubernetes.api.empty(RECORDS);
    let mut a = kubernetes.cluster.machine("a");
    a.later_seconds = 8000;
    assert_refused(&a.add("a10"), 106, &["cnitool cluster repair net"]);
    assert_eq!(kubernetes.api.objects(RECORDS).len(), 0, "nothing is begun anew");
}

#[test]
fn a_list_of_many_pages_is_whole_and_begins_anew_when_its_state_is_gone() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/22", "claimSize": 1 }));
    let machines: Vec<_> = (0..5).map(|number| kubernetes.machine(number)).collect();
    machines.iter().for_each(|machine| drop(machine.add("c").unwrap()));
    // What follows the calls asks for no list later.
    machines.iter().for_each(Machine::upkeep);
    kubernetes.api.end_pages_after(2);
    kubernetes.api.fail_at("LIST", Fault::Status(410));
    assert!(machines[0].operator(&["check"]).contains("5 nodes"));
    assert_eq!(kubernetes.api.faults_left(), 0);
    (0..3).for_each(|_| kubernetes.api.fail_at("LIST", Fault::Status(410)));
    assert!(machines[0].operator_fails(&["check"]).contains("before it is listed to its end"));
    // With a network whose name is the beginning of another's, and records of a claim with a long name.
    let claim = format!("claim=Shop/{}", "x".repeat(248));
    let given = machines[0].call("ADD", "vm", &claim, &machines[0].config()).unwrap();
    machines[0].call("DEL", "vm", &claim, &machines[0].config()).unwrap();
    machines[0].upkeep();
    assert_eq!(machines[1].call("ADD", "vm", &claim, &machines[1].config()).unwrap(), given);
    let mut other = machines[0].config();
    (other["name"], other["ipam"]["dataDir"]) = (json!("net.2"), json!(machines[0].home.join("other")));
    assert_eq!(machines[0].call("ADD", "c", "", &other).unwrap().split('/').count(), 2);
    assert!(machines[0].operator(&["show"]).contains("Shop/x"));
}

#[test]
fn add_on_kubernetes_killed_anywhere_leaves_nothing_owned_twice() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/24" }));
    let store = kubernetes.cluster.keys["store"].clone();
    crash::kill_add(&kubernetes.node, store);
}

/// Adds a container as a runtime does, which tries again; `None`: not in time.
fn insist(machine: &Machine<'_>, container: &str, patience: Duration) -> Option<String> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(200);
    loop {
        match machine.add(container) {
            Answer::Ok(address) => return Some(address),
            Err((11 | 105, _)) if begin.elapsed() < patience => thread::park_timeout(pause),
            Err(error) => panic!("{} {container}: {error:?}", machine.name),
        }
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

#[test]
fn ten_nodes_use_a_thousand_addresses_to_the_last_while_the_api_restarts() {
    let range = json!({ "subnet": "10.9.0.0/22", "rangeStart": "10.9.0.2", "rangeEnd": "10.9.3.233" });
    let kubernetes = Kubernetes::start(range);
    let machines: Vec<_> = (0..10).map(|number| kubernetes.machine(number)).collect();
    let done = AtomicUsize::new(0);
    let fill = |machine: &Machine<'_>| {
        let add = |number| insist(machine, &format!("c{number}"), Duration::from_secs(120)).unwrap();
        let given: Vec<_> = (0..100).map(add).collect();
        done.fetch_add(1, Ordering::Relaxed);
        // As a runtime does. A node that is never called gives nothing back.
        while done.load(Ordering::Relaxed) < 10 {
            drop(machine.status());
            thread::park_timeout(Duration::from_millis(500));
        }
        given
    };
    let all: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = machines.iter().map(|machine| scope.spawn(|| fill(machine))).collect();
        let is_half = || kubernetes.api.requests().len() > 300;
        while !is_half() {
            thread::park_timeout(Duration::from_millis(20));
        }
        kubernetes.api.is_away(true);
        thread::park_timeout(Duration::from_secs(3));
        kubernetes.api.is_away(false);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.len(), 1000);
    assert_distinct(all.iter());
    assert_refused(&machines[0].add("more"), 105, &["no IP addresses available"]);
    assert!(machines[0].operator(&["check"]).contains("10 nodes"));
}

#[test]
fn sixty_four_nodes_that_come_at_once_are_served_in_bounded_time() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/16" }));
    let machines: Vec<_> = (0..64).map(|number| kubernetes.machine(number)).collect();
    let begin = Instant::now();
    let given: Vec<String> = thread::scope(|scope| {
        let add = |machine| scope.spawn(move || insist(machine, "c", Duration::from_secs(60)).unwrap());
        let threads: Vec<_> = machines.iter().map(add).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let taken = begin.elapsed();
    assert_distinct(given.iter());
    assert!(taken < Duration::from_secs(60), "{taken:?}");
    assert!(machines[0].operator(&["check"]).contains("64 nodes"));
}

/// The test's server is judged by the tool of Kubernetes itself.
#[test]
fn kubectl_makes_applies_watches_and_removes_records_of_the_test_server() {
    let kubernetes = Kubernetes::start(json!({ "subnet": "10.9.0.0/24" }));
    let folder = kubernetes.cluster.folder.path();
    let kubectl = |words: &[&str]| {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(kubernetes.kubeconfig()).args(["-n", "kube-system"]).args(words);
        command.env("HOME", folder);
        command
    };
    if kubectl(&["version", "--client"]).output().is_err() {
        return testns::skip("kubectl_makes_applies_watches_and_removes_records", "no kubectl");
    }
    let done = |words: &[&str]| {
        let output = kubectl(words).output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let path = folder.join("record.yaml");
    let file = path.to_str().unwrap();
    let write = |record: &str| {
        let text = format!(
            "apiVersion: cni-plugins-rust.internal/v1\nkind: ClusterRecord\nmetadata: {{name: other--network}}\n\
             spec: {{network: other, key: network, write: '1', record: {record}}}\n"
        );
        fs::write(&path, text).unwrap();
    };
    let get = ["get", RECORDS, "other--network", "-o", "jsonpath={.spec.record} "];
    write("one");
    done(&["create", "--validate=false", "-f", file]);
    assert!(!kubectl(&["create", "--validate=false", "-f", file]).output().unwrap().status.success(), "it is there");
    let mut watching = testns::Background::with_stdout(kubectl(&[&get[..], &["--watch"]].concat()));
    let is_watched = || kubernetes.api.requests().iter().any(|request| request.starts_with("WATCH"));
    while !is_watched() {
        thread::park_timeout(Duration::from_millis(20));
    }
    write("\"two\\n\"");
    done(&["apply", "--server-side", "--validate=false", "-f", file]);
    watching.wait_for("two");
    assert!(done(&get).contains("two"));
    write(&"x".repeat(1 << 20));
    done(&["apply", "--server-side", "--validate=false", "-f", file]);
    write(&"x".repeat((1 << 20) + 1));
    let refused = kubectl(&["apply", "--server-side", "--validate=false", "-f", file]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("may not be longer than 1048576"), "{refused:?}");
    kubernetes.cluster.machine("a").add("c").unwrap();
    assert!(done(&["get", RECORDS, "-o", "name"]).contains("net--nodes--a"));
    done(&["delete", RECORDS, "other--network"]);
    assert!(!kubectl(&get).output().unwrap().status.success());
}
