//! Networks beside podman's default one, and containers that join and leave them.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::add_result::assert_as_the_result;
use crate::engine::Container;
use crate::engine::Podman;
use crate::leftovers::assert_nothing_left;

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

/// `--ip` reaches host-local as a capability, `--mac-address` bridge in `CNI_ARGS`; on podman's own networks tuning would set it, too.
#[test]
fn an_address_and_a_mac_may_be_chosen() {
    let Some(podman) = Podman::or_skip() else { return };
    write_office(&office());
    assert_nothing_left(&podman, |podman| {
        let networks = [("podman", "10.88.0.77"), ("office", "10.7.0.77")];
        let theirs = networks.map(|(network, ip)| with_ip_and_mac(podman, network, ip, "02:11:22:33:44:55"));
        theirs.concat()
    });
}

fn with_ip_and_mac(podman: &Podman, network: &str, ip: &str, mac: &str) -> Vec<String> {
    let container = podman.start(&["--network", network, "--ip", ip, "--mac-address", mac]);
    assert_as_the_result(&container, network);
    assert_eq!(container.address(network), ip);
    assert_eq!(container.namespace().link("eth0").mac, mac);
    let taken = podman.fails(&Podman::start_command(&["--network", network, "--ip", ip]));
    assert!(taken.contains(ip) && taken.contains("not available"), "{taken}");
    podman.ok(&["rm", "--latest"]);
    container.remove();
    vec![container.id.clone(), ip.to_owned(), mac.to_owned()]
}

/// A running container joins a network and leaves it; its first network does not notice.
#[test]
fn a_running_container_may_join_a_network_and_leave_it() {
    let Some(podman) = Podman::or_skip() else { return };
    create(&podman, "made");
    assert_nothing_left(&podman, |podman| {
        let container = podman.start(&["--network", "podman"]);
        let (host, namespace) = (podman.node.host(), container.namespace());
        podman.ok(&["network", "connect", "made", &container.id]);
        let said = podman.inspect(&container.id)["NetworkSettings"]["Networks"]["made"].take();
        let joined = format!("{}/{}", said["IPAddress"].as_str().unwrap(), said["IPPrefixLen"]);
        assert_eq!(namespace.global_addresses("eth1"), [joined]);
        namespace.ping(said["Gateway"].as_str().unwrap().parse::<Ipv4Addr>().unwrap());
        podman.ok(&["network", "disconnect", "made", &container.id]);
        assert!(namespace.find_link("eth1").is_none());
        assert_eq!(host.links().iter().filter(|link| link.kind == "veth").count(), 1);
        namespace.ping("10.88.0.1".parse::<Ipv4Addr>().unwrap());
        container.remove();
        vec![container.id.clone(), container.address("podman"), said["IPAddress"].as_str().unwrap().to_owned()]
    });
}

/// Stopped and started again, a container is taken off its network and attached anew.
#[test]
fn a_container_may_be_restarted() {
    let Some(podman) = Podman::or_skip() else { return };
    assert_nothing_left(&podman, |podman| {
        let first = podman.start(&[]);
        podman.ok(&["restart", "--time", "0", &first.id]);
        let again = Container::of(podman, first.id.clone());
        assert_ne!(first.network("podman")["MacAddress"], again.network("podman")["MacAddress"]);
        assert_as_the_result(&again, "podman");
        again.exec(&["ping", "-c1", "-W5", "10.88.0.1"]);
        again.remove();
        vec![first.id.clone(), first.address("podman"), again.address("podman")]
    });
}
