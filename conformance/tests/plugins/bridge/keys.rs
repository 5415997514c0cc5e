//! Keys of the bridge, its ports and the container's interface.

use super::stays;
use crate::prelude::*;
use nix::mount::{MsFlags, mount, umount};
use std::process::Command;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);

/// The kernel lowers a bridge to the MTU of its new port, for all its containers, as with the reference; a warning says so.
#[test]
fn a_port_that_lowers_the_bridges_mtu_is_named_in_a_warning() {
    let node = node();
    node.host().add_link("br0", "bridge");
    node.host().add_veth("wide", node.host(), "other");
    node.host().set_mtu("wide", 9000);
    node.host().set_master("wide", "br0");
    assert_eq!(node.host().link("br0").mtu_bytes, 9000);
    let said = |own: Value| {
        let reply = node.call(Verb::Add, bridge(own), &node.container());
        reply.ok();
        reply.output.stderr
    };
    assert!(!said(json!({"mtu": 9000})).contains("mtu"));
    let warning = said(json!({}));
    assert!(warning.contains("the bridge's MTU was 9000 and is 1500"), "{warning}");
    assert!(warning.contains("set key mtu = 9000"), "{warning}");
    assert_eq!(node.host().link("br0").mtu_bytes, 1500);
}

#[test]
fn isolated_pods_reach_the_gateway_but_not_each_other() {
    let node = node();
    let (one, two, open) = (node.container(), node.container(), node.container());
    let config = bridge(json!({"isGateway": true, "portIsolation": true}));
    Attached::add(&node, &config, &one);
    let two_ip = first_ip(&Attached::add(&node, &config, &two).result);
    let open_ip = first_ip(&Attached::add(&node, &bridge(json!({"isGateway": true})), &open).result);
    one.namespace().ping(ip("10.7.0.1"));
    one.namespace().ping(open_ip);
    open.namespace().ping(two_ip);
    assert!(!one.namespace().pings(two_ip, SHORT));
}

/// promiscMode makes the bridge promiscuous; removing the key later does not undo it.
#[test]
fn promisc_mode_is_set_and_never_cleared() {
    each(|_, node| {
        let attached = Attached::add(node, &bridge(json!({"promiscMode": true})), &node.container());
        assert!(node.host().link("br0").promiscuity > 0);
        attached.check().ok();
        Attached::add(node, &bridge(json!({})), &node.container());
        assert!(node.host().link("br0").promiscuity > 0);
    });
}

/// Keys of ours, for a bridge that ADD makes: one that is there keeps what it has.
#[test]
fn a_new_bridge_forwards_groups_and_floods_multicast_if_asked_to() {
    let node = node();
    let shown = |own: Value| {
        Attached::add(&node, &bridge(own), &node.container());
        let output = node.host().enter(|| Command::new("ip").args(["-d", "link", "show", "br0"]).output().unwrap());
        String::from_utf8(output.stdout).unwrap()
    };
    let before = shown(json!({"bridge": "br0", "groupForwardMask": 16384, "multicastSnooping": false}));
    assert!(before.contains(" group_fwd_mask 0x4000 ") && before.contains(" mcast_snooping 0 "), "{before}");
    let after = shown(json!({"bridge": "br0"}));
    assert!(after.contains(" group_fwd_mask 0x4000 ") && after.contains(" mcast_snooping 0 "), "{after}");
}

/// macspoofchk: the bridge drops a frame whose source address is not the container's.
#[test]
fn macspoofchk_drops_frames_with_another_source_address() {
    each(|_, node| {
        let config = bridge(json!({"isGateway": true, "macspoofchk": true, "ipam": dual()}));
        let (honest, spoofer) = (node.container(), node.container());
        let honest = (Attached::add(node, &config, &honest), honest);
        let attached = Attached::add(node, &config, &spoofer);
        let (inside, gateway) = (spoofer.namespace(), ip("10.7.0.1"));
        inside.ping(gateway);
        inside.ping(first_ip(&honest.0.result));
        let own = inside.link("eth0").mac;
        inside.set_mac("eth0", "0a:00:00:00:00:66");
        assert!(!inside.pings(gateway, SHORT));
        assert!(!inside.pings(first_ip(&honest.0.result), SHORT));
        assert!(!inside.pings(ip("fd07::1"), SHORT));
        honest.1.namespace().ping(gateway); // only the spoofing pod is cut off
        inside.set_mac("eth0", &own);
        inside.ping(gateway);
        attached.check_and_del();
        honest.0.del().ok();
        node.assert_as_before_except(stays);
    });
}

/// enabledad: with more than one probe configured in the pod's kernel, ADD waits as long as the reference does, 10 s.
#[test]
fn enabledad_may_take_more_than_five_seconds() {
    let (node, pod) = node_with_pod();
    pod.namespace().set_sysctl("net/ipv6/conf/default/dad_transmits", "6");
    Attached::add(&node, &bridge(json!({"enabledad": true, "ipam": v6()})), &pod);
}

