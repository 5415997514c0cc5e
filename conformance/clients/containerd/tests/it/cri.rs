//! CRI: what a kubelet asks for, containerd's CRI plugin answers with our plugins.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use clients::{DEADLINE, Machine, until};
use containerd::runtime_v1::{DnsConfig, PodSandboxConfig, PortMapping};
use containerd::{Cri, Daemon, NETWORKS_OF_CRI, Pod};
use serde_json::Value;
use testns::Namespace;

use crate::networks::{self, GATEWAYS, NAME};

/// A kubelet's connection to a runtime that has a network.
fn with_network(daemon: &Daemon) -> Cri<'_> {
    daemon.configure(NETWORKS_OF_CRI, "10-pods.conflist", &networks::pods());
    let cri = Cri::of(daemon);
    until("the network", || cri.network_ready().status.then_some(()));
    cri
}

/// The addresses of the result that the cache entry has, without prefix lengths, and the entry.
fn result(machine: &Machine, pod: &Pod) -> (Vec<String>, Value) {
    let mut cached = machine.cached(&pod.id);
    cached.retain(|cached| cached.entry["networkName"] == NAME);
    let [cached] = &cached[..] else { panic!("{cached:?}") };
    let ips = cached.addresses().iter().map(|address| address.split('/').next().unwrap().to_owned()).collect();
    (ips, cached.entry.clone())
}

/// The network is not ready, with the reason, until there is a network list; containerd sees it come.
#[test]
fn the_network_is_ready_when_there_is_a_list() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = Cri::of(&daemon);
    let before = cri.network_ready();
    assert_eq!((before.status, before.reason.as_str()), (false, "NetworkPluginNotReady"));
    assert!(before.message.contains("cni plugin not initialized"), "{}", before.message);
    let refusal = cri.try_run_pod(PodSandboxConfig::named(&daemon, "early")).unwrap_err();
    assert!(refusal.words.contains("cni plugin not initialized"), "{refusal}");
    daemon.configure(NETWORKS_OF_CRI, "10-pods.conflist", &networks::pods());
    until("the network", || cri.network_ready().status.then_some(()));
    let pod = cri.run_pod(PodSandboxConfig::named(&daemon, "late"));
    cri.stop(&pod);
    cri.remove(&pod);
}

/// The runtime reports the addresses of the result, IPv4 first; they are the pod's; it reaches its gateway and another pod.
#[test]
fn pods_have_the_addresses_of_the_result() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let pods = ["first", "second"].map(|name| cri.run_pod(PodSandboxConfig::named(&daemon, name)));
    for pod in &pods {
        let (mut told, _) = result(&daemon, pod);
        let reported = cri.addresses(pod);
        assert!(reported[0].starts_with("10.88.0."), "{reported:?}");
        told.sort();
        assert_eq!(told, reported);
        let namespace = cri.namespace(pod);
        let mut live = namespace.global_addresses("eth0");
        live.sort();
        assert_eq!(live, [format!("{}/24", told[0]), format!("{}/64", told[1])]);
        assert!(namespace.link("lo").up);
    }
    let container = cri.start_container(&pods[0], &["sleep", "1000000"]);
    let other = cri.addresses(&pods[1]);
    for address in GATEWAYS.into_iter().chain(other.iter().map(String::as_str)) {
        cri.exec(&container, &["ping", "-c", "1", "-W", "10", address]);
    }
    for pod in &pods {
        cri.stop(pod);
        cri.remove(pod);
    }
}

