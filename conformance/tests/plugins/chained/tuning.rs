//! The tuning plugin.

use super::{behind, bridged};
use crate::prelude::*;
use conformance::chained_plugins::tuning as full;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType};
use nix::sys::time::TimeVal;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const MAC: &str = "c2:11:22:33:44:55";
const RECORD: &str = "/run/cni/tuning";

fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning"}), own)
}

#[test]
fn tuning_sets_the_interface_and_restores_it_in_del() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let was = pod.namespace().link("eth0");
    let config = with(full(), json!({"cniVersion": "1.1.0", "txQLen": 77}));
    let mut expected = before.result.clone();
    expected["cniVersion"] = json!("1.1.0");
    expected["interfaces"][2]["mac"] = json!(MAC);
    let attached = Attached::add(&node, &behind(&before, config), &pod);
    assert_eq!(attached.result, expected);
    let link = pod.namespace().link("eth0");
    assert_eq!((link.mac.as_str(), link.mtu_bytes, link.tx_queue, link.allmulti), (MAC, 1400, 77, true));
    assert!(link.promiscuity > 0);
    assert_eq!(pod.namespace().sysctl("net/ipv4/conf/eth0/arp_filter"), "1");
    let record = format!("{RECORD}/{}_eth0.json", pod.id());
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    attached.check_and_del();
    let now = pod.namespace().link("eth0");
    assert_eq!((now.mac, now.mtu_bytes, now.tx_queue, now.allmulti), (was.mac, was.mtu_bytes, was.tx_queue, false));
    assert_eq!(now.promiscuity, 0);
    assert!(!fs::exists(record).unwrap());
}

/// A result of version 1.1.0 has the MTU, which bridge's CHECK compares.
#[test]
fn the_interface_plugins_check_passes_after_tuning() {
    let (node, pod) = node_with_pod();
    let conf = with(crate::configs::bridge(json!({})), json!({"cniVersion": "1.1.0", "mtu": 1450}));
    let before = Attached::add(&node, &conf, &pod);
    let attached = Attached::add(&node, &behind(&before, with(full(), json!({"cniVersion": "1.1.0"}))), &pod);
    let entries = attached.result["interfaces"].as_array().unwrap();
    assert_eq!((&entries[2]["mtu"], &entries[2]["mac"]), (&json!(1400), &json!(MAC)));
    before.call(Verb::Check).prev_result(&attached.result).run(&node).ok();
}

