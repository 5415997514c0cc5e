//! What the kernel forgets when a device moves, and what a container can leave on it: the node has its device as it was.

use super::{RECORDS, assert_home, config, device, device_and_pod, ip, records};
use crate::prelude::*;
use conformance::shell::sh;
use nix::mount::{MsFlags, mount};
use std::process::Command;

const SYSCTLS: &str = "cd /proc/sys/net; for k in \
    ipv6/conf/dev1/disable_ipv6=1 ipv6/conf/dev1/accept_ra=0 ipv6/conf/dev1/forwarding=1 ipv6/conf/dev1/autoconf=0 \
    ipv6/conf/dev1/accept_redirects=0 ipv6/conf/dev1/accept_dad=0 ipv6/conf/dev1/addr_gen_mode=1 \
    ipv6/conf/dev1/use_tempaddr=2 ipv6/conf/dev1/proxy_ndp=1 ipv4/conf/dev1/forwarding=1 ipv4/conf/dev1/rp_filter=1 \
    ipv4/conf/dev1/accept_redirects=0 ipv4/conf/dev1/send_redirects=0 ipv4/conf/dev1/arp_ignore=2 \
    ipv4/conf/dev1/arp_announce=1 ipv4/conf/dev1/arp_filter=1 ipv4/conf/dev1/proxy_arp=1 \
    ipv4/conf/dev1/accept_local=1 ipv4/conf/dev1/route_localnet=1 ipv4/conf/dev1/log_martians=1 \
    ipv4/conf/dev1/accept_source_route=1 ipv4/conf/dev1/secure_redirects=0";

fn set_sysctls(host: &Namespace) {
    sh(host, &format!("{SYSCTLS}; do echo ${{k#*=}} > ${{k%=*}}; done"));
}

#[track_caller]
fn assert_sysctls(host: &Namespace) {
    let changed = sh(host, &format!("{SYSCTLS}; do v=$(cat ${{k%=*}}); [ $v = ${{k#*=}} ] || echo $k is $v; done"));
    assert_eq!(changed, "");
}

/// The kernel makes a device's sysctls anew in each namespace: a host that takes router advertisements on a device where its
/// administrator has turned that off gives its traffic to whoever sends one.
#[test]
fn the_devices_sysctls_are_the_nodes_again() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    set_sysctls(host);
    let attached = Attached::add(&node, &config(json!({"cniVersion": "1.1.0"})), &pod);
    attached.del().ok();
    assert_sysctls(host);
    assert!(host.link("dev1").up);
    let routes = json!({"type": "host-local", "subnet": "10.7.0.0/24",
        "routes": [{"dst": "10.9.0.0/16", "gw": "10.200.0.1"}]});
    node.call(Verb::Add, config(json!({"ipam": routes})), &pod).fails();
    assert_sysctls(host);
    let config = config(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
    Attached::add(&node, &config, &pod);
    node.call(Verb::Gc, &config, Attachment::none()).ok();
    assert_sysctls(host);
    assert!(host.link("dev1").up);
    assert_eq!(records(), Vec::<String>::new());
}

#[test]
fn a_device_whose_sysctls_cannot_be_restored_stays_down() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    sh(host, "echo 0 > /proc/sys/net/ipv6/conf/dev1/accept_ra");
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    sh(host, "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys");
    let reply = attached.del();
    reply.ok();
    sh(host, "umount /proc/sys");
    let said = &reply.output.stderr;
    assert!(said.contains("WARN the device is home, but stays down") && said.contains("accept_ra"), "{reply}");
    assert!(!host.link("dev1").up);
    assert_eq!(records(), Vec::<String>::new());
}

