//! `cnitool repair`: what a node has lost of a container that lives comes back, and its traffic with it; what is right stays.

mod help_of_findings;

use super::{PORT, Tour, netns};
use crate::prelude::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use testns::{Transport, exchange};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

/// A node with a container of network `office`, and a machine beyond the node that knows no way to containers.
struct Site {
    tour: Tour,
    remote: Namespace,
    pod: Container,
}

fn sh(on: &Namespace, script: &str) {
    let status = on.enter(|| Command::new("sh").args(["-ec", script]).status()).unwrap();
    assert!(status.success(), "{script}");
}

impl Site {
    /// The list's plugins; `SUBNET` in the text is that of the test, without its last byte.
    fn new(plugins: &Value) -> Self {
        Self::of("1.1.0", plugins)
    }

    fn of(version: &str, plugins: &Value) -> Self {
        let tour = Tour::with_plugins();
        testns::write_executable(tour.bin_dir.join("theirs"), THEIRS).unwrap();
        let list = json!({"cniVersion": version, "name": "office", "plugins": plugins});
        let number = tour.subnet.rsplit('.').next().unwrap();
        let list = list.to_string().replace("SUBNET6", &format!("fd00:207:{number}:")).replace("SUBNET", &tour.subnet);
        std::fs::write("/etc/cni/net.d/10-office.conflist", list).unwrap();
        let remote = tour.node.remote("remote");
        tour.node.host().add_veth("uplink", &remote, "eth0");
        remote.add_address("eth0", "192.0.2.2/24");
        tour.node.host().add_address("uplink", "192.0.2.1/24");
        let pod = tour.node.container();
        let site = Self { tour, remote, pod };
        site.add(&site.pod);
        let host = site.tour.node.host();
        host.wait_until_settled("uplink");
        host.wait_for_addresses();
        site
    }

    fn add(&self, pod: &Container) {
        self.tour.cnitool(&["--cap-args", PORT, "add", "office", &netns(pod)]);
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, Vec<Value>) {
        let words = [&["--json", "repair"], words].concat();
        let output = self.tour.call(&words);
        let rows = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code(), rows)
    }

    /// The first finding of this kind, with CHECK of each attachment.
    fn find(&self, kind: &str) -> Option<Value> {
        self.tour.doctor(&["--check"]).1.into_iter().find(|finding| finding["kind"] == kind)
    }

    fn check(&self) -> Output {
        let netns = netns(&self.pod);
        self.tour.call(&["check", "office", &netns])
    }

    /// Whether the container reaches the machine beyond, under the node's address.
    fn gets_out(&self, within: Duration) -> bool {
        let seen = exchange(Transport::Tcp, self.pod.namespace(), (&self.remote, ip("192.0.2.2")), within);
        seen.is_ok_and(|seen| seen.ip() == ip("192.0.2.1"))
    }

    /// Whether the machine beyond reaches the container by the node's port.
    fn gets_in(&self, within: Duration) -> bool {
        let server = self.pod.namespace().enter(|| TcpListener::bind("0.0.0.0:80")).unwrap();
        let node: SocketAddr = "192.0.2.1:8080".parse().unwrap();
        let Ok(mut client) = self.remote.enter(|| TcpStream::connect_timeout(&node, within)) else { return false };
        let (mut served, _) = server.accept().unwrap();
        served.write_all(b"x").unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.read_exact(&mut [0]).is_ok()
    }

    fn is_reached(&self, within: Duration) -> bool {
        self.tour.node.host().pings(ip(&self.tour.address(2)), within)
    }

    fn works(&self, way: Way, within: Duration) -> bool {
        match way {
            Way::Out => self.gets_out(within),
            Way::In => self.gets_in(within),
            Way::FromNode => self.is_reached(within),
        }
    }

    fn veth(&self) -> String {
        let links = self.tour.node.host().links();
        links.into_iter().find(|link| link.kind == "veth" && link.alias.is_some()).expect("a veth with a mark").name
    }
}

