//! The floor leaves what our plugins leave: node and container after each step, line by line.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use testns::{Call, Container, Namespace, Node, Subject, Verb, changes};

/// The arguments for a pod; both subjects get the same.
#[derive(Debug, Clone)]
struct Lease {
    id: &'static str,
    veth: String,
    addresses: Vec<String>,
}

/// A network, with the floor's arguments for it.
struct Scene {
    plugin: &'static str,
    config: Value,
    gateways: &'static [&'static str],
    routes: &'static [&'static str],
    masquerade: bool,
    /// How the floor's DEL returns.
    returns: &'static str,
}

/// Lines of node and container, step by step.
type Story = Vec<(String, BTreeSet<String>)>;

const PODS: [&str; 2] = ["one", "two"];

fn under_test() -> Subject {
    Subject::ours()
}

fn ours(scene: &Scene) -> (Story, Vec<Lease>) {
    let node = Node::with(&under_test());
    scene.lay(&node);
    let (mut story, mut leases, mut results) = (Story::new(), Vec::new(), Vec::new());
    let pods = PODS.map(|id| (id, node.container_named(id)));
    for (id, pod) in &pods {
        let result = node.call(Verb::Add, &scene.config, pod).ok();
        let names = result["interfaces"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap());
        let veth = names.into_iter().find(|name| name.starts_with("veth")).unwrap_or_default().to_owned();
        settle(&node, pod, &veth);
        story.push((format!("ADD {id}"), lines(&node, pod)));
        let addresses = result["ips"].as_array().unwrap().iter();
        let addresses = addresses.map(|ip| ip["address"].as_str().unwrap().to_owned()).collect();
        leases.push(Lease { id, veth, addresses });
        results.push(result);
    }
    for ((id, pod), result) in pods.iter().zip(&results).rev() {
        Call::new(Verb::Del, &scene.config, pod).prev_result(result).run(&node).ok();
        scene.await_end(&node, id);
        story.push((format!("DEL {id}"), lines(&node, pod)));
    }
    (story, leases)
}

fn floor(scene: &Scene, leases: &[Lease]) -> Story {
    let node = Node::with_folders(std::iter::empty());
    scene.lay(&node);
    let mut story = Story::new();
    let pods: Vec<_> = leases.iter().map(|lease| (lease, node.container_named(lease.id))).collect();
    let mut before = Vec::new();
    for (lease, pod) in &pods {
        before.push((node.host().snapshot(), pod.namespace().snapshot()));
        run(&scene.add(lease, pod));
        settle(&node, pod, &lease.veth);
        story.push((format!("ADD {}", lease.id), lines(&node, pod)));
    }
    for ((lease, pod), (host, inside)) in pods.iter().zip(before).rev() {
        run(&scene.del(lease, pod));
        story.push((format!("DEL {}", lease.id), lines(&node, pod)));
        scene.await_end(&node, lease.id);
        // The first pod's bridge stays, and that the node forwards.
        if lease.id != PODS[0] {
            assert_eq!(changes(&host, &node.host().snapshot()), "");
        }
        assert_eq!(changes(&inside, &pod.namespace().snapshot()), "");
    }
    story
}

impl Scene {
    /// Makes what the node has before the calls.
    fn lay(&self, node: &Node) {
        if self.plugin == "macvlan" {
            node.host().set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
            node.host().add_veth("uplink", &node.remote("outside"), "outside");
        }
    }

    /// A master is promiscuous until the kernel is done with the links on it, the last pod's first.
    fn await_end(&self, node: &Node, id: &str) {
        let left = u32::from(id != PODS[0]);
        let is_done = |host: &Namespace| self.plugin != "macvlan" || host.link("uplink").promiscuity == left;
        node.host().wait_for("the link to end", is_done);
    }