/// The kernel completes the checksums of what the container sends, once the interface no longer does.
#[test]
fn offloads_are_set_compared_and_restored() {
    const NAME: &str = "tx-checksum-ip-generic";
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    assert!(!sends_whole_checksums(&node, &pod));
    let add = |own: Value| Attached::add(&node, &behind(&before, config(json!({"offloads": own}))), &pod);
    add(json!({NAME: false})).check().ok();
    assert!(sends_whole_checksums(&node, &pod));
    // The record of the first ADD stays.
    let attached = add(json!({NAME: false, "tx-nocache-copy": true}));
    let record = fs::read_to_string(format!("{RECORD}/{}_eth0.json", pod.id())).unwrap();
    assert!(record.contains(r#""offloads":{"tx-checksum-ip-generic":true,"tx-nocache-copy":false}"#), "{record}");
    let other = with(attached.config.clone(), json!({"offloads": {NAME: true}, "prevResult": attached.result}));
    let failure = Call::new(Verb::Check, other, &pod).run(&node).fails_with(107);
    assert!(failure.msg.contains("its offload tx-checksum-ip-generic is off, not on"), "{failure:?}");
    attached.check_and_del();
    assert!(!sends_whole_checksums(&node, &pod));
    for (name, why) in [("tx-checksum", "the kernel knows no such offload"), ("loopback", "it is fixed on link eth0")] {
        let own = behind(&before, config(json!({"offloads": {NAME: false, name: true}})));
        let failure = Call::new(Verb::Add, own, &pod).run(&node).fails_with(7);
        assert!(failure.msg.contains(&format!("key offloads.{name:?} = true: {why}")), "{failure:?}");
        assert!(failure.details.contains(NAME) && !failure.details.contains("loopback"), "{failure:?}");
    }
    // One that needs the other.
    let own = behind(&before, config(json!({"offloads": {NAME: false, "tx-tcp-segmentation": true}})));
    let failure = Call::new(Verb::Add, own, &pod).run(&node).fails();
    assert!(failure.msg.contains("cannot set offload tx-tcp-segmentation of link eth0 on"), "{failure:?}");
    assert!(!sends_whole_checksums(&node, &pod));
}

/// Whether the UDP checksum of a packet of the container's is right where the node first sees it.
fn sends_whole_checksums(node: &Node, pod: &Container) -> bool {
    let capture = || {
        let (family, all) = (AddressFamily::Packet, SockProtocol::EthAll);
        let socket = socket::socket(family, SockType::Raw, SockFlag::empty(), all).unwrap();
        socket::setsockopt(&socket, ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
        socket
    };
    let socket = node.host().enter(capture);
    let sender = pod.namespace().enter(|| std::net::UdpSocket::bind("10.7.0.2:0").unwrap());
    sender.send_to(b"even", "10.7.0.1:4711").unwrap();
    let mut buffer = [0; 2048];
    loop {
        let length = nix::unistd::read(&socket, &mut buffer).expect("the packet");
        let Some((ip, udp)) = buffer[..length].get(14..).and_then(|ip| ip.split_at_checked(20)) else { continue };
        if udp.get(2..4) != Some(&4711_u16.to_be_bytes()) || ip[9] != 17 {
            continue;
        }
        // The pseudo header: addresses, protocol, length.
        let words = ip[12..20].chunks(2).chain(udp.chunks(2)).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = words.sum::<u32>() + 17 + u32::try_from(udp.len()).unwrap();
        return (sum & 0xffff) + (sum >> 16) == 0xffff;
    }
}

/// Another interface of the result may have the same name, on the host or in another container.
#[test]
fn the_new_address_is_that_of_the_attachments_interface_alone() {
    let (node, pod) = node_with_pod();
    let mut before = bridged(&node, &pod);
    let interfaces = before.result["interfaces"].as_array_mut().unwrap();
    interfaces.push(json!({"name": "eth0", "mac": "02:00:00:00:00:01"}));
    interfaces.push(json!({"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/other"}));
    let mut expected = before.result["interfaces"].clone();
    expected[2]["mac"] = json!(MAC);
    let attached = Attached::add(&node, &behind(&before, config(json!({"mac": MAC}))), &pod);
    assert_eq!(attached.result["interfaces"], expected);
}

#[test]
fn a_failing_sysctl_restores_those_before_it_and_the_interface() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    node.remember();
    let inside = pod.namespace().snapshot();
    let sysctl = json!({"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1", "net.ipv4.ip_default_ttl": "70",
                        "net/ipv4/tcp_fin_timeout": "7", "net.ipv4.ip_local_port_range": "9 8", "net.core.optmem_max": "9"});
    let failure =
        Call::new(Verb::Add, behind(&before, with(full(), json!({"sysctl": sysctl}))), &pod).run(&node).fails();
    assert!(failure.msg.contains("sysctl net/ipv4/ip_local_port_range = 9 8"), "{failure:?}");
    assert!(failure.msg.ends_with(": invalid argument") && failure.details.contains("EINVAL"), "{failure:?}");
    assert!(failure.details.contains("Undone: sysctl net/ipv4/tcp_fin_timeout = 60"), "{failure:?}");
    let left = testns::changes(&inside, &pod.namespace().snapshot());
    assert!(left.is_empty(), "{left}");
    node.assert_as_before_except(|line| line.ends_with(" /run/cni") || line.contains("/run/cni/tuning 0"));
    for absent in ["net.no.such", "net.core.rmem_max_no"] {
        let config = config(json!({"sysctl": {absent: "1"}}));
        let failure = Call::new(Verb::Add, behind(&before, config), &pod).run(&node).fails();
        assert!(failure.details.contains("no such sysctl in a container's namespace"), "{failure:?}");
    }
}

/// The effect of some sysctls is not undone by their old value: IPv6 comes back without addresses and routes.
#[test]
fn a_missing_sysctl_changes_nothing() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let inside = pod.namespace().snapshot();
    let sysctl = json!({"net.ipv6.conf.all.disable_ipv6": "1", "net.no.such": "1", "net.nor.this": "1"});
    let failure = Call::new(Verb::Add, behind(&before, config(json!({"sysctl": sysctl}))), &pod).run(&node).fails();
    assert!(failure.msg.contains("write sysctl net/no/such = 1"), "{failure:?}");
    assert!(failure.details.contains("no such sysctl in a container's namespace"), "{failure:?}");
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
}

#[test]
fn the_administrators_list_decides_which_sysctls_are_set() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    fs::create_dir_all("/etc/cni/tuning").unwrap();
    fs::write("/etc/cni/tuning/allowlist.conf", "^net\\.ipv4\\.conf\\.IFNAME\\.arp_[a-z]*$\n\n^net/core/").unwrap();
    let conf = |name: &str| config(json!({"cniVersion": "1.1.0", "sysctl": {name: "1"}}));
    let call = |name: &str| Call::new(Verb::Add, behind(&before, conf(name)), &pod).run(&node);
    call("net.ipv4.conf.IFNAME.arp_filter").ok();
    call("net/core/somaxconn").ok();
    for name in ["net.core.somaxconn", "net.ipv4.conf.eth0.arp_filter", "net.ipv4.conf.IFNAME.forwarding"] {
        let failure = call(name).fails_with(7);
        assert!(failure.msg.contains(&format!("{name:?}: /etc/cni/tuning/allowlist.conf")), "{failure:?}");
        node.call(Verb::Status, conf(name), Attachment::none()).fails_with(50);
    }
}

