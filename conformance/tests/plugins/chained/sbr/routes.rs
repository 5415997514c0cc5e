//! Routes of the main table: those that move, those that stay, and those that DEL brings back.

use super::*;

/// An interface's default route of prevResult need not be in the main table, and goes there only if it was.
#[test]
fn dels_in_any_order_bring_the_main_table_back() {
    for order in [[0, 1], [1, 0]] {
        let (node, pod) = node_with_pod();
        let mut networks = [bridged(&node, &pod), second(&node, &pod)];
        let routes = networks[1].result["routes"].as_array_mut().unwrap();
        routes.extend([json!({"dst": "0.0.0.0/0", "gw": "10.8.0.1"}), json!({"dst": "::/0", "gw": "fd08::1"})]);
        // Both interfaces are in one subnet more, with a route each.
        ip(&pod, "route add 203.0.113.0/24 dev eth0");
        ip(&pod, "route append 203.0.113.0/24 dev net1");
        let inside = pod.namespace().snapshot();
        let configs = [full(), config(json!({"name": "second"}))];
        let attachments = [pod.attachment_as("eth0"), pod.attachment_as("net1")];
        let mut attached: Vec<_> = (0..2)
            .map(|at| Attached::add(&node, &behind(&networks[at], configs[at].clone()), attachments[at].clone()))
            .map(Some)
            .collect();
        for at in order {
            attached[at].take().unwrap().del().ok();
        }
        assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "", "{order:?}");
    }
}

/// The kernel's replacement of a route looks at destination and metric only.
#[test]
fn source_hints_leave_another_interfaces_route_to_the_subnet_alone() {
    let (node, pod) = node_with_pod();
    bridged(&node, &pod);
    let before = second(&node, &pod);
    ip(&pod, "route del 10.8.0.0/24 dev net1");
    ip(&pod, "route add 10.8.0.0/24 dev eth0");
    ip(&pod, "route append 10.8.0.0/24 dev net1");
    let own = config(json!({"name": "second", "addSourceHints": true}));
    Attached::add(&node, &behind(&before, own), pod.attachment_as("net1")).check().ok();
    let shown = ip(&pod, "route show 10.8.0.0/24");
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    assert_eq!(lines, ["10.8.0.0/24 dev eth0 scope link", "10.8.0.0/24 dev net1 scope link src 10.8.0.2"]);
}

/// An address without an index, or with one that the result does not have, as the reference takes it.
#[test]
fn an_address_without_an_interface_is_the_attachments() {
    let (node, pod) = node_with_pod();
    let mut before = bridged(&node, &pod);
    let ips = before.result["ips"].as_array_mut().unwrap();
    ips[0].as_object_mut().unwrap().remove("interface").unwrap();
    ips[1]["interface"] = json!(99);
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let made = rules(pod.namespace());
    assert!(made.len() == 2 && made.iter().any(|rule| rule.contains("10.7.0.2")), "{made:?}");
    assert!(ip(&pod, "route show table 100").contains("default via 10.7.0.1 dev eth0"));
    attached.check_and_del();
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
}

#[test]
fn routes_of_a_family_without_an_address_stay_in_the_main_table() {
    for (with_ipv6, source) in [(true, "fd07::2"), (false, "10.7.0.2")] {
        let (node, pod) = node_with_pod();
        let mut before = bridged(&node, &pod);
        let ips = before.result["ips"].as_array_mut().unwrap();
        ips.retain(|ip| ip["address"].as_str().unwrap().contains(':') == with_ipv6);
        let of_other = |namespace: &Namespace| {
            let mut routes = namespace.routes();
            routes.retain(|route| route.table == 254 && route.to.contains(':') != with_ipv6);
            routes
        };
        let (inside, routes) = (pod.namespace().snapshot(), of_other(pod.namespace()));
        let attached = Attached::add(&node, &behind(&before, full()), &pod);
        assert_eq!(of_other(pod.namespace()), routes);
        let made = rules(pod.namespace());
        assert!(made.len() == 1 && made[0].contains(source), "{made:?}");
        attached.check_and_del();
        assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
    }
}