/// A plugin of another project, whose CHECK fails while a file is there.
const THEIRS: &str = r#"#!/bin/sh
case $CNI_COMMAND in
ADD) sed 's/.*"prevResult"://; s/}$//';;
CHECK) [ -e /run/broken ] && echo '{"code": 107, "msg": "it is broken"}' && exit 1;;
esac
exit 0
"#;

/// The traffic that a loss ends.
#[derive(Debug, Clone, Copy)]
enum Way {
    Out,
    In,
    FromNode,
}

const WAYS: [Way; 3] = [Way::Out, Way::In, Way::FromNode];

fn bridge() -> Value {
    json!([
        {"type": "bridge", "bridge": "office0", "isDefaultGateway": true, "ipMasq": true,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "SUBNET.0/24"}], [{"subnet": "SUBNET6:/64"}]]}},
        {"type": "firewall", "backend": "iptables"},
        {"type": "portmap", "acceptForwarded": true, "capabilities": {"portMappings": true}}])
}

fn ptp() -> Value {
    json!([{"type": "ptp", "ipMasq": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "SUBNET.0/24"}], [{"subnet": "SUBNET6:/64"}]],
                     "routes": [{"dst": "0.0.0.0/0"}]}},
           {"type": "portmap", "capabilities": {"portMappings": true}}])
}

/// The loss as commands, `VETH` being the host's end, and what no longer works.
#[expect(clippy::print_stdout, reason = "the figures are read by a person")]
#[track_caller]
fn comes_back(site: &Site, loss: &str, broken: Way) {
    let host = site.tour.node.host();
    host.wait_for_addresses();
    let before = host.snapshot();
    sh(host, &loss.replace("VETH", &site.veth()));
    assert!(!site.works(broken, SHORT), "{loss}: {broken:?} still works");
    let lost = host.snapshot();
    let (code, shown) = site.run(&["office", "--dry-run"]);
    assert_eq!(code, Some(0), "{loss}: {shown:?}");
    let verdicts = |rows: &[Value], verdict: &str| rows.iter().filter(|row| row["verdict"] == verdict).count();
    assert!(verdicts(&shown, "would be repaired") > 0 && verdicts(&shown, "left") == 0, "{loss}: {shown:?}");
    assert_eq!(testns::changes(&lost, &host.snapshot()), "", "{loss}: --dry-run has changed the node");
    let begin = Instant::now();
    let (code, rows) = site.run(&["office"]);
    let repaired = begin.elapsed();
    assert_eq!(code, Some(0), "{loss}: {rows:?}");
    assert!(verdicts(&rows, "repaired") > 0 && verdicts(&rows, "left") == 0, "{loss}: {rows:?}");
    assert!(site.works(broken, LONG), "{loss}: {broken:?} does not work after {rows:?}");
    // The figures of DOCTOR.md.
    println!("{:.2} s repaired, {:.2} s traffic: {loss}", repaired.as_secs_f64(), begin.elapsed().as_secs_f64());
    for way in WAYS {
        assert!(site.works(way, LONG), "{loss}: {way:?} does not work after {rows:?}");
    }
    let check = site.check();
    assert!(check.status.success(), "{loss}: {check:?}");
    // Links get other numbers, and a policy that was set by hand may be gone: the rules are those of before.
    let after = testns::changes(&before, &host.snapshot());
    let rules: Vec<&str> = after.lines().filter(|line| line.contains("nft rule")).collect();
    assert_eq!(rules, [""; 0], "{loss}: other rules than before");
}

#[track_caller]
fn losses_come_back(plugins: &Value, losses: &[(&str, Way)]) {
    let site = Site::new(plugins);
    for way in WAYS {
        assert!(site.works(way, LONG), "{way:?}");
    }
    for (loss, broken) in losses {
        comes_back(&site, loss, *broken);
    }
}