/// However fast the container gives the device names that links of the node have.
#[test]
fn further_names_that_come_back_do_not_keep_the_device_away() {
    let node = node();
    device(&node);
    ip(node.host(), "link add up0 type veth peer name up1");
    node.remember();
    for _ in 0..4 {
        let pod = node.container();
        let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
        let add = |name: &str| {
            let script = format!(
                "yes 'link property add dev eth0 altname {name}' | timeout 1 ip -force -batch - > /dev/null 2>&1"
            );
            pod.namespace().enter(|| Command::new("sh").args(["-c", &script]).spawn()).expect("run sh")
        };
        let mut children = [add("up0"), add("up1")];
        std::thread::sleep(std::time::Duration::from_millis(100));
        let reply = attached.del();
        for child in &mut children {
            child.wait().expect("wait");
        }
        reply.ok();
        assert_home(&node, "after DEL");
        pod.end();
    }
}

/// A link of the node has got one of the device's own further names meanwhile.
#[test]
fn a_further_name_that_is_taken_meanwhile_is_left_out() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    ip(host, "link property add dev dev1 altname dev1name altname dev1other");
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    ip(host, "link add dev1name type bridge");
    let reply = attached.del();
    reply.ok();
    assert!(reply.output.stderr.contains("dev1name"), "{reply}");
    let shown = sh(host, "ip link show dev dev1");
    assert!(shown.contains("altname dev1other") && !shown.contains("altname dev1name"), "{shown}");
    assert!(host.link("dev1").up);
}

/// The settings of a bridge for its port dev1.
fn port(host: &Namespace) -> String {
    let text = sh(host, "bridge -d link show dev dev1; bridge vlan show dev dev1 2>&- || :");
    text.replace(" state forwarding ", " ").replace(" state disabled ", " ")
}

fn enslave(host: &Namespace) {
    ip(host, "link add br9 type bridge");
    ip(host, "link set br9 up");
    ip(host, "link set dev1 master br9");
    sh(
        host,
        "bridge link set dev dev1 isolated on guard on root_block on learning off flood off cost 50 priority 7
         bridge link set dev dev1 mcast_flood off neigh_suppress on hairpin on fastleave on bcast_flood off
         # Not every kernel has VLANs on bridges.
         ip link set br9 type bridge vlan_filtering 1 2>&- || exit 0
         bridge vlan del dev dev1 vid 1
         bridge vlan add dev dev1 vid 20 pvid untagged
         bridge vlan add dev dev1 vid 30-33",
    );
}

#[test]
fn a_port_of_a_bridge_has_its_settings_and_vlans_again() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    enslave(host);
    let before = port(host);
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    attached.del().ok();
    assert_eq!(port(host), before);
    assert!(host.link("dev1").up);
}

/// A bridge that was made anew under the name of the device's: nothing says that it belongs there.
#[test]
fn a_device_whose_bridge_is_gone_comes_home_without_with_a_warning() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    enslave(host);
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    ip(host, "link delete br9");
    ip(host, "link add other type bridge");
    ip(host, "link add br9 type bridge");
    let reply = attached.del();
    reply.ok();
    assert!(reply.output.stderr.contains("br9"), "{reply}");
    assert_eq!(host.link("dev1").master, None);
}

#[test]
fn what_the_container_set_on_the_link_does_not_come_home() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    ip(host, "link set dev1 gso_max_size 60000");
    let details = || {
        let shown = sh(host, "ip -d link show dev dev1 | grep -o -E ' mode [A-Z]+|g[sr]o_[a-z0-9_]* [0-9]+'");
        shown.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = details();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    ip(pod.namespace(), "link set eth0 mode dormant");
    ip(pod.namespace(), "link set eth0 gso_max_size 1000 gro_max_size 2000");
    attached.del().ok();
    assert_eq!(details(), before);
}

