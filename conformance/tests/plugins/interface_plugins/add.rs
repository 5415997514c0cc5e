//! ADD: what earlier plugins and the runtime ask for, layer 2, and where links are made.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held};
use crate::prelude::*;

fn the_strongest_wish_for_an_ethernet_address_wins(kind: InterfacePlugin) {
    let weakest_first: &[&str] = match kind.name {
        "bridge" => &["CNI_ARGS", "args", "runtimeConfig"],
        "macvlan" => &["mac", "args", "CNI_ARGS", "runtimeConfig"],
        _ => &["mac", "CNI_ARGS", "args", "runtimeConfig"],
    };
    let (node, _outside) = kind.node(1);
    let (mut own, mut args) = (json!({}), "IgnoreUnknown=1".to_owned());
    for (number, wish) in weakest_first.iter().enumerate() {
        let mac = format!("0a:00:00:00:00:0{number}");
        match *wish {
            "CNI_ARGS" => args = format!("IgnoreUnknown=1;MAC={mac}"),
            "args" => own["args"] = json!({"cni": {"mac": mac}}),
            "runtimeConfig" => own["runtimeConfig"] = json!({"mac": mac}),
            key => own[key] = json!(mac),
        }
        let pod = node.container();
        let result = Call::new(Verb::Add, kind.config(0, own.clone()), &pod).args(&args).run(&node).ok();
        assert_eq!(pod.namespace().link("eth0").mac, mac, "{wish}");
        assert_eq!(result["interfaces"].as_array().and_then(|all| all.last()).unwrap()["mac"], mac, "{wish}");
    }
}

/// The config's `dns` replaces IPAM's; dummy has IPAM's only.
fn name_service_is_that_of_ipam_unless_the_config_has_one(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let file = node.work_dir().join("resolv.conf");
    std::fs::write(&file, "nameserver 10.7.0.53\n").unwrap();
    let ipam = with(dual(), json!({"resolvConf": file}));
    let (of_ipam, of_config) = (json!({"nameservers": ["10.7.0.53"]}), json!({"nameservers": ["10.7.0.54"]}));
    let [without, with_key] = match kind.name {
        "dummy" => [of_ipam.clone(), of_ipam],
        _ => [of_ipam, of_config.clone()],
    };
    for (own, expected) in [(json!({}), without), (json!({"dns": of_config}), with_key)] {
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, with(own, json!({"ipam": ipam}))), &pod);
        let dns = attached.result.get("dns").cloned().unwrap_or(json!({}));
        assert_eq!(dns, expected);
        attached.del().ok();
    }
}

/// Without an address plugin the interface is up and has no address.
fn without_ipam_it_is_layer_2(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    for ipam in [json!({}), Value::Null] {
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, json!({"ipam": ipam})), &pod);
        let link = pod.namespace().link("eth0");
        assert_eq!((link.up, pod.namespace().global_addresses("eth0")), (true, vec![]));
        assert_eq!(attached.result["interfaces"].as_array().map(Vec::len), Some(1));
        assert_eq!(attached.result.get("ips"), None);
        attached.check().ok();
        pod.namespace().set_down("eth0");
        attached.check().fails_with(107);
        attached.del().ok();
        assert!(pod.namespace().find_link("eth0").is_none());
        assert_eq!(held(), Vec::<String>::new());
    }
    node.assert_as_before_except(|line| kind.stays(line));
}

fn it_needs_an_address_plugin(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    for verb in [Verb::Add, Verb::Status] {
        let config = kind.config(0, json!({"ipam": {}}));
        let error = Call::new(verb, config, &node.container()).run(&node).fails_with(7);
        assert_eq!(error.msg, format!("cannot use network config: plugin {} needs key ipam", kind.name));
    }
    node.assert_as_before();
}

/// A namespace numbers links in the order in which they are made, and never gives a number twice: so of a link that was
/// made elsewhere and moved a gap is left there, and of one with a name for the time being one in the container.
fn the_link_is_made_in_the_container(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let before = [next_index(node.host()), next_index(pod.namespace())];
    let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
    assert_eq!(pod.namespace().link("eth0").index, before[1] + 1);
    assert_eq!(next_index(pod.namespace()), before[1] + 2);
    // A pair has one end on the node.
    let of_node = u32::from(kind.place == LinkPlace::Pair);
    assert_eq!(next_index(node.host()), before[0] + of_node + 1);
    attached.del().ok();
}

/// The number of a link that is made and removed again.
fn next_index(namespace: &Namespace) -> u32 {
    namespace.add_link("trial", "bridge");
    let index = namespace.link("trial").index;
    namespace.delete_link("trial");
    index
}

/// Wherever ADD is killed, a link that is there has its final name, address and MTU.
fn the_link_is_made_with_name_address_and_mtu(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let own = json!({"mac": "0a:00:00:00:00:07", "mtu": 1400, "ipam": {}});
    let config = kind.config(0, own);
    let mut found = 0;
    for n in 1.. {
        let pod = node.container();
        let traced = Call::new(Verb::Add, &config, &pod).kill_before(&node, n);
        let Some(hit) = traced.hit else { break };
        found += assert_whole(&pod, &format!("killed before {hit}"));
        Call::new(Verb::Del, &config, &pod).run(&node).ok();
        pod.leave(Remains::Gone);
    }
    assert!(found > 0, "no point of ADD has the link");
}

/// The number of links.
fn assert_whole(pod: &Container, point: &str) -> usize {
    let links: Vec<_> = pod.namespace().links().into_iter().filter(|link| link.name != "lo").collect();
    for link in &links {
        assert_eq!((&*link.name, &*link.mac, link.mtu_bytes), ("eth0", "0a:00:00:00:00:07", 1400), "{point}");
    }
    links.len()
}

/// The specification allows `%`; the kernel takes `%d` for a pattern.
fn an_interface_name_that_no_link_can_have_is_refused_first(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    for ifname in ["eth%d", "a%"] {
        let error = node.call(Verb::Add, kind.config(0, json!({})), pod.attachment_as(ifname)).fails_with(4);
        assert_eq!(error.msg, format!("cannot use CNI_IFNAME = {ifname:?}: no link can have that name"));
        node.assert_as_before();
    }
    node.call(Verb::Del, kind.config(0, json!({})), pod.attachment_as("eth%d")).ok();
}

each_interface_plugin! {
    bridge: BRIDGE, ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, host_device: HOST_DEVICE, tap: TAP, dummy: DUMMY;
    (
        name_service_is_that_of_ipam_unless_the_config_has_one
        an_interface_name_that_no_link_can_have_is_refused_first
    )
}

each_interface_plugin! { mod wish: bridge: BRIDGE, macvlan: MACVLAN, tap: TAP; (the_strongest_wish_for_an_ethernet_address_wins) }

each_interface_plugin! {
    mod layer_2:
    macvlan: MACVLAN, host_device: HOST_DEVICE, tap: TAP;
    (without_ipam_it_is_layer_2)
}

each_interface_plugin! {
    mod required:
    ptp: PTP, vlan: VLAN, dummy: DUMMY;
    (it_needs_an_address_plugin)
}

each_interface_plugin! {
    mod place:
    ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (the_link_is_made_in_the_container)
}

each_interface_plugin! { mod whole: macvlan: MACVLAN; (the_link_is_made_with_name_address_and_mtu) }