const BRIDGE_LOSSES: [(&str, Way); 9] = [
    ("nft flush ruleset", Way::Out),
    ("iptables -t nat -F && ip6tables -t nat -F", Way::Out),
    ("iptables -P FORWARD DROP && iptables -F FORWARD && iptables -F CNI-FORWARD", Way::Out),
    (
        "for c in $(iptables-save -t nat | sed -n 's/^:\\(CNI-[DH][^ ]*\\) .*/\\1/p'); do iptables -t nat -F $c; done",
        Way::In,
    ),
    ("ip link del office0", Way::FromNode),
    ("ip addr flush dev office0", Way::Out),
    ("ip link set office0 down", Way::FromNode),
    ("ip link set VETH nomaster", Way::FromNode),
    ("ip link set VETH down", Way::FromNode),
];

const PTP_LOSSES: [(&str, Way); 3] = [
    ("ip route flush dev VETH && ip addr flush dev VETH", Way::FromNode),
    ("ip link set VETH down", Way::FromNode),
    ("nft flush ruleset", Way::In),
];

fn has_programs() -> bool {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let has = has("iptables-save") && has("nft") && Path::new("/usr/bin/unshare").exists();
    if !has {
        crate::subjects::skip("iptables, nft or unshare is not installed");
    }
    has
}

#[test]
fn what_a_bridge_network_loses_comes_back() {
    testns::needs!(has_programs());
    losses_come_back(&bridge(), &BRIDGE_LOSSES);
}

/// CVE-2020-10749: a bridge that another process makes anew has the kernel's `accept_ra`, and a container could become the node's router.
#[test]
fn a_bridge_that_was_made_anew_takes_no_advertisements_of_containers() {
    testns::needs!(has_programs());
    const KEY: &str = "net/ipv6/conf/office0/accept_ra";
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    assert_eq!(host.sysctl(KEY), "0");
    let mac = host.link("office0").mac;
    sh(host, &format!("ip link del office0; ip link add office0 address {mac} type bridge; ip link set office0 up"));
    host.set_sysctl(KEY, "1");
    let (code, rows) = site.run(&["office"]);
    assert_eq!((code, host.sysctl(KEY).as_str()), (Some(0), "0"), "{rows:?}");
    host.set_sysctl(KEY, "1");
    let (code, rows) = site.run(&["office", "--dry-run"]);
    let is_named = |row: &Value| row["difference"].as_str().is_some_and(|text| text.contains("router advertisements"));
    assert!(code == Some(0) && rows.iter().any(is_named), "{rows:?}");
    assert!(site.check().status.success(), "an administrator may have chosen it");
}

/// Elements and rules of the shared form, which are made again in one transaction.
#[test]
fn what_a_network_with_shared_rules_loses_comes_back() {
    testns::needs!(has_programs());
    let mut plugins = bridge();
    plugins[0]["rules"] = json!("shared");
    plugins[2] = json!({"type": "portmap", "rules": "shared", "capabilities": {"portMappings": true}});
    let lost = "nft flush map ip cni_shared masq_addresses; nft flush chain ip6 cni_shared masq_beyond_64";
    let port = "nft flush map ip cni_shared ports_of_any; nft flush chain ip cni_shared output";
    losses_come_back(&plugins, &[("nft flush ruleset", Way::Out), (lost, Way::Out), (port, Way::In)]);
}

#[test]
fn what_a_ptp_network_loses_comes_back() {
    testns::needs!(has_programs());
    losses_come_back(&ptp(), &PTP_LOSSES);
}

/// The repair changes nothing else either: the file of the cache, its time included, and rules of others beside ours.
#[test]
fn on_a_node_that_has_lost_nothing_nothing_changes() {
    for plugins in [bridge(), ptp()] {
        let site = Site::new(&plugins);
        let gone = site.tour.node.container();
        site.tour.cnitool(&["add", "office", &netns(&gone)]);
        site.tour.lose(&gone);
        site.tour.node.remember();
        let (code, rows) = site.run(&[]);
        assert_eq!(code, Some(0), "{rows:?}");
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["verdict"]).collect();
        assert_eq!(verdicts, ["as ADD left it", "left alone"], "{rows:?}");
        site.tour.node.assert_as_before_except(|line| line.contains("/var/lib/cni/locks"));
        let entries = || std::fs::read_dir("/var/lib/cni/results").unwrap().count();
        assert_eq!(entries(), 2);
    }
}