/// The kernel's `proto_down`, which a macvlan can have: it takes the carrier away.
#[test]
fn a_device_that_the_container_took_the_carrier_from_has_it_again() {
    let node = node();
    let host = node.host();
    ip(host, "link add up0 type veth peer name up1");
    ip(host, "link add dev1 link up0 type macvlan mode bridge");
    for command in ["link set up0 up", "link set up1 up", "link set dev1 up"] {
        ip(host, command);
    }
    let pod = node.container();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    ip(pod.namespace(), "link set eth0 protodown on");
    ip(pod.namespace(), "link set eth0 protodown_reason 3 on");
    attached.del().ok();
    let shown = sh(host, "ip -d link show dev dev1");
    assert!(!shown.contains("protodown"), "{shown}");
}

/// A program of the container's would see and could drop or change every packet of the node's.
#[test]
fn a_program_that_the_container_put_on_the_device_is_detached() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    let program = r#"
import ctypes, platform, socket, struct, sys
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None)
code = ctypes.create_string_buffer(bytes([0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]), 16)
licence = ctypes.create_string_buffer(b"GPL")
load = struct.pack("=IIQQ", 6, 2, ctypes.addressof(code), ctypes.addressof(licence)) + bytes(100)
program = libc.syscall(number, 5, ctypes.create_string_buffer(load), 124)
if program < 0: sys.exit("no bpf")
def attribute(kind, data): return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
xdp = attribute(1, struct.pack("=i", program)) + attribute(3, struct.pack("=I", 2))
body = struct.pack("=BBHiII", 0, 0, 0, socket.if_nametoindex("eth0"), 0, 0) + attribute(43 | 0x8000, xdp)
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
netlink.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
if struct.unpack("=i", netlink.recv(4096)[16:20])[0]: sys.exit("no xdp")
"#;
    let run = || Command::new("python3").args(["-c", program]).status();
    if !pod.namespace().enter(run).is_ok_and(|status| status.success()) {
        return skip("a program for XDP cannot be loaded in a user namespace, or without python3");
    }
    assert!(sh(pod.namespace(), "ip link show dev eth0").contains("xdp"));
    let reply = attached.del();
    reply.ok();
    let shown = sh(node.host(), "ip link show dev dev1");
    assert!(!shown.contains("xdp"), "{shown}");
    assert!(reply.output.stderr.contains("XDP"), "{reply}");
    assert!(node.host().link("dev1").up);
}

/// All that `ip address add` can say of an address; times are compared coarsely, and the kernel's own link-local one is its.
#[test]
fn addresses_come_back_as_they_were() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    for address in [
        "10.1.2.1 peer 10.1.2.2",
        "10.1.3.1/24 valid_lft 6000 preferred_lft 3000",
        "10.1.4.1/24 noprefixroute",
        "10.1.5.1/24 metric 500 label dev1:x",
        "10.1.6.1/24 scope link broadcast 10.1.6.77",
        "10.1.7.1/24",
        "fd02::1/64 valid_lft 6000 preferred_lft 0 nodad",
        "fd03::1 peer fd03::2 nodad",
        "fd04::1/64 nodad metric 77",
        "fe80::1/64 nodad",
    ] {
        let broadcast = if address.starts_with("10.1.7.") { " broadcast +" } else { "" };
        ip(host, &format!("address add {address}{broadcast} dev dev1"));
    }
    host.wait_until_settled("dev1");
    let state = || {
        let shown = sh(
            host,
            "ip address show dev dev1 | grep -E 'inet|lft' | sed -E 's/(59|29)[0-9][0-9]sec/\\100sec/g; s/(60|30)00sec/LATER/g'
             ip route show dev dev1; ip -6 route show dev dev1 | sed -E 's/expires [0-9]+sec//'",
        );
        let mut lines: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.sort();
        lines
    };
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let before = state();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    attached.del().ok();
    host.wait_until_settled("dev1");
    assert_eq!(state(), before);
}

/// The time that an address has left passes while the device is away.
#[test]
fn an_address_that_expires_meanwhile_does_not_come_back() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    ip(host, "address add 10.1.3.1/24 dev dev1 valid_lft 2 preferred_lft 1");
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    attached.del().ok();
    let shown = sh(host, "ip address show dev dev1");
    assert!(!shown.contains("10.1.3.1"), "{shown}");
}

