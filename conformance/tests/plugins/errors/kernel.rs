//! Failures whose cause is on the node: other links, privileges, the kernel's features.

use super::Trouble;
use crate::prelude::*;
use conformance::shell::sh;
use expect_test::expect;
use std::path::Path;

/// The kernel's `BR_MAX_PORTS` is 1024, and port 0 is not used.
const PORTS_MAX: usize = 1023;

/// The container already has an interface of that name.
#[test]
fn taken_ifname() {
    let trouble = Trouble::new();
    trouble.node.host().add_veth("other", trouble.pod.namespace(), "eth0");
    trouble.adding(
        &bridge(json!({})),
        &expect![[r#"
            103 cannot create interface eth0 in /run/netns/pod1: a veth of that name already exists
            Call DEL for the attachment that has it, or use another CNI_IFNAME.
        "#]],
    );
}

#[test]
fn another_kind_of_link_by_the_bridges_name() {
    let trouble = Trouble::new();
    trouble.node.host().add_veth("br0", trouble.node.host(), "other");
    trouble.adding(
        &bridge(json!({})),
        &expect![[r#"
            103 cannot use bridge br0 on the host: br0 already exists and is a veth
            Choose another name by key bridge. Undone: addresses released.
        "#]],
    );
}

/// The bridge has the maximum number of ports.
#[test]
fn a_bridge_with_1024_ports() {
    let trouble = Trouble::new();
    trouble.node.host().add_link("br0", "bridge");
    trouble.node.host().crowd_bridge("br0", PORTS_MAX);
    trouble.adding(&bridge(json!({})), &expect![[r#"
            100 cannot create veth veth063f9704 with peer eth0 in /run/netns/pod1 on the host: there is no room for another
            RTM_NEWLINK kind=veth name=veth063f9704 peer=eth0: EXFULL (54). Bridge br0 has as many ports as the kernel allows, 1023: remove some, run GC, or use another bridge. Undone: addresses released.
        "#]]);
}

/// The node has no IPv6 on new links, by its administrator's wish, and the bridge is to have an IPv6 address.
#[test]
fn ipv6_is_turned_off_on_new_links() {
    let trouble = Trouble::new();
    for key in ["all", "default"] {
        trouble.node.host().set_sysctl(&format!("net/ipv6/conf/{key}/disable_ipv6"), "1");
    }
    trouble.adding(&bridge(json!({"isGateway": true, "ipam": v6()})), &expect![[r#"
            102 cannot add address fd07::1/64 on br0 on the host: permission denied (ipv6: IPv6 is disabled on this device)
            RTM_NEWADDR dev=br0 fd07::1/64: EACCES (13), kernel: ipv6: IPv6 is disabled on this device. IPv6 is turned off on br0: set sysctl net/ipv6/conf/br0/disable_ipv6 to 0, for new links net/ipv6/conf/default/disable_ipv6, or use IPv4 addresses only. Undone: gateways of br0 put back; link veth063f9704 deleted; addresses released.
        "#]]);
}

/// The default route leaves by a tunnel, on which there are no Ethernet frames.
#[test]
fn a_tunnel_as_the_default_master() {
    testns::needs!(Feature::Tun.or_skip(), Feature::Macvlan.or_skip());
    let trouble = Trouble::new();
    let host = trouble.node.host();
    let script = "ip tuntap add tun0 mode tun; ip link set tun0 up; ip route add default dev tun0";
    sh(host, script);
    let macvlan = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": v4()});
    trouble.adding(&macvlan, &expect![[r#"
            100 cannot use master tun0, by which the default route leaves, on the host: it carries no Ethernet frames
            Tunnels and the loopback link cannot have such links: set key master to another interface. Interfaces there: lo, tun0.
        "#]]);
}

/// STATUS says what ADD would say of a named one, for each kind of link that needs frames.
#[test]
fn a_tunnel_as_the_master() {
    testns::needs!(Feature::Tun.or_skip(), Feature::Macvlan.or_skip());
    let trouble = Trouble::new();
    let host = trouble.node.host();
    let script = "ip tuntap add tun0 mode tun; ip link set tun0 up; ip link set lo up";
    sh(host, script);
    for master in ["tun0", "lo"] {
        let macvlan = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": master, "ipam": v4()});
        let text = format!("cannot use master {master}, on the host: it carries no Ethernet frames");
        let add = trouble.node.call(Verb::Add, &macvlan, &trouble.node.container()).fails_with(100);
        assert_eq!(add.msg, text);
        let status = trouble.node.call(Verb::Status, &macvlan, Attachment::none()).fails_with(50);
        assert_eq!(status.msg, format!("network net is not available: {text}"));
        assert_eq!(status.details, add.details.replace(" Undone: addresses released.", ""));
    }
}

/// Another link on the master has the Ethernet address that is asked for.
#[test]
fn an_ethernet_address_that_is_taken() {
    testns::needs!(Feature::Macvlan.or_skip());
    let trouble = Trouble::new();
    let outside = trouble.node.remote("outside");
    trouble.node.host().add_veth("uplink", &outside, "outside");
    let mac = "0a:00:00:00:00:05";
    let macvlan =
        json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "uplink", "mac": mac, "ipam": v4()});
    trouble.node.call(Verb::Add, &macvlan, &trouble.node.container_named("first")).ok();
    trouble.adding(&macvlan, &expect![[r#"
            103 cannot set link eth0 up on /run/netns/pod1: address already in use
            RTM_SETLINK dev=eth0 up=1: EADDRINUSE (98). Another link on the same master has Ethernet address 0a:00:00:00:00:05: eth0 in /run/netns/first (cni:net/first/eth0). Remove that one, or ask for another address. Undone: link eth0 deleted in the container; addresses released.
        "#]]);
}

/// The plugin is root without the capability to change networks; or in a container of its own, root in a user namespace that does
/// not own the node's network.
#[test]
fn root_without_privileges() {
    for (program, expected) in [
        (
            "/usr/bin/setpriv --bounding-set=-net_admin",
            expect![[r#"
                102 cannot create bridge br0 on the host: operation not permitted
                RTM_NEWLINK kind=bridge name=br0: EPERM (1). The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace. Undone: addresses released.
            "#]],
        ),
        (
            "/usr/bin/unshare --user --map-root-user",
            expect![[r#"
                102 cannot enter network namespace /run/netns/pod1: operation not permitted
                setns CLONE_NEWNET: EPERM (1). The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace.
            "#]],
        ),
    ] {
        let Some(trouble) = unprivileged(&format!("exec {program} \"$CNI_PATH/bridge\"")) else { return };
        trouble.calling(&trouble.add(&bridge(json!({}))).plugin("unprivileged"), &expected);
    }
}

/// A runtime that lacks the right repeats ADD and DEL: no address is held by what made nothing, and where an address is held, its
/// rules may be there.
#[test]
fn without_privileges_refused_adds_hold_no_address() {
    for plugin in ["bridge", "ptp"] {
        let script = format!("exec /usr/bin/setpriv --bounding-set=-net_admin \"$CNI_PATH/{plugin}\"");
        let Some(Trouble { node, pod }) = unprivileged(&script) else { return };
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/29", "rangeEnd": "10.7.0.2"}]]});
        let config = bridge(json!({"type": plugin, "ipMasq": true, "ipam": ipam}));
        let call = |verb| testns::Call::new(verb, &config, &pod);
        for _ in 0..3 {
            let error = call(Verb::Add).plugin("unprivileged").run(&node).fails_with(102);
            assert!(
                error.details.contains("addresses released") && !error.details.contains("Left behind"),
                "{error:?}"
            );
            call(Verb::Del).plugin("unprivileged").run(&node).ok();
        }
        let result = call(Verb::Add).run(&node).ok();
        call(Verb::Del).plugin("unprivileged").run(&node).fails_with(102);
        call(Verb::Check).prev_result(&result).run(&node).ok();
        call(Verb::Del).prev_result(&result).run(&node).ok();
    }
}

/// A node whose plugin `unprivileged` is bridge under a program that takes privileges away.
fn unprivileged(script: &str) -> Option<Trouble> {
    let program = script.split(' ').nth(1).expect("a program");
    if !Path::new(program).exists() {
        skip(&format!("there is no {program}"));
        return None;
    }
    let trouble = Trouble::new();
    let path = trouble.node.bin_dir().join("unprivileged");
    testns::write_executable(path, format!("#!/bin/sh\n{script}\n")).expect("write the script");
    Some(trouble)
}

/// The kernel was built without a feature that the config needs.
#[test]
fn a_kernel_without_vlan_filtering() {
    if Feature::BridgeVlanFiltering.is_here() {
        skip("this kernel has bridge VLAN filtering");
        return;
    }
    let (trouble, vlan) = (Trouble::new(), bridge(json!({"cniVersion": "1.1.0", "vlan": 100})));
    trouble.node.call(Verb::Status, &vlan, Attachment::none()).fails_with(50);
    trouble.adding(&vlan, &expect![[r#"
            101 cannot create bridge br0 on the host: operation not supported
            RTM_NEWLINK kind=bridge name=br0 vlan_filtering=1: EOPNOTSUPP (95). The kernel was built without CONFIG_BRIDGE_VLAN_FILTERING, which keys vlan and vlanTrunk need. Undone: addresses released.
        "#]]);
}

/// An ADD that could not make its VRF says of none that it was deleted.
#[test]
fn a_kernel_without_vrf() {
    if Feature::Vrf.is_here() {
        skip("this kernel has VRFs");
        return;
    }
    let trouble = Trouble::new();
    let result = trouble.node.call(Verb::Add, bridge(json!({})), &trouble.pod).ok();
    let vrf = json!({"cniVersion": "1.1.0", "name": "net", "type": "vrf", "vrfname": "red"});
    let status = trouble.node.call(Verb::Status, &vrf, Attachment::none()).fails_with(50);
    assert!(status.details.contains("Load module vrf (CONFIG_NET_VRF)"), "{status:?}");
    trouble.calling(
        &trouble.add(&vrf).prev_result(&result),
        &expect![[r#"
            101 cannot create vrf red on /run/netns/pod1: operation not supported (Unknown device type)
            RTM_NEWLINK kind=vrf name=red: EOPNOTSUPP (95), kernel: Unknown device type. Load module vrf (CONFIG_NET_VRF), or use a kernel that has it.
        "#]],
    );
}