/// A read-only `/proc/sys` is not an error where every value is already right. The reference writes `keep_addr_on_down` all the same.
#[test]
fn values_that_are_right_need_no_writable_proc_sys() {
    each(|who, node| {
        let pod = node.container();
        let set = |namespace: &Namespace, name: &str, value: &str| {
            namespace.set_sysctl(&format!("net/ipv6/conf/default/{name}"), value);
        };
        node.host().set_sysctl("net/ipv4/ip_forward", "1");
        node.host().set_sysctl("net/ipv6/conf/all/forwarding", "1");
        set(node.host(), "accept_ra", "0");
        for (name, value) in [("accept_ra", "0"), ("accept_dad", "0"), ("keep_addr_on_down", "1")] {
            set(pod.namespace(), name, value);
        }
        let _read_only = ReadOnlyProcSys::mount();
        let config = bridge(json!({"isGateway": true, "ipam": dual()}));
        if !who.is_ours() {
            let failure = node.call(Verb::Add, &config, &pod).fails();
            assert!(failure.msg.contains("keep_addr_on_down"), "{failure:?}");
            return;
        }
        let attached = Attached::add(node, &config, &pod);
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "fd07::2/64"]);
        attached.del().ok();
    });
}

/// Where `/proc/sys` is read-only a network without IPv6 works as the reference's, with a warning. One with IPv6 does not, as
/// router advertisements cannot be refused; nor does a gateway whose packets the node would not forward.
#[test]
fn what_a_network_does_not_need_is_a_warning_where_proc_sys_is_read_only() {
    let ptp = |ipam: Value| json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": ipam});
    for (config, forwards, refused) in [
        (bridge(json!({})), "0", None),
        (bridge(json!({"isGateway": true})), "1", None),
        (bridge(json!({"isGateway": true})), "0", Some("ip_forward")),
        (layer2(json!({})), "0", None),
        (ptp(v4()), "1", None),
        (ptp(v4()), "0", Some("ip_forward")),
        (bridge(json!({"isGateway": true, "ipam": v6()})), "1", Some("accept_ra")),
        (ptp(v6()), "1", Some("accept_ra")),
    ] {
        each(|who, node| {
            node.host().set_sysctl("net/ipv4/ip_forward", forwards);
            node.host().set_sysctl("net/ipv6/conf/all/forwarding", forwards);
            let _read_only = ReadOnlyProcSys::mount();
            let reply = node.call(Verb::Add, &config, &node.container());
            assert_eq!(reply.output.code() != 0, refused.is_some(), "{reply}");
            match refused.filter(|_| who.is_ours()) {
                Some(key) => {
                    let failure = reply.fails();
                    assert!(failure.msg.contains(key) && failure.msg.contains("read-only"), "{failure:?}");
                }
                None if who.is_ours() => assert!(reply.output.stderr.contains("accept_ra"), "{reply}"),
                None => (),
            }
        });
    }
}

/// In the test's own mount namespace.
struct ReadOnlyProcSys;

impl ReadOnlyProcSys {
    fn mount() -> Self {
        let none = None::<&str>;
        mount(Some("/proc/sys"), "/proc/sys", none, MsFlags::MS_BIND, none).expect("bind /proc/sys");
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, "/proc/sys", none, read_only, none).expect("make /proc/sys read-only");
        Self
    }
}

impl Drop for ReadOnlyProcSys {
    fn drop(&mut self) {
        umount("/proc/sys").expect("unmount /proc/sys");
    }
}

/// In a kernel that starts links with IPv6 off, the addresses of the config are set.
#[test]
fn ipv6_is_switched_on_where_it_is_off() {
    each(|_, node| {
        let pod = node.container();
        pod.namespace().set_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
        pod.namespace().set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
        Attached::add(node, &bridge(json!({"isGateway": true, "ipam": dual()})), &pod);
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "fd07::2/64"]);
        pod.namespace().ping(ip("fd07::1"));
    });
}

/// CHECK passes, also after the bridge's hardware address changed with its ports; the reference looks for an IPAM
/// plugin.
#[test]
fn check_without_ipam_passes() {
    each(|who, node| {
        let config = layer2(json!({}));
        let attached = Attached::add(node, &config, &node.container());
        (0..4).for_each(|_| drop(Attached::add(node, &config, &node.container())));
        let reply = attached.check();
        if who.is_ours() {
            reply.ok();
        } else {
            assert_eq!(reply.fails().msg, "no plugin name provided");
        }
    });
}

/// disableContainerInterface leaves the container's interface down, and ADD waits for no port.
#[test]
fn a_disabled_container_interface_stays_down() {
    let (node, pod) = node_with_pod();
    let attached = Attached::add(&node, &layer2(json!({"disableContainerInterface": true})), &pod);
    assert!(!pod.namespace().link("eth0").up);
    let outside = node.host().link(attached.host_veth());
    assert_eq!((outside.up, outside.master.as_deref()), (true, Some("br0")));
    attached.check_and_del();
    node.assert_as_before_except(stays);
}
