//! `cnitool doctor` on nodes whose containers are in the cache and get no packets: each cause is named, the commands that it
//! names as the remedy mend it, and a healthy node has no finding.

use super::{ERROR, Expected, WARNING, cases, parse};
use crate::cnitool::{Tour, netns};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::time::Duration;
use testns::{Container, Namespace};

const SHORT: Duration = Duration::from_millis(300);

const LONG: Duration = Duration::from_secs(10);

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

#[test]
fn each_cause_of_lost_packets_is_found_and_its_remedy_mends_it() {
    find_and_mend_each(include_str!("tables/lost_packets.txt"), Pings::Any);
}

/// A container has lost one family, one link of a pair, a port or the uplink.
#[test]
fn each_way_that_is_lost_in_part_is_found() {
    find_and_mend_each(include_str!("tables/lost_in_part.txt"), Pings::Any);
}

#[test]
fn each_fault_of_the_containers_own_side_is_found() {
    find_and_mend_each(include_str!("tables/lost_inside.txt"), Pings::Any);
}

/// What packets meet before the masquerade of a container, or before the rule that forwards a port, in iptables' table `nat`.
#[test]
fn what_comes_before_a_translation_is_found() {
    find_and_mend_each(include_str!("tables/address_translation.txt"), Pings::Any);
}

/// Nodes on which nothing passes, by conditions, families and programs that no reading of rules covers.
#[test]
fn what_no_reading_shows_is_found_by_packets() {
    find_and_mend_each(include_str!("tables/unread.txt"), Pings::Any);
}

/// Packet filters as other programs write them: what drops packets is named at each hook.
#[test]
fn a_filter_that_drops_packets_is_named_at_each_hook_and_opened_by_its_remedy() {
    find_and_mend_each(include_str!("tables/dropping_filters.txt"), Pings::Lost);
}

/// Chains of other programs by which packets of containers pass though a policy drops others.
#[test]
fn a_filter_that_lets_packets_pass_is_no_fault() {
    find_and_mend_each(include_str!("tables/passing_filters.txt"), Pings::Pass);
}

/// Filters whose findings have no remedy that opens them, and filters that are no fault.
#[test]
fn rules_for_some_packets_are_told_from_those_for_all() {
    find_and_mend_each(include_str!("tables/filters_of_some_packets.txt"), Pings::Any);
}

/// Whether the kernel has no parameters that a case sets.
fn skips(case: &str) -> bool {
    let skips = case.contains("net.bridge") && !std::path::Path::new("/proc/sys/net/bridge").exists();
    if skips {
        testns::skip(case, "the kernel has no br_netfilter");
    }
    skips
}

/// Moves the node's addresses and way out to bridge `lan0`, of which `ens3` is a port then.
const BRIDGED: &str = "ip link add lan0 type bridge; ip link set lan0 up; ip link set ens3 master lan0
    ip address flush dev ens3; ip address add 192.168.1.7/24 dev lan0; ip -6 address add fd00:1::7/64 dev lan0 nodad
    ip route replace default via 192.168.1.1; ip -6 route replace default via fd00:1::1 dev lan0";

/// Nodes with networks and containers of their own.
const NODES: &str = include_str!("tables/nodes.txt");

/// The functions of these scripts: `healthy` ends them where doctor finds something.
const FUNCTIONS: &str = r#"
cnitool() { $CNI_PATH/cnitool "$@"; }
network() { printf '{"cniVersion":"%s","name":"%s","plugins":[%s]}' ${version:-1.1.0} $1 "$2" > /etc/cni/net.d/${3:-20}-$1.conflist; }
office() { network office "$1" 10; }
fixed() { network $1 '{"type":"bridge","bridge":"'$2'","ipam":{"type":"static","addresses":[{"address":"'$3'/24"}]}}'; }
pod() { ip netns add $1; cnitool add ${2:-office} /run/netns/$1 --container-id $1 --cap-args \
    "{\"portMappings\":[${3:+{\"hostPort\":$3,\"containerPort\":80,\"protocol\":\"tcp\"$address\}}]}" > /dev/null; }
inside() { of=$1; shift; ip -n $of "$@"; }
healthy() { cnitool doctor >&2; }
fresh() { office '{"type":"bridge","isDefaultGateway":true,"ipam":'"$both"'}'; healthy; }
veths() { ls /sys/class/net | grep ^veth; }
held() { for last in $(seq $1 $2); do printf "an operator's" > /var/lib/cni/networks/office/A.$last; done; }
# A plugin of another project.
answers() { rm -f $CNI_PATH/$1; printf '#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || echo %s\n' \
    "'{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}'" > $CNI_PATH/$1; chmod +x $CNI_PATH/$1; }
