//! CRI: what a kubelet asks for, containerd's CRI plugin answers with our plugins.

use std::fs;
use std::path::Path;

use clients::containerd::runtime_v1::PodSandboxConfig;
use clients::containerd::{Cri, Daemon, NETWORKS_OF_CRI, Pod};
use clients::{RuntimeNode, until};
use serde_json::Value;

use crate::networks::{self, GATEWAYS, NAME};

pub(crate) fn with_network(daemon: &Daemon) -> Cri<'_> {
    with_list(daemon, &networks::pods())
}

pub(crate) fn with_list<'daemon>(daemon: &'daemon Daemon, list: &Value) -> Cri<'daemon> {
    daemon.configure(NETWORKS_OF_CRI, "10-pods.conflist", list);
    let cri = Cri::with_images(daemon);
    wait_for_network(&cri);
    cri
}

fn wait_for_network(cri: &Cri<'_>) {
    until("the network", || cri.network_ready().status.then_some(()));
}

/// The addresses of the result that the cache entry has, without prefix lengths.
fn result(node: &RuntimeNode, pod: &Pod) -> Vec<String> {
    let mut cached = node.cached(&pod.id);
    cached.retain(|cached| cached.entry["networkName"] == NAME);
    let [cached] = &cached[..] else { panic!("{cached:?}") };
    cached.addresses().iter().map(|address| address.split('/').next().unwrap().to_owned()).collect()
}

/// The network is not ready, with the reason, until there is a network list; containerd sees it come and go.
#[test]
fn the_network_is_ready_when_there_is_a_list() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = Cri::with_images(&daemon);
    let before = cri.network_ready();
    assert_eq!((before.status, before.reason.as_str()), (false, "NetworkPluginNotReady"));
    assert!(before.message.contains("cni plugin not initialized"), "{}", before.message);
    let refusal = cri.try_run_pod(PodSandboxConfig::named(&daemon, "early")).unwrap_err();
    assert!(refusal.message.contains("cni plugin not initialized"), "{refusal}");
    daemon.configure(NETWORKS_OF_CRI, "10-pods.conflist", &networks::pods());
    wait_for_network(&cri);
    let pod = cri.run_pod(PodSandboxConfig::named(&daemon, "late"));
    cri.stop(&pod);
    cri.remove(&pod);
    fs::remove_file(Path::new(NETWORKS_OF_CRI).join("10-pods.conflist")).unwrap();
    until("the network to be missed", || (!cri.network_ready().status).then_some(()));
}

/// The runtime reports the addresses of the result, IPv4 first; they are the pod's; it reaches its gateway and another pod.
#[test]
fn pods_have_the_addresses_of_the_result() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let pods = ["first", "second"].map(|name| cri.run_pod(PodSandboxConfig::named(&daemon, name)));
    for pod in &pods {
        let mut addresses = result(&daemon, pod);
        let reported = cri.addresses(pod);
        assert!(reported[0].starts_with("10.88.0."), "{reported:?}");
        addresses.sort();
        assert_eq!(addresses, reported);
        let namespace = cri.namespace(pod);
        let mut live = namespace.global_addresses("eth0");
        live.sort();
        assert_eq!(live, [format!("{}/24", addresses[0]), format!("{}/64", addresses[1])]);
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