/// Ports, bandwidth and DNS of a pod reach the plugins, and do what they should.
#[test]
fn ports_bandwidth_and_dns_arrive() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let outside = daemon.remote("outside");
    daemon.host().add_veth("uplink", &outside, "eth0");
    daemon.host().add_address("uplink", "192.0.2.1/24");
    outside.add_address("eth0", "192.0.2.2/24");
    for (namespace, link) in [(daemon.host(), "uplink"), (&outside, "eth0")] {
        namespace.set_up(link);
    }
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
    assert_eq!(heard_from(&outside, "192.0.2.1:8080"), "server\n");
    let resolver = cri.exec(&container, &["cat", "/etc/resolv.conf"]);
    assert_eq!(resolver, "search pods.test\nnameserver 10.88.0.53\noptions ndots:3\n");
    let (_, entry) = result(&daemon, &pod);
    let bandwidth = &entry["capabilityArgs"]["bandwidth"];
    assert_eq!((&bandwidth["IngressRate"], &bandwidth["EgressRate"]), (&10_000_000.into(), &20_000_000.into()));
    let node = daemon.snapshot();
    let shaped = node.lines().iter().filter(|line| line.starts_with("qdisc tbf"));
    assert_eq!(shaped.count(), 2, "{node}");
    cri.stop(&pod);
    cri.remove(&pod);
}

/// What a pod is annotated with for 10 Mbit/s into it and 20 out of it.
fn bandwidth_limits() -> HashMap<String, String> {
    let limits = [("kubernetes.io/ingress-bandwidth", "10M"), ("kubernetes.io/egress-bandwidth", "20M")];
    HashMap::from(limits.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// What a server at `address` sends first, asked from a namespace. It may still be about to listen.
fn heard_from(namespace: &Namespace, address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    until("the pod to answer", || {
        namespace.enter(|| {
            let mut stream = TcpStream::connect_timeout(&address, DEADLINE).ok()?;
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
    })
}

/// Stopped and removed, a pod leaves nothing, beside another that runs; stopping it twice is fine.
#[test]
fn stop_and_remove_leave_nothing() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let run = |name, host_port| {
        cri.run_pod(PodSandboxConfig {
            port_mappings: vec![PortMapping { container_port: 80, host_port }],
            annotations: bandwidth_limits(),
            ..PodSandboxConfig::named(&daemon, name)
        })
    };
    let stays = run("stays", 8080);
    daemon.remember_settled();
    let reserved = daemon.reservations(NAME);
    let pod = run("goes", 8081);
    assert_eq!(daemon.reservations(NAME).len(), reserved.len() + 2);
    cri.stop(&pod);
    cri.stop(&pod);
    assert_eq!((daemon.reservations(NAME), daemon.cached(&pod.id)), (reserved, vec![]));
    cri.remove(&pod);
    daemon.assert_as_before_except(networks::is_counter);
    cri.stop(&stays);
    cri.remove(&stays);
    assert_nothing_of(&daemon, &stays);
}

/// A pod whose namespace was taken away under it is stopped and removed like any other.
#[test]
fn a_pod_without_its_namespace_is_removed() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let run = |name| cri.run_pod(PodSandboxConfig::named(&daemon, name));
    let stays = run("stays");
    daemon.remember_settled();
    let before = namespaces();
    let pod = run("goes");
    let mut netns = namespaces();
    netns.retain(|path| !before.contains(path));
    assert_eq!(netns.len(), 1);
    nix::mount::umount2(&netns[0], nix::mount::MntFlags::MNT_DETACH).unwrap();
    fs::remove_file(&netns[0]).unwrap();
    cri.stop(&pod);
    cri.remove(&pod);
    daemon.assert_as_before_except(networks::is_counter);
    cri.stop(&stays);
    cri.remove(&stays);
    assert_nothing_of(&daemon, &stays);
}

/// The namespaces of pods.
fn namespaces() -> Vec<PathBuf> {
    Path::new("/run/netns").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Checks that what the last pod leaves is its network's: no link, address, rule or file of the pod's own.
fn assert_nothing_of(daemon: &Daemon, pod: &Pod) {
    assert_eq!((daemon.reservations(NAME), daemon.cached(&pod.id)), (vec![], vec![]));
    assert_eq!(namespaces(), [""; 0].map(PathBuf::from));
    let now = daemon.snapshot();
    let of_pod = |line: &&String| line.contains(&pod.id) || line.contains("veth") || line.contains(" bwp");
    assert_eq!(now.lines().iter().filter(of_pod).collect::<Vec<_>>(), [""; 0]);
}