odd() { office '{"type":"bridge","bridge":"b;false","isDefaultGateway":true,"ipam":'$pool'}'; ip netns add web
    cnitool add office /run/netns/web --container-id web --ifname 'e$(false)x' > /dev/null; healthy; }
# Until the kernel has found that another one has the address.
refused() { until "$@" dadfailed | grep -q fd00; do :; done; }
pool='{"type":"host-local","subnet":"A.0/24"}'
both='{"type":"host-local","ranges":[[{"subnet":"A.0/24"}],[{"subnet":"fd00:207:1::/64"}]]}'
dual='{"type":"bridge","isDefaultGateway":true,"ipam":'$both'},{"type":"portmap","capabilities":{"portMappings":true}}'
pair='{"type":"ptp","ipam":'${both%?}',"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}'
limited='{"type":"bridge","isDefaultGateway":true,"ipam":{"type":"host-local","subnet":"A.0/24"}},{"type":"bandwidth","egressRate":8000000,"egressBurst":800000}'
"#;

/// Each row on a node of its own, some at a time.
#[test]
fn each_node_of_the_table_has_its_findings() {
    let rows = cases(NODES);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let rows = rows.iter().skip(first).step_by(4).filter(|row| !skips(row));
            scope.spawn(|| rows.for_each(|row| has_its_findings(row)));
        }
    });
}

fn has_its_findings(row: &str) {
    let sick = Sick::new();
    let (functions, case) = (sick.tour.with_addresses(FUNCTIONS), sick.tour.with_addresses(row));
    let (script, expected) = parse(&case);
    let script = format!(
        "export CNI_PATH={}; address=\n{functions}bridged() {{ {BRIDGED}; }}\n{script}",
        sick.tour.bin_dir.display()
    );
    sh(&script);
    sick.expect(&case, &expected);
}

/// The effect of a case on echo requests of the container.
#[derive(Clone, Copy, PartialEq)]
enum Pings {
    Any,
    /// Echo requests pass, and the container has no port.
    Pass,
    /// Echo requests are lost, and the container has no port.
    Lost,
}

/// Damages healthy nodes with one container, `web`: doctor has these findings, and their remedies make a node healthy again.
fn find_and_mend_each(table: &str, pings: Pings) {
    for case in cases(table).into_iter().filter(|case| !skips(case)) {
        let sick = Sick::new();
        let pod = sick.add("office", "web", (pings == Pings::Any).then_some(8080));
        let gets_out = |within| pod.namespace().pings("192.168.1.1".parse::<IpAddr>().unwrap(), within);
        assert_eq!(sick.doctor(), (0, Vec::new()), "before {case}");
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        sh(&script.replace("ip -n pod", &format!("nsenter --net={} ip", netns(&pod))));
        match pings {
            Pings::Any => {}
            Pings::Pass => assert!(gets_out(LONG), "{case} drops packets"),
            Pings::Lost => assert!(!gets_out(SHORT), "{case} drops nothing"),
        }
        sick.expect(script, &expected);
        let is_whole = expected.iter().all(|(.., mends)| *mends);
        assert!(!is_whole || gets_out(LONG), "after the remedy of {case}");
    }
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
    let shown = sick.tour.cnitool(&["doctor", "--no-check"]);
    assert!(shown.starts_with("no faults found\nnot looked at: what only CHECK compares (--no-check); "), "{shown}");
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

/// The ports of containers keep the bridge's carrier.
#[test]
fn a_bridge_that_is_the_way_out_and_has_lost_its_uplink_is_found() {
    for is_layer_2 in [true, false] {
        let sick = Sick::new();
        sh(BRIDGED);
        let mut name = "office";
        if is_layer_2 {
            let ipam = json!({"type": "static", "addresses": [{"address": "192.168.1.50/24"}]});
            sick.network(
                "20-lan",
                json!({"name": "lan", "plugins": [{"type": "bridge", "bridge": "lan0", "ipam": ipam}]}),
            );
            name = "lan";
        } else {
            // A virtual machine.
            sh(
                "ip link add tap0 type veth peer guest; ip link set tap0 master lan0; ip link set tap0 up; ip link set guest up",
            );
        }
        let _web = sick.add(name, "web", None);
        assert_eq!(sick.doctor(), (0, Vec::new()));
        sh("ip link set ens3 down; ip neigh flush dev lan0");
        // The node asks for the Ethernet address of its router.
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", "192.168.1.1:9").unwrap();
        let text = "bridge lan0, the IPv4 way out, has lost its port to other networks: ens3 is down";
        sick.expect("down", &[("link-down", WARNING, text, false)]);
    }
}
