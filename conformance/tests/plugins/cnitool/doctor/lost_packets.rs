//! `cnitool doctor` on nodes whose containers are in the cache and get no packets: each cause is named, the commands that it
//! names as the remedy mend it, and a healthy node has no finding.

use super::cases::{ERROR, Expected, WARNING, cases, parse};
use crate::cnitool::{Tour, netns};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use testns::{Container, Namespace};

/// A node with a way out, and a network whose containers have a way out and ports of the node.
pub(super) struct Sick {
    pub(super) tour: Tour,
    pub(super) outside: Namespace,
}

pub(super) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Sick {
    pub(super) fn new() -> Self {
        let tour = Tour::with_plugins();
        let (host, outside) = (tour.node.host(), tour.node.remote("outside"));
        host.add_veth("ens3", &outside, "eth0");
        [(host, "ens3"), (&outside, "eth0")].iter().for_each(|(place, link)| place.set_up(link));
        host.add_address("ens3", "192.168.1.7/24");
        outside.add_address("eth0", "192.168.1.1/24");
        host.add_route("0.0.0.0/0", "192.168.1.1", "ens3");
        sh("ip -6 address add fd00:1::7/64 dev ens3 nodad; ip -6 route add default via fd00:1::1");
        let sick = Self { tour, outside };
        sick.office(&json!([
            {"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": sick.tour.host_local()},
            {"type": "portmap", "capabilities": {"portMappings": true}}]));
        sick
    }

    /// A node with a container that has addresses of both families.
    pub(super) fn of_both_families() -> (Self, Container) {
        let sick = Self::new();
        sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.both_families()},
            {"type": "portmap", "capabilities": {"portMappings": true}}]));
        let pod = sick.add("office", "web", Some(8080));
        assert_eq!(sick.doctor(), (0, Vec::new()));
        (sick, pod)
    }

    /// Key `ipam` for addresses of both families.
    pub(super) fn both_families(&self) -> Value {
        let ranges = json!([[{"subnet": format!("{}.0/24", self.tour.subnet)}], [{"subnet": "fd00:207:1::/64"}]]);
        json!({"type": "host-local", "ranges": ranges})
    }

    /// Gives network `office` other plugins.
    pub(super) fn office(&self, plugins: &Value) {
        self.network("10-office", json!({"name": "office", "plugins": plugins}));
    }

    pub(super) fn network(&self, file: &str, mut network: Value) {
        network["cniVersion"] = json!("1.1.0");
        fs::write(format!("/etc/cni/net.d/{file}.conflist"), network.to_string()).unwrap();
    }

    /// A new container with this ID on the network, and with a port of the node if it is to have one.
    pub(super) fn add(&self, network: &str, name: &str, port: Option<u16>) -> Container {
        let pod = self.tour.node.container();
        let netns = netns(&pod);
        let mapped =
            port.map(|port| json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]}));
        let mapped = mapped.map(|mapped| mapped.to_string());
        let more: Vec<&str> = mapped.iter().flat_map(|mapped| ["--cap-args", mapped]).collect();
        self.tour.cnitool(&[&["add", network, &netns, "--container-id", name][..], &more].concat());
        pod
    }

    pub(super) fn doctor(&self) -> (i32, Vec<Value>) {
        self.tour.doctor(&[])
    }

    /// Runs the remedies of all findings, as they are printed, until there is nothing to mend.
    pub(super) fn mend(&self, what: &str) {
        for _ in 0..3 {
            let (_, findings) = self.doctor();
            let remedies = findings.iter().map(|finding| finding["remedy"].as_str().unwrap());
            for remedy in remedies {
                let done = self.tour.shell(remedy);
                assert!(done.status.success(), "{what}: {remedy}: {done:?}");
            }
        }
        assert_eq!(self.doctor(), (0, Vec::new()), "{what}");
    }

    #[track_caller]
    pub(super) fn expect(&self, what: &str, expected: &[Expected<'_>]) {
        let (exit, findings) = self.doctor();
        for (kind, _, text, _) in expected {
            let is_it = |finding: &&Value| finding["kind"] == *kind && finding.to_string().contains(text);
            assert!(findings.iter().any(|finding| is_it(&finding)), "{what}: no {kind} with {text} in {findings:#?}");
        }
        assert_eq!(exit, expected.iter().map(|(_, code, ..)| *code).max().unwrap_or(0), "{what}: {findings:#?}");
        let kinds = |kind: &Value| expected.iter().any(|(expected, ..)| kind == expected);
        assert!(findings.iter().all(|finding| kinds(&finding["kind"])), "{what}: {findings:#?}");
        assert!(findings.iter().all(|finding| finding["remedy"] != ""), "{what}: {findings:#?}");
        if !expected.is_empty() && expected.iter().all(|(.., mends)| *mends) {
            self.mend(what);
        }
    }
}

const DAMAGES: &str = include_str!("tables/lost_packets.txt");