/// The container's side stays as it is, and the answer says what to do.
#[test]
fn what_a_container_has_lost_itself_is_named_and_left() {
    let site = Site::new(&bridge());
    let inside = site.pod.namespace();
    inside.delete_address("eth0", &format!("{}/24", site.tour.address(2)));
    let before = inside.snapshot();
    assert_eq!(site.run(&["office", "--dry-run"]).0, Some(1));
    let output = site.tour.call(&["repair", "office"]);
    assert_eq!(output.status.code(), Some(1));
    let (said, table) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(
        said.contains(
            "1 of 1 attachments could not be repaired, or not wholly: cnitool doctor --check names the remedies"
        ),
        "{said}"
    );
    assert!(table.contains(&format!("address {}/24 is not found", site.tour.address(2))), "{table}");
    assert_eq!(testns::changes(&before, &inside.snapshot()), "");
}

/// A port that must carry one VLAN only gets up when it does.
#[test]
fn a_port_of_a_vlan_comes_back_into_its_vlan_only() {
    testns::needs!(testns::Feature::BridgeVlanFiltering.or_skip());
    let site = Site::new(&json!([{"type": "bridge", "bridge": "office0", "isDefaultGateway": true, "vlan": 100,
        "ipam": {"type": "host-local", "subnet": "SUBNET.0/24"}}]));
    let host = site.tour.node.host();
    let before = host.port_vlans();
    assert!(site.is_reached(LONG));
    host.delete_link("office0");
    assert!(!site.is_reached(SHORT));
    let (code, rows) = site.run(&["office"]);
    assert_eq!(code, Some(0), "{rows:?}");
    assert!(site.is_reached(LONG), "{rows:?}");
    let without_index = |vlans: Vec<testns::PortVlan>| {
        let mut lines: Vec<String> = vlans.iter().map(|vlan| format!("{vlan:?}")).collect();
        lines.sort();
        lines
    };
    assert_eq!(without_index(host.port_vlans()), without_index(before));
}

/// Plugins of others get CHECK and no other verb.
#[test]
fn a_plugin_of_another_make_compares_only() {
    let mut plugins = bridge();
    plugins.as_array_mut().unwrap().push(json!({"type": "theirs"}));
    let site = Site::new(&plugins);
    let (code, rows) = site.run(&["office"]);
    let known = json!("the plugin is of another project and repairs nothing; its CHECK finds no difference");
    assert_eq!((code, rows.len()), (Some(0), 1), "{rows:?}");
    assert_eq!((&rows[0]["plugin"], &rows[0]["difference"]), (&json!("theirs"), &known));
    std::fs::write("/run/broken", "").unwrap();
    site.tour.node.host().flush_nft();
    let (code, rows) = site.run(&["office"]);
    let last = rows.last().unwrap();
    assert_eq!((code, &last["verdict"], &last["difference"]), (Some(1), &json!("left"), &json!("it is broken")));
    assert!(site.gets_out(LONG), "{rows:?}");
}

/// Versions without CHECK, too: a repair is no verb of the specification.
#[test]
fn a_network_of_an_old_version_is_repaired() {
    for version in ["0.3.1", "0.2.0"] {
        let mut plugins = bridge();
        plugins.as_array_mut().unwrap().retain(|plugin| plugin["type"] != "firewall");
        let site = Site::of(version, &plugins);
        assert_eq!(site.find("check-fails"), None);
        let note = site.find("unseen").expect("a note about CHECK");
        assert_eq!(note["what"], format!("CHECK is not called: there is none in version {version} of network office"));
        assert_eq!((&note["level"], &note["remedy"]), (&json!("note"), &json!("cnitool repair office --dry-run")));
        site.tour.node.host().flush_nft();
        site.tour.node.host().delete_link("office0");
        let (code, rows) = site.run(&["office"]);
        assert_eq!(code, Some(0), "{version}: {rows:?}");
        assert!(site.gets_out(LONG) && site.gets_in(LONG), "{version}: {rows:?}");
    }
}

