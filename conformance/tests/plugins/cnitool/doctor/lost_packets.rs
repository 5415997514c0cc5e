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

const DAMAGES: &str = r#"
for of in all cni0; do echo 0 >/proc/sys/net/ipv4/conf/$of/arp_notify; done; netns=$(ls /run/netns/pod*); old=$(cat /sys/class/net/cni0/address)
nsenter --net=$netns ip neigh replace A.1 lladdr $old dev eth0 nud stale
ip link set cni0 address 02:11:22:33:44:55
=> warning gateway-address, mended: bridge cni0 has Ethernet address 02:11:22:33:44:55, and containers know it
# No ifb is a way out.
ip link add ifb0 type ifb; ip address add 203.0.113.9/32 dev ifb0; ip route del default; ip -6 route del default
=> note no-way-out: Give the node a default route by ens3, if containers have to reach
iptables -w -P FORWARD DROP
=> error firewall-drops, mended: chain FORWARD of iptables by its policy drops packets
nft add table inet guard; nft 'add chain inet guard pass { type filter hook forward priority 0; policy drop; }'
=> error firewall-drops, mended: nft chain inet guard pass by its policy drops packets
nft add table inet guard; nft 'add chain inet guard local { type filter hook input priority 0; policy drop; }'
=> warning firewall-drops: nft chain inet guard local by its policy drops packets
iptables -w -A INPUT -i cni0 -p udp --dport 53 -j DROP
=> warning firewall-drops: -p udp -m udp --dport 53 -j DROP drops packets from the container to the node (UDP port 53)
ip link add vpn type bridge; ip link set vpn up; ip route add A.0/25 dev vpn
=> error route-elsewhere, mended: leads to vpn and not to cni0, by route A.0/25
sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.cni0.rp_filter=1
ip link add vpn type bridge; ip link set vpn up; ip route add A.0/25 dev vpn
=> error route-elsewhere, mended: leads to vpn
=> error reverse-path, mended: net.ipv4.conf.cni0.rp_filter is 1 (strict)
ip route del A.0/24 dev cni0
=> error route-elsewhere, mended: leads to ens3 and not to cni0
ip link delete cni0
=> error link-gone, mended: bridge cni0 is gone
veth=$(ls /sys/class/net | grep ^veth); ip link delete cni0; ip link add cni0 type bridge; ip link set cni0 up; sysctl -qw net.ipv4.conf.cni0.route_localnet=1
ip link set $veth master cni0; ip link set $veth nomaster; ip link set cni0 address 00:00:00:00:00:00
ip link set $veth master cni0; ip link set $veth type bridge_slave hairpin on; ip address add A.1/24 dev cni0
=> error gateway-address, mended: link cni0 has Ethernet address 00:00:00:00:00:00
sysctl -qw net.ipv4.conf.cni0.arp_ignore=8
=> error gateway-address, mended: net.ipv4.conf.cni0.arp_ignore is 8
iptables -w -A FORWARD -s A.0/24 -p tcp -j REJECT --reject-with tcp-reset
=> warning firewall-drops: iptables -A FORWARD -s A.0/24 -p tcp -j REJECT
ip link set cni0 down
=> error link-down, mended: link cni0 is down
ip link set $(ls /sys/class/net | grep ^veth) nomaster
=> error link-down, mended: is no port of bridge cni0
ip address flush dev cni0 scope global
=> error gateway-address, mended: cni0 does not have the gateway's address A.1/24
ip address flush dev cni0 scope global; ip address add 10.244.1.1/24 dev cni0
=> error gateway-address, mended: A.1/24, and has 10.244.1.1/24 instead
ip route add blackhole A.0/25
=> error route-elsewhere, mended: the node's route blackhole A.0/25 refuses packets
ip route add unreachable A.0/28
=> error route-elsewhere, mended: the node's route unreachable A.0/28 refuses packets
ip rule add from A.0/24 prohibit
=> error route-elsewhere, mended: the node's rule from A.0/24 prohibit refuses packets from containers
sysctl -qw net.ipv4.conf.ens3.forwarding=0
=> error forwarding-off, mended: net.ipv4.conf.ens3.forwarding is 0
ip link add ens4 type veth peer ens4-end; ip link set ens4-end up; ip address add 198.51.100.7/24 dev ens4
ip link set ens4 up; ip route add default via 198.51.100.1 dev ens4 metric 500
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.ens4.rp_filter=1
=> warning reverse-path, mended: net.ipv4.conf.ens4.rp_filter is 1 (strict)
sysctl -qw net.ipv4.conf.cni0.route_localnet=0
=> warning port-gone, mended: net.ipv4.conf.cni0.route_localnet is 0
ip link add tun0 type veth peer tun0-end; ip link set tun0 up; ip link set tun0-end up; sysctl -qw net.ipv4.conf.tun0.route_localnet=1
ip route add 0.0.0.0/1 dev tun0 table 52; ip rule add pref 5270 fwmark 7 lookup 52
=> warning loopback-open, mended: net.ipv4.conf.tun0.route_localnet is on, and link tun0 is no container's
nft add table inet guard; nft 'add set inet guard pods { type ipv4_addr; flags interval; elements = { 10.250.0.0/24 } ; }'
nft 'add chain inet guard pass { type filter hook forward priority 0; policy drop; }'
nft 'add rule inet guard pass ip saddr @pods accept'; nft 'add rule inet guard pass ip daddr @pods accept'
=> error firewall-drops, mended: nft chain inet guard pass by its policy drops packets
nft add table inet guard; nft 'add set inet guard bad { type ipv4_addr; flags interval; elements = { A.0-A.9 } ; }'
nft 'add chain inet guard pass { type filter hook forward priority 0; }'
nft 'add rule inet guard pass ip saddr @bad drop'
=> error firewall-drops, mended: nft rule inet guard pass ip saddr @bad drop drops packets
nft add table inet guard; nft 'add chain inet guard pass { type filter hook forward priority 0; policy drop; }'
nft 'add rule inet guard pass ct state { established, related } accept'
nft 'add rule inet guard pass iifname { lxcbr0, docker0 } accept'
=> error firewall-drops, mended: nft chain inet guard pass by its policy drops packets
for link in $(ls /sys/class/net | grep ^veth); do ip link set $link mtu 1300; done; ip link set cni0 mtu 1200
=> warning mtu, mended: and that of their bridge cni0 1200
ip link set ens3 mtu 1400
=> warning mtu, mended: is 1500, and that of ens3, the way out, 1400
sysctl -qw net.ipv4.conf.cni0.forwarding=0
=> error forwarding-off, mended: net.ipv4.conf.cni0.forwarding is 0
iptables -w -t nat -F; iptables -w -t nat -X
=> error masquerade-gone, mended: no rule masquerades packets of living containers
=> error port-gone, mended: no rule forwards port 8080/tcp of the node
ip address add A.2/32 dev ens3
=> error duplicate-address: the node has address A.2, too, on link ens3
ip -n pod link set eth0 down
=> error container-side, mended: eth0 is down in the container
ip -n pod address flush dev eth0
=> error container-side, mended: eth0 in the container does not have A.2
ip -n pod link delete eth0
=> error container-side: the container has no interface eth0
sysctl -qw net.bridge.bridge-nf-call-iptables=0; iptables -w -t nat -N KUBE-SERVICES
=> warning bridge-netfilter: net.bridge.bridge-nf-call-iptables is 0
sysctl -qw net.bridge.bridge-nf-call-iptables=0; nft add table ip kube-proxy
=> warning bridge-netfilter: net.bridge.bridge-nf-call-iptables is 0
"#;

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