#[test]
fn each_cause_of_lost_packets_is_found_and_its_remedy_mends_it() {
    find_and_mend_each(DAMAGES);
}

/// Damages healthy nodes with one container, `web`: doctor has these findings, and their remedies make a node healthy again.
pub(super) fn find_and_mend_each(table: &str) {
    cases(table).iter().for_each(|case| find_and_mend(case));
}

fn find_and_mend(damage: &str) {
    if damage.contains("net.bridge") && !std::path::Path::new("/proc/sys/net/bridge").exists() {
        testns::skip(damage, "the kernel has no br_netfilter");
        return;
    }
    let sick = Sick::new();
    let pod = sick.add("office", "web", Some(8080));
    assert_eq!(sick.doctor(), (0, Vec::new()), "before {damage}");
    let case = sick.tour.with_addresses(damage);
    let (script, expected) = parse(&case);
    sh(&script.replace("ip -n pod", &format!("nsenter --net={} ip", netns(&pod))));
    sick.expect(script, &expected);
    if expected.iter().all(|(.., mends)| *mends) {
        let outside = "192.168.1.1".parse::<std::net::IpAddr>().unwrap();
        let within = std::time::Duration::from_secs(5);
        assert!(pod.namespace().pings(outside, within), "after the remedy of {damage}");
    }
}

const DAMAGES_BEFORE_ADD: &str = include_str!("tables/before_add.txt");

/// Doctor finds the fault in the configurations alone, before a container meets it.
#[test]
fn what_the_next_add_would_meet_is_found() {
    for case in cases(DAMAGES_BEFORE_ADD) {
        let sick = Sick::new();
        sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.both_families()}]));
        assert_eq!(sick.doctor(), (0, Vec::new()), "before {case}");
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        sh(script);
        sick.expect(script, &expected);
    }
}