#[test]
fn limits_of_bandwidth_come_back() {
    testns::needs!(testns::Feature::Ifb.or_skip());
    let mut plugins = bridge();
    plugins.as_array_mut().unwrap().push(json!({"type": "bandwidth", "ingressRate": 8_000_000,
        "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000}));
    let site = Site::new(&plugins);
    site.tour.node.host().clear_qdiscs(&site.veth());
    assert!(!site.check().status.success());
    let (code, rows) = site.run(&["office"]);
    assert_eq!(code, Some(0), "{rows:?}");
    assert!(site.check().status.success() && site.gets_out(LONG), "{rows:?}");
}

/// Rules for an address that another container has, or the next ADD may get, and the node's port, would lead there. DEL has freed
/// it and failed afterwards, as a killed one.
#[test]
fn an_attachment_whose_address_is_not_reserved_for_it_is_left() {
    let site = Site::new(&bridge());
    let (host, address) = (site.tour.node.host(), site.tour.address(2));
    let reservation = format!("/var/lib/cni/networks/office/{address}");
    std::fs::write(&reservation, "other\r\neth0").unwrap();
    host.flush_nft();
    for why in ["other/eth0", "no container, so another ADD may get it"] {
        site.tour.node.remember();
        let (code, rows) = site.run(&["office"]);
        let why = format!("address {address} is reserved for {why}: nothing was changed");
        assert_eq!((code, verdicts(&rows)), (Some(1), vec![("left", &*why)]), "{rows:?}");
        site.tour.node.assert_as_before_except(|line| line.contains("/var/lib/cni/locks"));
        std::fs::remove_file(&reservation).ok();
    }
}

fn verdicts(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter().map(|row| (row["verdict"].as_str().unwrap(), row["difference"].as_str().unwrap())).collect()
}

/// A bridge that another network has given another address is not changed.
#[test]
fn a_gateway_in_whose_way_another_address_is_is_left() {
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    host.delete_addresses("office0");
    host.add_address("office0", "10.99.0.1/24");
    let (code, rows) = site.run(&["office"]);
    assert_eq!(code, Some(1), "{rows:?}");
    let left: Vec<&Value> = rows.iter().filter(|row| row["verdict"] == "left").collect();
    assert!(left[0]["difference"].as_str().unwrap().contains("it has address 10.99.0.1/24 already"), "{rows:?}");
    assert_eq!(host.global_addresses("office0"), ["10.99.0.1/24"]);
}

/// Nothing is set at a port of a bridge that is not the network's, and a dry run says so.
#[test]
fn settings_of_a_port_are_written_on_its_own_bridge_only() {
    let site = Site::new(&json!([{"type": "bridge", "bridge": "office0", "isGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "subnet": "SUBNET.0/24"}}]));
    let (host, veth) = (site.tour.node.host(), site.veth());
    host.add_link("other0", "bridge");
    host.set_master(&veth, "other0");
    host.wait_for_addresses();
    let before = host.snapshot();
    for words in [vec!["office", "--dry-run"], vec!["office"]] {
        let (code, rows) = site.run(&words);
        assert_eq!(code, Some(1), "{rows:?}");
        assert!(verdicts(&rows).iter().all(|(verdict, _)| *verdict == "left"), "{rows:?}");
    }
    assert_eq!(testns::changes(&before, &host.snapshot()), "");
}

/// A dry run promises no address that the link cannot have.
#[test]
fn an_address_of_a_disabled_family_is_not_promised() {
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    sh(host, "sysctl -qw net.ipv6.conf.office0.disable_ipv6=1");
    let shown = site.run(&["office", "--dry-run"]);
    assert_eq!(shown.0, Some(1), "{shown:?}");
    assert!(verdicts(&shown.1).iter().all(|(verdict, _)| *verdict == "left"), "{shown:?}");
    let (code, rows) = site.run(&["office"]);
    assert_eq!((code, verdicts(&rows)), (Some(1), verdicts(&shown.1)));
}
