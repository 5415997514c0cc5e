//! A pod on each type of network that this kernel has, alone in its list.

use clients::containerd::Daemon;
use clients::containerd::runtime_v1::PodSandboxConfig;
use serde_json::{Value, json};
use testns::Feature;

use crate::cri::with_list;
use crate::networks::NAME;

/// The gateway's address, which is beyond the node.
const GATEWAY: &str = "10.88.0.1";

/// A pod on a network of one plugin has its address, reaches its gateway where `pings`, and leaves nothing.
fn a_pod_comes_and_goes(kind: &str, own: Value, pings: bool) {
    let Some(daemon) = Daemon::start() else { return };
    let outside = daemon.remote("outside");
    outside.add_link("outside", "bridge");
    outside.add_address("outside", "10.88.0.1/24");
    for (link, near) in [("uplink", "near1"), ("dev0", "near2")] {
        daemon.host().add_veth(link, &outside, near);
        outside.set_master(near, "outside");
    }
    let mut plugin = json!({"type": kind, "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}});
    plugin.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let list = json!({"cniVersion": "1.0.0", "name": NAME, "plugins": [plugin]});
    let cri = with_list(&daemon, &list);
    let pod = cri.run_pod(PodSandboxConfig::named(&daemon, "pod"));
    let addresses = cri.addresses(&pod);
    assert!(addresses[0].starts_with("10.88.0."), "{addresses:?}");
    assert_eq!(cri.namespace(&pod).global_addresses("eth0"), [format!("{}/24", addresses[0])]);
    if pings {
        let container = cri.start_container(&pod, &["sleep", "1000000"]);
        cri.exec(&container, &["ping", "-c", "1", "-W", "10", GATEWAY]);
    }
    cri.stop(&pod);
    cri.remove(&pod);
    assert_eq!((daemon.reservations(NAME), daemon.cached(&pod.id)), (vec![], vec![]));
    let mut links: Vec<_> = daemon.host().links().into_iter().map(|link| link.name).collect();
    links.sort();
    assert_eq!(links, ["dev0", "lo", "uplink"]);
}

#[test]
fn a_pod_of_type_ptp_comes_and_goes() {
    a_pod_comes_and_goes("ptp", json!({"ipMasq": true}), true);
}

#[test]
fn a_pod_of_type_macvlan_comes_and_goes() {
    if Feature::Macvlan.or_skip() {
        a_pod_comes_and_goes("macvlan", json!({"master": "uplink"}), true);
    }
}

#[test]
fn a_pod_of_type_ipvlan_comes_and_goes() {
    if Feature::Ipvlan.or_skip() {
        a_pod_comes_and_goes("ipvlan", json!({"master": "uplink"}), true);
    }
}

#[test]
fn a_pod_of_type_vlan_comes_and_goes() {
    if Feature::Vlan.or_skip() {
        a_pod_comes_and_goes("vlan", json!({"master": "uplink", "vlanId": 100}), false);
    }
}

#[test]
fn a_pod_of_type_dummy_comes_and_goes() {
    if Feature::Dummy.or_skip() {
        a_pod_comes_and_goes("dummy", json!({}), false);
    }
}

#[test]
fn a_pod_of_type_host_device_comes_and_goes() {
    a_pod_comes_and_goes("host-device", json!({"device": "dev0"}), true);
}

#[test]
fn a_pod_of_type_tap_comes_and_goes() {
    if Feature::Tun.or_skip() {
        a_pod_comes_and_goes("tap", json!({}), false);
    }
}

#[test]
fn a_pod_with_addresses_of_static_comes_and_goes() {
    let addresses = json!([{"address": "10.88.0.9/24", "gateway": GATEWAY}]);
    a_pod_comes_and_goes("ptp", json!({"ipam": {"type": "static", "addresses": addresses}}), true);
}