#[test]
fn a_range_without_addresses_is_a_fault_of_the_configuration() {
    let sick = Sick::new();
    let (subnet, only) = (format!("{}.0/24", sick.tour.subnet), sick.tour.address(1));
    sick.office(&json!([{"type": "bridge", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": subnet, "rangeStart": only, "rangeEnd": only}}]));
    let (exit, findings) = sick.doctor();
    let text = format!("range {only} to {only} has no address that a container can get");
    assert!(findings.iter().any(|it| it["kind"] == "config" && it["what"] == *text), "{findings:#?}");
    assert_eq!(exit, ERROR);
    assert!(!findings.iter().any(|it| it["kind"] == "range-full"), "{findings:#?}");
}

/// Version 1.0.0 has no STATUS. This suite's plugins know all the same what their next ADD would meet.
#[test]
fn plugins_of_a_network_below_1_1_0_are_asked_for_their_state() {
    let sick = Sick::new();
    let subnet = format!("{}.0/24", sick.tour.subnet);
    let ipam = json!({"type": "host-local", "subnet": subnet});
    let resolv = json!({"type": "host-local", "subnet": subnet, "resolvConf": "/etc/absent.conf"});
    for (plugin, text) in [
        (json!({"type": "macvlan", "master": "eth42", "ipam": ipam}), "there is no interface of that name"),
        (json!({"type": "bridge", "ipam": resolv}), "cannot read /etc/absent.conf"),
    ] {
        let list = json!({"cniVersion": "1.0.0", "name": "office", "plugins": [plugin]});
        fs::write("/etc/cni/net.d/10-office.conflist", list.to_string()).unwrap();
        sick.expect(text, &[("not-ready", ERROR, text, false)]);
    }
}

/// A macvlan holds on to its master by index, so it lives on when that is renamed.
#[test]
fn the_master_of_containers_may_be_renamed_or_lose_its_carrier() {
    let sick = Sick::new();
    sh("ip link add nic0 type veth peer nic0-end; ip link set nic0 up; ip link set nic0-end up");
    sick.office(&json!([{"type": "macvlan", "master": "nic0", "ipam": sick.tour.host_local()}]));
    let _pod = sick.add("office", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sh("ip link set nic0-end down");
    sick.expect("no carrier", &[("link-down", WARNING, "link nic0 has no carrier", false)]);
    sh("ip link set nic0-end up; ip link set nic0 down; ip link set nic0 name lan7; ip link set lan7 up");
    let renamed = "link nic0, which the container's macvlan is stacked on, is called lan7 now";
    sick.expect(
        "a new name",
        &[("link-gone", ERROR, renamed, false), ("not-ready", ERROR, "there is no interface of that name", false)],
    );
}

#[test]
fn ports_that_others_have_are_found() {
    let sick = Sick::new();
    let _web = sick.add("office", "web", Some(8080));
    // An address of the loopback link gets no packets from outside; another protocol is another port.
    let harmless = sick
        .tour
        .node
        .host()
        .enter(|| (TcpListener::bind("127.0.0.1:8080").unwrap(), UdpSocket::bind("0.0.0.0:8080").unwrap()));
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let listener = sick.tour.node.host().enter(|| TcpListener::bind("192.168.1.7:8080").unwrap());
    sick.expect("a process listens", &[("port-taken", WARNING, "of the node listens on port 8080/tcp", false)]);
    drop((listener, harmless));
    let _other = sick.add("office", "other", Some(8080));
    sick.expect(
        "two containers",
        &[("port-twice", ERROR, "web/eth0 in network office asked for port 8080/tcp", false)],
    );
}

/// Networks of each kind: nothing of them needs more than it has.
#[test]
fn a_healthy_node_has_no_finding() {
    let sick = Sick::new();
    let subnet = |last: u8| format!("{}.{last}/27", sick.tour.subnet);
    sick.office(&json!([
        {"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet(0)}], [{"subnet": "fd00:207:1::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "firewall"}]));
    let plugin =
        |name: &str, plugin: Value| sick.network(&format!("20-{name}"), json!({"name": name, "plugins": [plugin]}));
    plugin(
        "lan",
        json!({"type": "macvlan", "master": "ens3", "ipam": {"type": "host-local", "subnet": "192.168.1.0/24",
        "rangeStart": "192.168.1.50", "rangeEnd": "192.168.1.60", "gateway": "192.168.1.1", "routes": [{"dst": "0.0.0.0/0"}]}}),
    );
    plugin(
        "pair",
        json!({"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": subnet(64),
        "routes": [{"dst": "0.0.0.0/0"}]}}),
    );
    plugin("switch", json!({"type": "bridge", "bridge": "br5", "ipam": {"type": "host-local", "subnet": subnet(96)}}));
    plugin(
        "storage",
        json!({"type": "bridge", "bridge": "br6", "ipam": {"type": "host-local", "subnet": "fd00:207:2::/64"}}),
    );
    let _pods = ["office", "lan", "pair", "switch", "storage"]
        .map(|network| sick.add(network, network, (network == "office").then_some(8080)));
    let _more = ["switch", "storage"].map(|network| sick.add(network, &format!("{network}2"), None));
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let shown = sick.tour.cnitool(&["doctor"]);
    assert!(shown.starts_with("no faults found\nnot looked at: tables raw"), "{shown}");
    assert!(shown.contains(", what is beyond the node"), "{shown}");
    // An administrator's firewall that knows the networks is none of their faults.
    sh("nft add table inet guard
        nft 'add chain inet guard pass { type filter hook forward priority 0; policy drop; }'
        nft add rule inet guard pass ct state established,related accept; nft add rule inet guard pass ct status dnat accept
        for link in cni0 veth*; do nft add rule inet guard pass iifname $link accept; done
        nft 'add rule inet guard pass iifname { br5, br6 } accept'
        nft 'add map inet guard out { type ifname : verdict; elements = { br5 : accept, br6 : accept } ; }'
        nft 'add rule inet guard pass oifname vmap @out'");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    // Frames between containers of a bridge without gateway pass the filter, too, and nothing else of theirs does.
    sh("nft flush chain inet guard pass; nft add rule inet guard pass iifname cni0 accept
        nft add rule inet guard pass ct status dnat accept
        nft add rule inet guard pass ct state established,related accept; nft add rule inet guard pass ip saddr 192.0.2.1 drop");
    let (_, findings) = sick.doctor();
    let networks: Vec<&Value> = findings.iter().map(|finding| &finding["network"]).collect();
    let expected: &[&str] = match fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables").as_deref() {
        Ok("1\n") => &["pair", "storage", "switch"],
        _ => &["pair"],
    };
    assert_eq!(networks, expected, "{findings:#?}");
    drop(sick.outside);
}

/// A container with CAP_NET_ADMIN can give itself any address.
#[test]
fn an_address_that_a_container_has_taken_from_another_is_found() {
    let sick = Sick::new();
    let web = sick.add("office", "web", None);
    let other = sick.add("office", "other", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    other.namespace().add_address("eth0", &format!("{}/24", sick.tour.address(2)));
    let text = format!("eth0 in the container has {}, too, which web/eth0 got in network office", sick.tour.address(2));
    sick.expect("an address is taken", &[("duplicate-address", ERROR, &text, true)]);
    assert_eq!(web.namespace().global_addresses("eth0"), [sick.tour.address(2) + "/24"]);
}

/// A virtual machine has the interface of its pod as a port of a bridge, and its guest has the addresses.
#[test]
fn addresses_that_a_guest_has_are_not_missing() {
    let sick = Sick::new();
    let pod = sick.add("office", "vm", None);
    let inside = pod.namespace();
    inside.delete_addresses("eth0");
    sick.expect("before the guest", &[("container-side", ERROR, "does not have", false)]);
    inside.add_link("k6t-eth0", "bridge");
    inside.set_master("eth0", "k6t-eth0");
    assert_eq!(sick.doctor(), (0, Vec::new()));
    let explained = sick.tour.cnitool(&["explain", "vm"]);
    assert!(explained.contains("eth0 is a port of bridge k6t-eth0 in the container"), "{explained}");
}