/// A record of an earlier version has neither sysctls nor the details of addresses.
#[test]
fn a_record_of_an_earlier_version_brings_the_device_home() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    let path = std::path::Path::new(RECORDS).join(&records()[0]);
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut keep = |part: &str, keys: &str| {
        let object = record.pointer_mut(part).and_then(Value::as_object_mut).unwrap();
        object.retain(|key, _| keys.split(' ').any(|of_old| of_old == key));
    };
    keep("", "network container_id ifname boot netns netns_numbers index device");
    let flags = "up promisc allmulti no_arp multicast";
    keep(
        "/device",
        &format!("name kind mac permanent_mac parent peer mtu {flags} tx_queue_len alt_names alias master addresses"),
    );
    std::fs::write(&path, record.to_string()).unwrap();
    attached.del().ok();
    assert_home(&node, "after DEL");
}

/// An upgrade, a downgrade and an upgrade: the record of the first is none of the device's present container.
#[test]
fn a_record_that_the_references_del_left_keeps_no_device_away() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&ours());
    device(&node);
    let (first, second) = (node.container(), node.container());
    let attached = Attached::add(&node, &config(json!({})), &first);
    node.install(&theirs);
    attached.del().ok();
    first.end();
    let next = Attached::add(&node, &config(json!({})), &second);
    node.install(&ours());
    next.del().ok();
    assert!(node.host().find_link("dev1").is_some());
    assert_eq!(records(), Vec::<String>::new());
}

/// Files that are not ours are skipped: a pipe would be waited for, and a link could lead anywhere.
#[test]
fn what_is_no_record_is_passed_over() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    sh(
        host,
        &format!(
            "mkdir -p {RECORDS}; mkfifo {RECORDS}/pipe; ln -s /dev/zero {RECORDS}/link; mkdir {RECORDS}/folder
        truncate -s 2M {RECORDS}/long"
        ),
    );
    let config = config(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
    Attached::add(&node, &config, &pod);
    node.call(Verb::Gc, &config, Attachment::none()).ok();
    assert!(host.find_link("dev1").is_some());
}

/// Immutable nodes, and runtimes in a container with a read-only root: as with the reference, no more than the name is kept.
#[test]
fn where_run_cni_cannot_be_written_the_device_comes_home_by_its_alias() {
    let node = node();
    let _beyond = device(&node);
    std::fs::create_dir_all("/run/cni").unwrap();
    let none = None::<&str>;
    mount(Some("none"), "/run/cni", Some("tmpfs"), MsFlags::MS_RDONLY, none).unwrap();
    let pod = node.container();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    attached.check_and_del();
    attached.del().ok();
    assert!(node.host().find_link("dev1").is_some() && pod.namespace().find_link("eth0").is_none());
    // A failed ADD finds it, too.
    let broken = config(
        json!({"ipam": {"type": "static", "addresses": [{"address": "10.7.0.2/24"}], "routes": [{"dst": "10.8.0.0/24", "gw": "192.0.2.77"}]}}),
    );
    node.call(Verb::Add, broken, &pod).fails();
    assert!(node.host().find_link("dev1").is_some() && pod.namespace().find_link("eth0").is_none());
}

/// A device that is no longer on its bus is returned by no kernel.
#[test]
fn the_record_of_a_device_that_was_unplugged_ends_with_del() {
    let node = node();
    let _beyond = device(&node);
    let pod = node.container();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let path = std::path::Path::new(RECORDS).join(&records()[0]);
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["device"]["kind"] = json!("");
    for (parent, left) in [("pci/", 1), ("pci/ffff:ff:1f.7", 0)] {
        // A folder of the bus stands for a device that is plugged in.
        record["device"]["parent"] = json!(parent);
        std::fs::write(&path, record.to_string()).unwrap();
        attached.del().ok();
        assert_eq!(records().len(), left, "{parent}");
    }
}
