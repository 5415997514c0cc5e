//! `cnitool doctor` on healthy nodes: the networks that people have, each with two containers, give no finding.
//!
//! The configurations are those of public reports, with other names and addresses. Those with links that this kernel does not
//! make run in the lane of the full kernel.

use super::lost_packets::Sick;
use crate::cnitool::netns;
use serde_json::Value;
use std::time::Duration;
use testns::{Container, Feature};

const PORTS: &str = r#"{"portMappings":[{"hostPort":PORT,"containerPort":80,"protocol":"tcp"}],
    "bandwidth":{"ingressRate":8000000,"ingressBurst":800000,"egressRate":4000000,"egressBurst":400000}}"#;

/// Calls a plugin of this suite with a configuration of its own, as plugins of network add-ons do.
const CALLERS: [(&str, &str); 3] = [
    (
        "flannel",
        r#"cat > /dev/null; exec "${0%/*}/bridge" <<X
{"cniVersion":"0.3.1","name":"cbr0","type":"bridge","hairpinMode":true,"isDefaultGateway":true,"isGateway":true,"mtu":1450,
 "ipam":{"type":"host-local","ranges":[[{"subnet":"S.0/24"}]],"routes":[{"dst":"10.0.0.0/8"}]}}
X"#,
    ),
    (
        "calico",
        r#"cat > /dev/null; exec "${0%/*}/ptp" <<X
{"cniVersion":"0.3.1","name":"pod-network","type":"ptp","mtu":1450,"ipMasq":true,
 "ipam":{"type":"host-local","ranges":[[{"subnet":"S.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}
X"#,
    ),
    (
        "multus",
        r#"cat > /dev/null; exec "${0%/*}/bridge" <<X
{"cniVersion":"0.3.1","name":"delegated","type":"bridge","bridge":"cni0","isDefaultGateway":true,"ipMasq":true,
 "ipam":{"type":"host-local","subnet":"S.0/24"}}
X"#,
    ),
];

/// A chained plugin of another project that changes nothing.
const CHAINED: [&str; 3] = ["mesh", "dnsname", "redirect"];

/// Networks: the name of each, `needs` and the kernel's features that it needs, `reaches out` if its containers reach the machine
/// beyond the node; then its plugins. `S` begins the addresses of the network, `T` those of IPv6.
const NETWORKS: &str = include_str!("tables/healthy_networks.txt");

/// The versions that such files have.
const VERSIONS: [&str; 3] = ["1.1.0", "0.4.0", "1.0.0"];

/// The features in conditions such as `needs Vlan, Ifb; reaches out`.
fn needed(conditions: &str) -> Vec<Feature> {
    let names =
        conditions.split("; ").filter_map(|condition| condition.strip_prefix("needs ")).flat_map(|all| all.split(", "));
    names.map(|name| Feature::ALL.into_iter().find(|feature| format!("{feature:?}") == name).expect(name)).collect()
}

#[test]
fn a_node_with_a_network_as_people_have_it_has_no_finding() {
    let sick = Sick::new();
    for (name, script) in CALLERS {
        let script = format!(
            "#!/bin/sh\n[ $CNI_COMMAND != STATUS ] || exit 0\n{}\n",
            script.replace("S.", &format!("{}.", sick.tour.subnet))
        );
        testns::write_executable(sick.tour.bin_dir.join(name), script).unwrap();
    }
    for name in CHAINED {
        testns::write_executable(sick.tour.bin_dir.join(name), "#!/bin/sh\nexec \"${0%/*}/tuning\"\n").unwrap();
    }
    let (mut version, mut wrong) = (VERSIONS.iter().cycle(), Vec::new());
    for (place, network) in NETWORKS.split("== ").skip(1).enumerate() {
        let (head, plugins) = network.split_once('\n').unwrap();
        let (what, conditions) = head.split_once("; ").unwrap_or((head, ""));
        // Not in the words by which the full kernel's lane takes tests: it has busybox's ip and no iptables, which this test needs.
        if let Some(missing) = needed(conditions).into_iter().find(|feature| !feature.is_here()) {
            testns::skip(&format!("healthy node, {what}"), &format!("{missing} is missing"));
            continue;
        }
        let network = match what.split(' ').next() {
            Some("flannel") => "cbr0",
            Some("calico") => "pod-network",
            _ => "office",
        };
        let plugins =
            plugins.replace("S.", &format!("{}.", sick.tour.subnet)).replace("T:", &format!("fd00:207:{place:x}:"));
        let version = version.next().unwrap();
        let list = format!(r#"{{"cniVersion":"{version}","name":"{network}","plugins":[{plugins}]}}"#);
        std::fs::write("/etc/cni/net.d/10-office.conflist", &list).unwrap();
        // A fixed address or a link of the node is for one container only.
        let count = if list.contains("\"static\"") { 1 } else { 2 };
        if list.contains("host-device") {
            super::lost_packets::sh("ip link add spare type veth peer spare-end; ip link set spare-end up");
        }
        let pods: Vec<Container> = (0..count).map(|_| sick.tour.node.container()).collect();
        for (number, pod) in pods.iter().enumerate() {
            let caps = PORTS.replace("PORT", &format!("{}", 8080 + number));
            let added = sick.tour.call(&["add", network, &netns(pod), "--cap-args", &caps]);
            if !added.status.success() {
                wrong.push(format!("{what}: {}", String::from_utf8_lossy(&added.stderr)));
            }
        }
        let (_, mut findings) = sick.doctor();
        findings.retain(|finding| finding["kind"] != "mixed-makes");
        let outside = "192.168.1.1".parse::<std::net::IpAddr>().unwrap();
        if !findings.is_empty()
            || conditions.contains("reaches out")
                && !pods.iter().all(|pod| pod.namespace().pings(outside, Duration::from_secs(5)))
        {
            wrong.push(format!("{what}: {:#?}", Value::Array(findings)));
        }
        for pod in &pods {
            sick.tour.cnitool(&["del", network, &netns(pod)]);
        }
        drop(pods);
        super::lost_packets::sh(
            "for link in $(ip -o link show type bridge | cut -d' ' -f2 | tr -d :); do ip link delete $link; done
            ip link delete spare 2> /dev/null || true",
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