#[test]
fn check_names_each_difference() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let own = json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.ipv4.ip_local_port_range": "2000 3000"},
                     "mac": MAC.to_uppercase()});
    let attached = Attached::add(&node, &behind(&before, with(full(), own)), &pod);
    attached.check().ok();
    let inside = pod.namespace();
    let differs = |word: &str| {
        let failure = attached.check().fails_with(107);
        assert!(failure.msg.contains(word), "{word}: {failure:?}");
    };
    inside.set_sysctl("net/ipv4/conf/eth0/arp_filter", "0");
    differs("its value is 0, not 1");
    inside.set_sysctl("net/ipv4/conf/eth0/arp_filter", "1");
    inside.set_mtu("eth0", 1300);
    differs("its MTU is 1300, not 1400");
    inside.set_mtu("eth0", 1400);
    inside.set_mac("eth0", "02:00:00:00:00:09");
    differs("its Ethernet address is 02:00:00:00:00:09");
    inside.set_mac("eth0", MAC);
    // Promiscuous mode that nothing configures.
    let config = with(attached.config.clone(), json!({"promisc": false, "prevResult": attached.result}));
    Call::new(Verb::Check, config, &attached.attachment).run(&node).fails_with(107);
}

/// `args.cni` before `runtimeConfig`, `CNI_ARGS` and the key, as in the reference.
#[test]
fn the_strongest_wish_for_an_address_wins() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let mac = |last: u8| format!("02:00:00:00:00:{last:02x}");
    let weakest = json!({"mac": mac(1)});
    let strong = with(weakest.clone(), json!({"runtimeConfig": {"mac": mac(3)}}));
    let strongest = with(strong.clone(), json!({"args": {"cni": {"mac": mac(4)}}}));
    for (own, args, expected) in [
        (&weakest, "", 1),
        (&weakest, "MAC=02:00:00:00:00:02", 2),
        (&strong, "MAC=02:00:00:00:00:02", 3),
        (&strongest, "", 4),
    ] {
        Call::new(Verb::Add, behind(&before, config(own.clone())), &pod).args(args).run(&node).ok();
        assert_eq!(pod.namespace().link("eth0").mac, mac(expected));
    }
}

