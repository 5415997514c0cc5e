//! Networks beside podman's default one, and containers that join and leave them.

use serde_json::{Value, json};

use crate::engine::Podman;
use crate::left::assert_nothing_left;

/// Lets podman write a network's list: bridge, portmap, firewall, tuning.
pub(crate) fn create(podman: &Podman, name: &str) {
    podman.ok(&["network", "create", "--subnet", "10.89.0.0/24", name]);
}

/// A list as an operator writes it: version 1.0.0, the newest that podman 4.3 knows, both families.
pub(crate) fn office() -> Value {
    json!({"cniVersion": "1.0.0", "name": "office", "plugins": [
        {"type": "bridge", "bridge": "office0", "isDefaultGateway": true, "ipMasq": true, "capabilities": {"ips": true},
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]})
}

/// Puts a list where podman reads its networks.
pub(crate) fn write_office(list: &Value) {
    std::fs::write("/etc/cni/net.d/10-office.conflist", list.to_string()).unwrap();
}

/// `--ip` reaches host-local as a capability, `--mac-address` bridge and tuning in `CNI_ARGS`.
#[test]
fn an_address_and_a_mac_may_be_chosen() {
    let Some(podman) = Podman::or_skip() else { return };
    let (ip, mac) = ("10.88.0.77", "02:11:22:33:44:55");
    assert_nothing_left(&podman, |podman| {
        let container = podman.start(&["--ip", ip, "--mac-address", mac]);
        crate::attached::assert_as_the_result(&container, "podman");
        assert_eq!(container.namespace().global_addresses("eth0"), [format!("{ip}/16")]);
        assert_eq!(container.namespace().link("eth0").mac, mac);
        let taken = podman.fails(&Podman::start_command(&["--ip", ip]));
        assert!(taken.contains(ip) && taken.contains("not available"), "{taken}");
        podman.ok(&["rm", "--latest"]);
        container.remove();
        vec![container.id.clone(), ip.to_owned(), mac.to_owned()]
    });
}

/// A running container joins a network and leaves it; its first network does not notice.
#[test]
fn a_running_container_may_join_a_network_and_leave_it() {
    let Some(podman) = Podman::or_skip() else { return };
    create(&podman, "made");
    assert_nothing_left(&podman, |podman| {
        let container = podman.start(&["--network", "podman"]);
        let (first, second) = (podman.node.host().clone(), container.namespace());
        podman.ok(&["network", "connect", "made", &container.id]);
        let said = podman.inspect(&container.id)["NetworkSettings"]["Networks"]["made"].take();
        let joined = format!("{}/{}", said["IPAddress"].as_str().unwrap(), said["IPPrefixLen"]);
        assert_eq!(second.global_addresses("eth1"), [joined]);
        second.ping(said["Gateway"].as_str().unwrap().parse::<std::net::Ipv4Addr>().unwrap());
        podman.ok(&["network", "disconnect", "made", &container.id]);
        assert!(second.find_link("eth1").is_none());
        assert_eq!(first.links().iter().filter(|link| link.kind == "veth").count(), 1);
        second.ping("10.88.0.1".parse::<std::net::Ipv4Addr>().unwrap());
        container.remove();
        vec![container.id.clone(), container.address("podman"), said["IPAddress"].as_str().unwrap().to_owned()]
    });
}

/// One container on two networks from its start, and one pod of two containers in a namespace.
#[test]
fn a_container_may_have_two_networks() {
    let Some(podman) = Podman::or_skip() else { return };
    create(&podman, "made");
    assert_nothing_left(&podman, |podman| {
        let container = podman.start(&["--network", "podman", "--network", "made"]);
        let addresses = ["podman", "made"].map(|network| container.address(network));
        let links = ["eth0", "eth1"].map(|link| container.namespace().global_addresses(link)).concat();
        for address in &addresses {
            assert!(links.iter().any(|own| own.split('/').next() == Some(address)), "{address} in {links:?}");
        }
        container.remove();
        [vec![container.id.clone()], addresses.to_vec()].concat()
    });
}

/// Stopped and started again, a container is taken off its network and attached anew.
#[test]
fn a_container_may_be_restarted() {
    let Some(podman) = Podman::or_skip() else { return };
    assert_nothing_left(&podman, |podman| {
        let first = podman.start(&[]);
        podman.ok(&["restart", "--time", "0", &first.id]);
        let again = crate::container::Container::of(podman, first.id.clone());
        assert_ne!(first.network("podman")["MacAddress"], again.network("podman")["MacAddress"]);
        crate::attached::assert_as_the_result(&again, "podman");
        again.exec(&["ping", "-c1", "-W5", "10.88.0.1"]);
        again.remove();
        vec![first.id.clone(), first.address("podman"), again.address("podman")]
    });
}