const DAMAGES_BEFORE_ADD: &str = r#"
ip link add cni0 type bridge; ip address add 10.244.1.1/24 dev cni0; ip link set cni0 up
=> error gateway-address, mended: bridge cni0 has address 10.244.1.1/24
# A bridge of the node's own: forceAddress, or its end, would take the node's address.
ip link add cni0 type bridge; ip link set cni0 up; ip link set ens3 master cni0; ip address flush dev ens3
ip address add 192.168.1.7/24 dev cni0; ip route add default via 192.168.1.1; ip -6 route flush dev ens3
ip -6 address add fd00:1::7/64 dev cni0 nodad; ip -6 route add default via fd00:1::1
=> error gateway-address: cni0 has the node's default route. Key forceAddress would take 192.168.1.7/24 from cni0
ip link add cni0 type bridge; ip link set cni0 up; ip link add tap9 type veth peer name tap8; ip link set tap9 master cni0
ip address add 192.168.9.7/24 dev cni0
=> error gateway-address: cni0 has port tap9, which is no container's. Key forceAddress would take 192.168.9.7/24
sed -i 's/"subnet":"[^"]*"/"subnet":"192.168.0.0\/16"/' /etc/cni/net.d/10-office.conflist
=> warning route-elsewhere: link ens3 has address 192.168.1.7/24.","
=> warning duplicate-address: the next ADD may give 192.168.1.7, which the node has on link ens3
=> warning duplicate-address: the next ADD may give 192.168.1.1, which is the next hop of the node's default route
ip link add tun9 type bridge; ip link set tun9 up; ip route add A.0/24 dev tun9
=> warning route-elsewhere, mended: dev tun9 leads to addresses that the network gives
ip link add docker0 type bridge; ip address add A.1/24 dev docker0; ip link set docker0 up
=> warning route-elsewhere: Give the network another subnet
ip address add 10.200.0.7/13 dev ens3
=> warning route-elsewhere: is within 10.200.0.0/13, the network of link ens3
ip link set ens3 mtu 1420
=> warning mtu: that of ens3, the way out, 1420
sysctl -qw net.ipv6.conf.default.disable_ipv6=1
=> error ipv6-disabled, mended: net/ipv6/conf/default/disable_ipv6 is 1
"#;

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
