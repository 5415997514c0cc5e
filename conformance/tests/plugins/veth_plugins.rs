//! A test for each plugin that connects a container by a veth: bridge and ptp.

use crate::bridge::stays;
use crate::interface_plugins::{InterfacePlugin, each_interface_plugin};
use crate::prelude::*;
use nix::errno::Errno;
use testns::trace::{Fate, Syscall};

/// Whether the Ethernet address of a link of the node was set (`NET_ADDR_SET`). udev replaces addresses that the kernel chose at random
/// (`MACAddressPolicy=persistent`), some milliseconds after ADD.
#[track_caller]
pub(crate) fn has_set_address(node: &Node, link: &str) -> bool {
    let read = || std::fs::read_to_string(format!("/sys/class/net/{link}/addr_assign_type"));
    node.host().enter(read).expect("read how the address was chosen") == "3\n"
}

/// A change that another process makes, given the node, the container and the name of the host's end.
pub(crate) type Tamper = fn(&Node, &Namespace, &str);

/// CHECK passes before each of these changes and fails after it.
pub(crate) fn check_fails_after(config: &Value, changes: &[(&str, Tamper)]) {
    for (what, tamper) in changes {
        let (node, pod) = node_with_pod();
        let attached = Attached::add(&node, config, &pod);
        attached.check().ok();
        tamper(&node, pod.namespace(), attached.host_veth());
        let reply = attached.check();
        assert!(reply.output.code() != 0, "CHECK does not see: {what}");
        assert!(!reply.fails().msg.is_empty());
        attached.del().ok();
    }
}

/// Two pods reach each other, the gateway and the node by each address; after DEL nothing of them is left.
fn two_pods_reach_each_other_and_the_gateway(kind: InterfacePlugin) {
    for ipam in [v6(), dual()] {
        let config = kind.config(0, json!({"ipMasq": false, "ipam": ipam}));
        each(|_, node| {
            let pods = [node.container(), node.container()];
            let attached = pods.each_ref().map(|pod| Attached::add(node, &config, pod));
            let plain = |address: &String| ip(address.split('/').next().unwrap());
            for (pod, own, other) in [(&pods[0], 0, 1), (&pods[1], 1, 0)] {
                let own = addresses(&attached[own].result);
                assert_eq!(pod.namespace().global_addresses("eth0"), own);
                addresses(&attached[other].result).iter().for_each(|other| pod.namespace().ping(plain(other)));
                own.iter().for_each(|own| node.host().ping(plain(own)));
                pod.namespace().ping(ip("fd07::1"));
                if own.len() == 2 {
                    pod.namespace().ping(ip("10.7.0.1"));
                }
            }
            attached.iter().for_each(|attached| drop(attached.check().ok()));
            attached.iter().for_each(|attached| drop(attached.del().ok()));
            assert!(pods[0].namespace().find_link("eth0").is_none());
            node.assert_as_before_except(stays);
        });
    }
}

/// DEL does not delete another process's link that has the host veth's name; nor does such a link make ADD fail.
fn a_link_that_another_process_put_in_the_place_of_the_host_veth_stays(kind: InterfacePlugin) {
    let (node, pod) = node_with_pod();
    let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
    let name = attached.host_veth().to_owned();
    node.host().delete_link(&name);
    let other = node.container();
    node.host().add_veth(&name, other.namespace(), "eth0");
    attached.del().ok();
    assert!(node.host().find_link(&name).is_some());
    Call::new(Verb::Del, &attached.config, pod.leave(Remains::EmptyPath)).run(&node).ok();
    assert!(node.host().find_link(&name).is_some());
    Attached::add(&node, &attached.config, &node.container_named("pod1-again")).check().ok();
}

/// The address stays reserved while a link or a rule of the attachment is left. The next DEL frees it.
fn an_address_stays_held_while_its_link_or_its_rules_are_left(kind: InterfacePlugin) {
    for own in [json!({"ipMasq": false}), json!({"ipMasqBackend": "nftables"})] {
        let node = node();
        let attached = Attached::add(&node, &kind.config(0, own.clone()), &node.container());
        let reservation = format!("/var/lib/cni/networks/net/{}", first_ip(&attached.result));
        let failure = attached.call(Verb::Del).refuse(&node, 1).reply.fails();
        assert!(failure.details.contains("stay held"), "{own}: {failure:?}");
        assert!(std::fs::exists(&reservation).unwrap(), "{own}");
        attached.del().ok();
        assert!(!std::fs::exists(&reservation).unwrap(), "{own}");
        node.assert_as_before_except(stays);
    }
}

/// A node that has routes by router advertisements keeps them when the first container of IPv6 makes it a router, and takes further
/// advertisements; an ADD that may not make it one leaves the node as it was.
fn a_node_keeps_what_routers_advertise(kind: InterfacePlugin) {
    const UPLINK: &str = "up.0";
    let node = node();
    let (host, router) = (node.host(), node.remote("router"));
    host.add_veth(UPLINK, &router, "lan");
    router.set_sysctl("net/ipv6/conf/lan/forwarding", "1");
    host.set_sysctl("net/ipv6/conf/all/forwarding", "0");
    let key = format!("net/ipv6/conf/{UPLINK}/accept_ra");
    host.set_sysctl(&key, "1");
    router.set_up("lan");
    host.set_up(UPLINK);
    let advertised = |host: &Namespace| host.routes().iter().any(|route| route.to == "::/0");
    let advertise = || {
        host.wait_for("a route by an advertisement", |host| {
            router.advertise_router("lan", "2001:db8::".parse().unwrap());
            advertised(host)
        });
    };
    advertise();
    let config = kind.config(0, json!({"ipMasq": false, "ipam": v6()}));
    let is_made_router = |call: &Syscall| {
        let is_key = call.descriptor().is_some_and(|path| path.ends_with("conf/all/forwarding"));
        (is_key && call.name().contains("write")).then_some(Errno::EROFS)
    };
    let call = Call::new(Verb::Add, &config, &node.container());
    call.try_traced(&node, Some((1, Fate::FailWhere(is_made_router)))).expect("no call takes that long").reply.fails();
    assert!(host.sysctl(&key) == "1" && advertised(host));
    let reply = Call::new(Verb::Add, &config, &node.container()).run(&node);
    reply.ok();
    assert!(reply.output.stderr.contains(&key), "{reply}");
    assert!(host.sysctl(&key) == "2" && advertised(host));
    host.delete_route("::/0");
    advertise();
}

each_interface_plugin! {
    bridge: BRIDGE, ptp: PTP;
    (
        two_pods_reach_each_other_and_the_gateway
        a_link_that_another_process_put_in_the_place_of_the_host_veth_stays
        an_address_stays_held_while_its_link_or_its_rules_are_left
        a_node_keeps_what_routers_advertise
    )
}