/// The names of container and interface are joined by `_`, which both may contain. Each has its own record, whichever comes first.
#[test]
fn attachments_whose_names_join_to_the_same_keep_their_own_records() {
    let node = node();
    let pods = [("a", "b_c"), ("a_b", "c")].map(|(id, ifname)| {
        let pod = node.container_named(id);
        (pod.attachment_as(ifname), pod)
    });
    let attached = [(0, 1400), (1, 1300)].map(|(at, mtu): (usize, u32)| {
        // DEL of what was not added leaves the other's.
        node.call(Verb::Del, config(json!({})), &pods[1].0).ok();
        let before = bridged(&node, &pods[at].0);
        let config = behind(&before, config(json!({"mtu": mtu})));
        // A repeated ADD finds the record of the first.
        Attached::add(&node, &config, &pods[at].0);
        Attached::add(&node, &config, &pods[at].0)
    });
    let mtus = || pods.each_ref().map(|(attachment, pod)| pod.namespace().link(&attachment.ifname).mtu_bytes);
    assert_eq!(mtus(), [1400, 1300]);
    attached[0].del().ok();
    assert_eq!(mtus(), [1500, 1300]);
    attached[1].del().ok();
    assert_eq!(mtus(), [1500, 1500]);
    assert_eq!(fs::read_dir(RECORD).unwrap().count(), 0);
}

/// The kernel takes no bytes as no change.
#[test]
fn an_empty_sysctl_changes_nothing() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, config(json!({"sysctl": {"net.core.somaxconn": ""}}))), &pod);
    attached.check().ok();
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
}

/// Versions 0.1.0 and 0.2.0 have no result without an address; a runtime that is gone reads none.
#[test]
fn add_whose_result_cannot_be_written_restores_the_sysctls() {
    let (node, pod) = node_with_pod();
    pod.namespace().add_veth("eth0", node.host(), "other");
    let before = || (pod.namespace().sysctl("net/core/somaxconn"), pod.namespace().snapshot());
    let was = before();
    let previous = json!({"cniVersion": "0.2.0", "interfaces": [{"name": "eth0", "sandbox": "there"}]});
    let own = config(json!({"cniVersion": "0.2.0", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"},
                            "prevResult": previous}));
    let failure = Call::new(Verb::Add, own, &pod).run(&node).fails();
    assert!(failure.details.contains("What ADD had made was removed again"), "{failure:?}");
    assert_eq!(before().0, was.0);
    assert_eq!(testns::changes(&was.1, &pod.namespace().snapshot()), "");
}

/// The kernel takes IPv6 off an interface with a smaller MTU, without a word.
#[test]
fn an_mtu_that_ipv6_cannot_have_is_refused_where_the_interface_has_ipv6_addresses() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let inside = pod.namespace().snapshot();
    let failure = Call::new(Verb::Add, behind(&before, config(json!({"mtu": 1279}))), &pod).run(&node).fails_with(7);
    assert!(failure.msg.contains("key mtu = 1279: expected 1280 at least"), "{failure:?}");
    assert!(failure.msg.contains("fd07::2"), "{failure:?}");
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
    Attached::add(&node, &behind(&before, config(json!({"mtu": 1280}))), &pod).check().ok();
    let other = node.container();
    let ipv4 = Attached::add(&node, &crate::configs::bridge(json!({})), &other);
    Attached::add(&node, &behind(&ipv4, config(json!({"mtu": 1000}))), &other).check().ok();
}
