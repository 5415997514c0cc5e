//! A pod's wishes for its network arrive at the plugins, and does what it should.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use base64::prelude::{BASE64_STANDARD, Engine};
use clients::containerd::Daemon;
use clients::containerd::runtime_v1::{DnsConfig, PodSandboxConfig, PortMapping};
use clients::{DEADLINE, until};
use serde_json::{Value, json};
use testns::Namespace;

use crate::cri::with_list;
use crate::networks;

/// Ports, bandwidth and DNS of a pod reach the plugins, and do what they should.
#[test]
fn ports_bandwidth_and_dns_arrive() {
    let Some(daemon) = Daemon::start() else { return };
    let (control_file, log) = (daemon.work_dir().join("noop.json"), daemon.work_dir().join("noop.log"));
    let cri = with_list(&daemon, &networks::recorded(&control_file, &log));
    let outside = outside(&daemon);
    let pod = cri.run_pod(PodSandboxConfig {
        port_mappings: vec![PortMapping { container_port: 80, host_port: 8080 }],
        annotations: bandwidth_limits(),
        dns_config: Some(DnsConfig {
            servers: vec!["10.88.0.53".to_owned()],
            searches: vec!["pods.test".to_owned()],
            options: vec!["ndots:3".to_owned()],
        }),
        ..PodSandboxConfig::named(&daemon, "server")
    });
    let container = cri.start_container(&pod, &["nc", "-ll", "-p", "80", "-e", "/bin/hostname"]);
    for address in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
        assert_eq!(heard_from(&outside, address), "server\n", "{address}");
    }
    let resolver = cri.exec(&container, &["cat", "/etc/resolv.conf"]);
    assert_eq!(resolver, "search pods.test\nnameserver 10.88.0.53\noptions ndots:3\n");
    let node = daemon.snapshot();
    let shaped = node.lines().iter().filter(|line| line.starts_with("qdisc tbf"));
    assert_eq!(shaped.count(), 2, "{node}");
    networks::print_nothing(&control_file); // DEL has no result to pass on
    cri.stop(&pod);
    cri.remove(&pod);
    let calls: Vec<Value> = serde_json::from_slice(&fs::read(&log).unwrap()).unwrap();
    let verbs: Vec<_> = calls.iter().filter_map(|call| call["Command"].as_str()).collect();
    assert_eq!(verbs, ["ADD", "DEL", "DEL"], "containerd takes the network down at each of stop and remove");
    for call in &calls {
        assert_eq!(runtime_config(call), expected_runtime_config());
        let args: BTreeSet<_> = call["CmdArgs"]["Args"].as_str().unwrap().split(';').collect();
        let id = format!("K8S_POD_INFRA_CONTAINER_ID={}", pod.id);
        let expected =
            ["IgnoreUnknown=1", "K8S_POD_NAMESPACE=default", "K8S_POD_NAME=server", "K8S_POD_UID=uid-of-server", &id];
        assert_eq!(args, BTreeSet::from(expected));
    }
}

fn runtime_config(call: &Value) -> Value {
    let stdin = BASE64_STANDARD.decode(call["CmdArgs"]["StdinData"].as_str().unwrap()).unwrap();
    let conf: Value = serde_json::from_slice(&stdin).unwrap();
    conf["runtimeConfig"].clone()
}

/// The pod's wishes, under containerd's keys, which begin with capitals.
fn expected_runtime_config() -> Value {
    let burst_bits = u32::MAX;
    json!({
        "portMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}],
        "bandwidth": {"IngressRate": 10_000_000, "IngressBurst": burst_bits,
                      "EgressRate": 20_000_000, "EgressBurst": burst_bits},
        "dns": {"Servers": ["10.88.0.53"], "Searches": ["pods.test"], "Options": ["ndots:3"]},
    })
}

/// Annotations of a pod for 10 Mbit/s into it and 20 out of it.
pub(crate) fn bandwidth_limits() -> HashMap<String, String> {
    let limits = [("kubernetes.io/ingress-bandwidth", "10M"), ("kubernetes.io/egress-bandwidth", "20M")];
    HashMap::from(limits.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// A machine behind the node's uplink, in both families.
fn outside(daemon: &Daemon) -> Namespace {
    let outside = daemon.remote("outside");
    daemon.host().add_veth("uplink", &outside, "eth0");
    for (namespace, link, addresses) in [
        (daemon.host(), "uplink", ["192.0.2.1/24", "2001:db8::1/64"]),
        (&outside, "eth0", ["192.0.2.2/24", "2001:db8::2/64"]),
    ] {
        addresses.into_iter().for_each(|address| namespace.add_address(link, address));
        namespace.set_up(link);
    }
    outside.wait_for_addresses();
    daemon.host().wait_for_addresses();
    outside
}

/// The first bytes of a server at `address`, asked from a namespace. It may still be about to listen.
fn heard_from(namespace: &Namespace, address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    until(&format!("an answer from {address}"), || {
        namespace.enter(|| {
            let mut stream = TcpStream::connect_timeout(&address, DEADLINE).ok()?;
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
    })
}
