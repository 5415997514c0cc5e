//! A container and its network agree with the result of ADD.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;

use serde_json::Value;

use crate::engine::Container;
use crate::engine::Podman;
use crate::leftovers::assert_nothing_left;
use crate::networks;

/// podman's default network: bridge, portmap, firewall and tuning, all of the suite.
#[test]
fn on_the_default_network_a_container_has_what_the_result_says() {
    let Some(podman) = Podman::or_skip() else { return };
    assert_nothing_left(&podman, |podman| two_containers(podman, "podman"));
}

/// A network whose list `podman network create` writes; with it goes its bridge.
#[test]
fn on_a_network_that_podman_made_a_container_has_what_the_result_says() {
    let Some(podman) = Podman::or_skip() else { return };
    assert_nothing_left(&podman, |podman| {
        networks::create(podman, "made");
        let theirs = two_containers(podman, "made");
        podman.ok(&["network", "rm", "made"]);
        assert!(podman.node.host().find_link("cni-podman1").is_none());
        theirs
    });
}

/// A list as an operator writes it, of the newest version that podman knows, with both families.
#[test]
fn on_a_network_of_the_operator_a_container_has_what_the_result_says() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::write_office(&networks::office());
    assert_nothing_left(&podman, |podman| two_containers(podman, "office"));
}

/// Containers that start at the same time get addresses of their own, and may end at the same time.
#[test]
fn containers_may_start_and_end_all_at_once() {
    let Some(podman) = Podman::or_skip() else { return };
    assert_nothing_left(&podman, |podman| {
        let containers = start_at_once(podman, 4);
        let addresses: BTreeSet<_> = containers.iter().map(|container| container.address("podman")).collect();
        assert_eq!(addresses.len(), containers.len());
        let last: Ipv4Addr = containers[3].address("podman").parse().unwrap();
        containers[0].namespace().ping(last);
        thread::scope(|scope| {
            for container in &containers {
                scope.spawn(|| container.remove());
            }
        });
        addresses.into_iter().chain(containers.iter().map(|container| container.id.clone())).collect()
    });
}

fn start_at_once(podman: &Podman, number: usize) -> Vec<Container<'_>> {
    thread::scope(|scope| {
        let starts: Vec<_> = (0..number).map(|_| scope.spawn(|| podman.start(&[]))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    })
}

/// Two containers on a network that see the gateway and each other; what was theirs.
fn two_containers(podman: &Podman, network: &str) -> Vec<String> {
    let containers = [(), ()].map(|()| podman.start(&["--network", network]));
    for (container, other) in [(&containers[0], &containers[1]), (&containers[1], &containers[0])] {
        assert_as_the_result(container, network);
        let gateway = container.network(network)["Gateway"].as_str().unwrap();
        container.exec(&["ping", "-c1", "-W5", gateway]);
        container.exec(&["ping", "-c1", "-W5", &other.address(network)]);
    }
    for container in &containers {
        assert_eq!(container.remove(), "");
    }
    containers.iter().flat_map(|container| [container.id.clone(), container.address(network)]).collect()
}

/// The link, the result and podman say the same.
pub(crate) fn assert_as_the_result(container: &Container<'_>, network: &str) {
    let result = container.result(network, "eth0");
    let in_result: Vec<_> = result["ips"].as_array().unwrap().iter().map(|ip| text(&ip["address"])).collect();
    let namespace = container.namespace();
    namespace.wait_for_addresses();
    assert_eq!(namespace.global_addresses("eth0"), in_result);
    let said = container.network(network);
    let mut by_podman = vec![format!("{}/{}", text(&said["IPAddress"]), said["IPPrefixLen"])];
    if in_result.len() > 1 {
        by_podman.push(format!("{}/{}", text(&said["GlobalIPv6Address"]), said["GlobalIPv6PrefixLen"]));
        assert_eq!(said["IPv6Gateway"], result["ips"][1]["gateway"]);
    }
    assert_eq!(by_podman, in_result);
    assert_eq!(said["Gateway"], result["ips"][0]["gateway"]);
    assert_eq!(text(&said["MacAddress"]), namespace.link("eth0").mac);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