/// The default routes move even where prevResult does not have them.
#[test]
fn del_brings_back_the_default_routes_that_key_gateways_replaced() {
    for (gateways, has_routes) in [
        (json!(["10.7.0.99", "fd07::99"]), true),
        (json!(["10.7.0.99", "fd07::99"]), false),
        (json!(["10.7.0.1", "fd07::1"]), true),
        (json!([]), false),
    ] {
        let (node, pod) = node_with_pod();
        let mut before = bridged(&node, &pod);
        ip(&pod, "route add default via 10.7.0.1 metric 7 mtu 1300 proto static");
        ip(&pod, "-6 route add default via fd07::1 metric 1 proto static");
        if !has_routes {
            before.result["routes"] = json!([]);
        }
        let [one, two] = ["10.7.0.1", "fd07::1"].map(|own| {
            gateways
                .as_array()
                .unwrap()
                .iter()
                .find_map(|key| key.as_str().filter(|key| key.contains(':') == own.contains(':')))
                .unwrap_or(own)
        });
        let inside = pod.namespace().snapshot();
        let attached = Attached::add(&node, &behind(&before, config(json!({"gateways": gateways}))), &pod);
        for (from, to, gateway) in [("10.7.0.2", "198.51.100.1", one), ("fd07::2", "2001:db8::1", two)] {
            let route = ip(&pod, &format!("route get {to} from {from}"));
            assert!(route.contains(&format!("via {gateway} ")), "{gateways} {has_routes}: {route}");
        }
        let once = pod.namespace().snapshot();
        let attached_again = Attached::add(&node, &behind(&before, config(json!({"gateways": gateways}))), &pod);
        let changes = testns::changes(&once, &pod.namespace().snapshot());
        assert_eq!(changes, "", "{gateways} {has_routes}");
        attached_again.check().ok();
        attached.del().ok();
        let left = testns::changes(&inside, &pod.namespace().snapshot());
        assert_eq!(left, "", "{gateways} {has_routes}");
    }
}

/// Runtimes such as CRI-O call CHECK of the whole list right after ADD: the interface plugin's routes are in the tables of sbr or
/// of a VRF.
#[test]
fn check_of_the_interface_plugin_passes_behind_sbr_and_vrf() {
    let node = node();
    node.host().add_veth("up0", &node.remote("switch"), "port");
    for (plugin, feature) in
        [("macvlan", None), ("ipvlan", Some(testns::Feature::Ipvlan)), ("bridge", None), ("ptp", None)]
    {
        if !feature.is_none_or(testns::Feature::or_skip) {
            continue;
        }
        for behind_it in [full(), json!({"cniVersion": "1.0.0", "name": "net", "type": "vrf", "vrfname": "blue"})] {
            // A VRF does not take ptp's route of the link to the gateway along, nor does the reference's: ADD fails.
            let is_vrf = behind_it["type"] == "vrf";
            if is_vrf && (plugin == "ptp" || !testns::Feature::Vrf.or_skip()) {
                continue;
            }
            let pod = node.container();
            let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]],
                              "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24"}, {"dst": "2001:db8::/32"}]});
            let own = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "master": "up0", "bridge": "br0", "ipam": ipam});
            let made = Attached::add(&node, &own, &pod);
            let moved = Attached::add(&node, &behind(&made, behind_it.clone()), &pod);
            moved.check().ok();
            made.call(Verb::Check).prev_result(&moved.result).run(&node).ok();
            if behind_it["type"] == "sbr" {
                ip(&pod, "route flush table 100");
                made.call(Verb::Check).prev_result(&moved.result).run(&node).fails_with(107);
            }
            made.del().ok();
        }
    }
}

/// The kernel makes one IPv6 route of two interfaces' default routes, with a next hop on each.
#[test]
fn of_a_route_that_two_interfaces_share_only_the_own_next_hop_moves() {
    let (node, pod) = node_with_pod();
    bridged(&node, &pod);
    let before = second(&node, &pod);
    ip(&pod, "-6 route append default via fd08::1 dev net1 metric 1024");
    let shown = ip(&pod, "-6 route show default");
    assert!(
        shown.contains("nexthop via fd07::1 dev eth0") && shown.contains("nexthop via fd08::1 dev net1"),
        "{shown}"
    );
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, config(json!({"name": "second"}))), pod.attachment_as("net1"));
    attached.check().ok();
    let shown = ip(&pod, "-6 route show default");
    assert!(shown.contains("via fd07::1 dev eth0") && !shown.contains("net1"), "{shown}");
    let shown = ip(&pod, "-6 route show table 101");
    assert!(shown.contains("default via fd08::1 dev net1") && !shown.contains("eth0"), "{shown}");
    // An ADD that fails leaves both next hops.
    attached.del().ok();
    ip(&pod, "-6 route append default via fd08::1 dev net1 metric 1024");
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
    let add = Call::new(Verb::Add, behind(&before, config(json!({"name": "second"}))), pod.attachment_as("net1"));
    let changes = add.trace(&node).messages.len();
    node.call(Verb::Del, config(json!({"name": "second"})), pod.attachment_as("net1")).ok();
    ip(&pod, "-6 route append default via fd08::1 dev net1 metric 1024");
    add.refuse(&node, changes).reply.fails();
    assert_eq!(testns::changes(&inside, &pod.namespace().snapshot()), "");
}