    fn add(&self, lease: &Lease, pod: &Container) -> Vec<String> {
        let Lease { id, veth, addresses } = lease;
        let netns = pod.namespace().path().display();
        let mut arguments = vec![self.plugin.to_owned(), "add".into(), format!("netns={netns}"), "ifname=eth0".into()];
        arguments.extend([format!("veth={veth}"), format!("alias=cni:net/{id}/eth0")]);
        arguments.extend(["bridge=br0".to_owned(), "master=uplink".to_owned()]);
        arguments.extend(addresses.iter().map(|address| format!("address={address}")));
        arguments.extend(self.gateways.iter().map(|gateway| format!("gateway={gateway}")));
        arguments.extend(self.routes.iter().map(|route| format!("route={route}")));
        if self.masquerade {
            arguments.extend([chain(id), format!("comment=name: \"net\" id: \"{id}\""), note(id)]);
        }
        arguments
    }

    fn del(&self, lease: &Lease, pod: &Container) -> Vec<String> {
        let netns = pod.namespace().path().display();
        let mut arguments = vec![self.plugin.to_owned(), "del".into(), format!("veth={}", lease.veth)];
        arguments.extend([format!("netns={netns}"), "ifname=eth0".to_owned()]);
        arguments.extend(lease.addresses.iter().map(|address| format!("address={address}")));
        arguments.extend(self.masquerade.then(|| chain(lease.id)));
        arguments.push(format!("return={}", self.returns));
        arguments
    }
}

#[track_caller]
fn run(arguments: &[String]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-floor"));
    command.args(arguments);
    let output = testns::run(command, b"", Duration::from_secs(60));
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.as_str()), (0, "", ""), "{arguments:?}");
}

/// The reference's chain of a container on the network.
fn chain(id: &str) -> String {
    format!("masquerade=CNI-{}", hex(&format!("net{id}"), 24))
}

/// The note in the user data of our rules (plugins/filter/README.md).
fn note(id: &str) -> String {
    format!("note={}-{}, net: net, if: eth0, id: {id}", hex("net", 16), hex(&format!("eth0:{id}"), 16))
}

/// The first digits of a text's SHA-512.
fn hex(text: &str, digits: usize) -> String {
    Sha512::digest(text).iter().take(digits / 2).fold(String::new(), |mut all, byte| {
        write!(all, "{byte:02x}").unwrap();
        all
    })
}

fn settle(node: &Node, pod: &Container, veth: &str) {
    for link in [veth, "br0"].into_iter().filter(|link| node.host().find_link(link).is_some()) {
        node.host().wait_until_settled(link);
    }
    pod.namespace().wait_until_settled("eth0");
    node.host().wait_for_addresses();
    pod.namespace().wait_for_addresses();
}

fn lines(node: &Node, pod: &Container) -> BTreeSet<String> {
    let of = |place: &'static str, namespace: &Namespace| {
        let snapshot = namespace.snapshot();
        snapshot.lines().iter().map(|line| format!("{place}: {}", masked(line))).collect::<Vec<_>>()
    };
    of("node", node.host()).into_iter().chain(of("container", pod.namespace())).collect()
}

/// A line without hardware addresses and what is derived from them.
fn masked(line: &str) -> String {
    let is_byte = |byte: &str| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok();
    let mask = |word: &str| match word.split_once('/') {
        _ if word.len() == 17 && word.split(':').all(is_byte) => "MAC".to_owned(),
        Some((ip, length)) if ip.starts_with("fe80::") && ip != "fe80::" => format!("fe80::MAC/{length}"),
        _ => word.to_owned(),
    };
    line.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

/// The lines that only one has; of sysctls only those that both have, as a kernel module that is loaded meanwhile brings some.
fn differences(ours: &BTreeSet<String>, floor: &BTreeSet<String>) -> Vec<String> {
    let key = |line: &str| line.contains(": sysctl ").then(|| line.split(" = ").next().unwrap_or_default().to_owned());
    let keys = |lines: &BTreeSet<String>| lines.iter().filter_map(|line| key(line)).collect::<BTreeSet<_>>();
    let (in_ours, in_floor) = (keys(ours), keys(floor));
    let is_compared = |line: &&String| key(line).is_none_or(|key| in_ours.contains(&key) && in_floor.contains(&key));
    let only = |who, one: &BTreeSet<String>, other: &BTreeSet<String>| {
        one.difference(other).filter(is_compared).map(|line| format!("{who} {line}")).collect::<Vec<_>>()
    };
    [only("ours", ours, floor), only("floor", floor, ours)].concat()
}

#[track_caller]
fn check(scene: &Scene) {
    // A node is its thread's.
    let (expected, leases) = std::thread::scope(|scope| scope.spawn(|| ours(scene)).join()).unwrap();
    let found = floor(scene, &leases);
    assert_eq!(found.len(), expected.len());
    for ((step, ours), (_, floor)) in expected.iter().zip(&found) {
        assert_eq!(differences(ours, floor), Vec::<String>::new(), "after {step}");
    }
}

fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}});
    let (Value::Object(mut all), Value::Object(own)) = (base, own) else { panic!("a config is a JSON object") };
    all.extend(own);
    Value::Object(all)
}

