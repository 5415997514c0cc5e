//! The conflists of `examples/conflists`: each is a network on a node.

use crate::prelude::*;
use crate::runtime::{Chain, wait};
use crate::sources::{files_below, sources_or_skip};
use libcni::{NetworkConf, Runtime};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the runtime's folder, name of the file, name of the network.
const FILES: [[&str; 3]; 5] = [
    ["containerd", "10-containerd-net.conflist", "containerd-net"],
    ["crio", "10-crio-bridge.conflist", "crio-bridge"],
    ["nomad", "nomad.conflist", "nomad"],
    ["nomad", "services.conflist", "services"],
    ["podman", "87-podman.conflist", "podman"],
];

/// The network of a node whose pods all have the host's network.
const WITHOUT_ADDRESSES: [&str; 3] = ["host-network", "10-loopback.conflist", "host-network-only"];

/// The folder of the conflists, if the source tree is on this machine.
fn folder() -> Option<PathBuf> {
    sources_or_skip().map(|root| root.join("examples/conflists"))
}

fn network(folder: &Path, [runtime, file, _]: [&str; 3]) -> Value {
    let text = std::fs::read(folder.join(runtime).join(file)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// What a runtime may offer; each plugin gets those for which it has a capability.
fn offers() -> Value {
    json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000},
        "mac": "0a:00:00:00:00:17",
    })
}

/// Every file is in the list above, has the network's name, and is in the README.
#[test]
fn every_conflist_is_known_and_parses() {
    let Some(folder) = folder() else { return };
    let mut found = files_below(&folder, "conflist");
    found.sort();
    let files = || FILES.into_iter().chain([WITHOUT_ADDRESSES]);
    let mut known: Vec<_> = files().map(|[runtime, file, _]| folder.join(runtime).join(file)).collect();
    known.sort();
    assert_eq!(found, known);
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for [runtime, file, name] in files() {
        let read = NetworkConf::read(&folder.join(runtime).join(file)).unwrap();
        assert_eq!(read.name, name);
        assert!(readme.contains(&format!("[`{runtime}/{file}`]({runtime}/{file})")), "{runtime}/{file}");
    }
}

/// The last address given, and a bridge's link-local routes, which come and go with its carrier.
fn comes_and_goes(line: &str) -> bool {
    ["/last_reserved_ip.", "/run/cni", " fe80::"].iter().any(|word| line.contains(word))
}

/// The lines that name a container or an object that it alone has.
fn is_of(attachment: &Attachment, addresses: &[String]) -> impl Fn(&str) -> bool + use<> {
    let id = attachment.container_id.clone();
    let ips: Vec<_> = addresses.iter().filter_map(|address| address.split('/').next()).map(str::to_owned).collect();
    move |line| line.contains(&id) || line.contains("veth") || ips.iter().any(|ip| line.contains(&format!("/{ip} ")))
}

#[test]
fn each_file_gives_a_container_its_network_and_takes_it_again() {
    FILES.into_iter().for_each(gives_a_container_its_network_and_takes_it_again);
}

#[test]
fn the_network_of_host_network_pods_sets_lo_up_and_gives_no_address() {
    let (Some(folder), node) = (folder(), node()) else { return };
    let network = network(&folder, WITHOUT_ADDRESSES);
    let pod = node.container();
    let chain = Chain { node: &node, network: &network, capabilities: &json!({}), attachment: pod.attachment() };
    let result = chain.add().unwrap();
    assert!(pod.namespace().find_link("eth0").is_none() && result["interfaces"][0]["name"] == "lo", "{result}");
    chain.check().unwrap();
    chain.del().unwrap();
    // The runtime's own folders.
    node.assert_as_before_except(|line| comes_and_goes(line) || line.contains("/var/lib/cni/"));
}

/// ADD, CHECK, DEL: nothing is left of the first container, and no line of the snapshot changes for the second.
fn gives_a_container_its_network_and_takes_it_again(file: [&str; 3]) {
    let (Some(folder), node) = (folder(), node()) else { return };
    let network = network(&folder, file);
    if asks_for(&network, "bandwidth") && !Feature::Ifb.or_skip() {
        return;
    }
    let conf = NetworkConf::parse(network.to_string().as_bytes()).unwrap();
    wait(Runtime::builder().plugin_dirs([node.bin_dir()]).build().validate(&conf)).unwrap();
    for container in ["first", "second"] {
        let offers = offers();
        let pod = node.container_named(container);
        let chain = Chain { node: &node, network: &network, capabilities: &offers, attachment: pod.attachment() };
        let result = chain.add().unwrap();
        works(&node, &pod, &network, &result);
        chain.check().unwrap();
        chain.del().unwrap();
        chain.del().unwrap();
        if container == "first" {
            let changes = node.changes();
            let is_of_pod = is_of(&chain.attachment, &addresses(&result));
            let left: Vec<_> = changes.lines().filter(|line| is_of_pod(line)).collect();
            assert!(left.is_empty(), "{left:#?}");
            node.remember();
        }
    }
    node.assert_as_before_except(comes_and_goes);
}

fn asks_for(network: &Value, capability: &str) -> bool {
    let mut plugins = network["plugins"].as_array().unwrap().iter();
    plugins.any(|plugin| plugin["capabilities"][capability] == json!(true))
}

/// The network does what it promises: addresses, gateway, a mapped port, a queue that shapes, the requested MAC.
fn works(node: &Node, pod: &Container, network: &Value, result: &Value) {
    let all = addresses(result);
    assert_eq!(pod.namespace().global_addresses("eth0"), all);
    assert!(!all.is_empty());
    for ip in result["ips"].as_array().unwrap() {
        pod.namespace().ping(ip["gateway"].as_str().unwrap().parse::<std::net::IpAddr>().unwrap());
    }
    if asks_for(network, "portMappings") {
        let gateway = result["ips"][0]["gateway"].as_str().unwrap().parse().unwrap();
        assert_eq!(speak(pod, SocketAddr::new(gateway, 8080)), "served");
    }
    let is_shaped = node.snapshot().lines().iter().any(|line| line.contains("tbf"));
    assert_eq!(is_shaped, asks_for(network, "bandwidth"));
    assert_eq!(pod.namespace().link("eth0").mac == "0a:00:00:00:00:17", asks_for(network, "mac"));
}

/// Connects to an address of the node, where the container listens on port 80, and reads the answer.
fn speak(pod: &Container, to: SocketAddr) -> String {
    const WITHIN: Duration = Duration::from_secs(5);
    let listener = pod.namespace().enter(|| TcpListener::bind("0.0.0.0:80")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || listener.accept().unwrap().0.write_all(b"served").unwrap());
        let mut stream = TcpStream::connect_timeout(&to, WITHIN).unwrap_or_else(|error| {
            // Ends the other thread.
            pod.namespace().enter(|| TcpStream::connect("127.0.0.1:80")).unwrap();
            panic!("{to}, mapped to port 80 of {}: {error}", pod.id())
        });
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}