fn dual() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]})
}

#[test]
fn bridge() {
    check(&Scene {
        plugin: "bridge",
        config: config(json!({"isDefaultGateway": true})),
        gateways: &["10.7.0.1/24"],
        routes: &["0.0.0.0/0,10.7.0.1"],
        masquerade: false,
        returns: "announced",
    });
}

#[test]
fn bridge_without_gateway() {
    check(&Scene {
        plugin: "bridge",
        config: config(json!({})),
        gateways: &[],
        routes: &[],
        masquerade: false,
        returns: "freed",
    });
}

#[test]
fn masquerade() {
    check(&Scene {
        plugin: "bridge",
        config: config(json!({"isGateway": true, "ipMasq": true})),
        gateways: &["10.7.0.1/24"],
        routes: &[],
        masquerade: true,
        returns: "announced",
    });
}

#[test]
fn dual_stack_masquerade() {
    check(&Scene {
        plugin: "bridge",
        config: config(json!({"isDefaultGateway": true, "ipMasq": true, "ipam": dual()})),
        gateways: &["10.7.0.1/24", "fd07::1/64"],
        routes: &["0.0.0.0/0,10.7.0.1", "::/0,fd07::1"],
        masquerade: true,
        returns: "freed",
    });
}

fn of(plugin: &str) -> Value {
    let routes = json!([{"dst": "0.0.0.0/0"}]);
    let ipam = json!({"type": "host-local", "subnet": "10.7.0.0/24", "routes": routes});
    config(json!({"type": plugin, "master": "uplink", "ipam": ipam}))
}

#[test]
fn ptp() {
    check(&Scene {
        plugin: "ptp",
        config: of("ptp"),
        gateways: &["10.7.0.1/32"],
        routes: &["0.0.0.0/0,10.7.0.1"],
        masquerade: false,
        returns: "announced",
    });
}

#[test]
fn macvlan() {
    if !testns::Feature::Macvlan.or_skip() {
        return;
    }
    for returns in ["announced", "freed"] {
        let scene = || Scene {
            plugin: "macvlan",
            config: of("macvlan"),
            gateways: &[],
            routes: &["0.0.0.0/0,10.7.0.1"],
            masquerade: false,
            returns,
        };
        std::thread::scope(|scope| scope.spawn(|| check(&scene())).join()).unwrap();
    }
}

#[test]
fn loopback() {
    let node = Node::with(&under_test());
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "loopback"});
    let [one, two] = PODS.map(|id| node.container_named(id));
    node.call(Verb::Add, &config, &one).ok();
    let netns = format!("netns={}", two.namespace().path().display());
    run(&["loopback".to_owned(), "add".to_owned(), netns.clone()]);
    assert!(two.namespace().link("lo").up);
    assert_eq!(changes(&one.namespace().snapshot(), &two.namespace().snapshot()), "");
    node.call(Verb::Del, &config, &one).ok();
    run(&["loopback".to_owned(), "del".to_owned(), netns]);
    assert!(!two.namespace().link("lo").up);
    assert_eq!(changes(&one.namespace().snapshot(), &two.namespace().snapshot()), "");
}
