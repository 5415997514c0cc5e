//! The `type` of a network changes between ADD and DEL: the container's link is one that DEL's plugin does not make.

use super::{ALL, HOST_DEVICE, InterfacePlugin, LinkPlace, each_interface_plugin, held};
use crate::prelude::*;

fn by_other_types(kind: InterfacePlugin) -> impl Iterator<Item = Value> {
    ALL.into_iter().filter(move |other| other.name != kind.name).map(|other| other.config(0, json!({})))
}

/// DEL with another type, where the container is as `remains` says and its link has been renamed or not, with the result of ADD and
/// without; then nothing is left. The link has the attachment's mark and Ethernet address under any name.
fn ends(kind: InterfacePlugin, remains: Remains, is_renamed: bool) {
    for (config, has_result) in by_other_types(kind).flat_map(|config| [(config.clone(), true), (config, false)]) {
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
        assert_eq!(held().len(), 2);
        if is_renamed {
            pod.namespace().set_down("eth0");
            pod.namespace().rename("eth0", "evil");
            pod.namespace().set_up("evil");
        }
        let call = Call::new(Verb::Del, &config, pod.leave(remains));
        let call = if has_result { call.prev_result(&attached.result) } else { call };
        call.run(&node).ok();
        assert_eq!(held(), Vec::<String>::new(), "{config}");
        if remains != Remains::Gone {
            let left = ["eth0", "evil"].map(|name| pod.namespace().find_link(name));
            assert!(left.iter().all(Option::is_none), "{has_result} {config}");
        }
        node.assert_as_before_except(|line| kind.stays(line) || line.contains("/helper."));
    }
}

fn del_by_another_type_removes_the_link(kind: InterfacePlugin) {
    ends(kind, Remains::Alive, false);
    ends(kind, Remains::Alive, true);
}

/// A link that is in the container alone cannot be found without the namespace.
fn del_by_another_type_removes_a_pair_and_its_rules_without_the_namespace(kind: InterfacePlugin) {
    if kind.place == LinkPlace::Pair {
        ends(kind, Remains::EmptyPath, false);
        ends(kind, Remains::Gone, false);
    }
}

/// Nothing but the marks tells of the attachment.
fn gc_by_another_type_removes_a_pair_and_its_rules(kind: InterfacePlugin) {
    if kind.place != LinkPlace::Pair {
        return;
    }
    for mut config in by_other_types(kind) {
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let ipam = unshared().dual();
        Attached::add(&node, &kind.config(0, json!({"ipMasq": true, "ipam": ipam})), &pod);
        drop(pod.leave(Remains::Gone));
        config["ipam"] = ipam;
        config["cni.dev/valid-attachments"] = json!([]);
        let is_collected = |_: &testns::Namespace| {
            node.call(Verb::Gc, &config, testns::Attachment::none()).ok();
            held().is_empty()
        };
        node.host().wait_for("the address to be free", is_collected);
        node.assert_as_before_except(|line| kind.stays(line) || line.contains("/helper."));
    }
}

/// The name belongs to another attachment's link, of a kind that DEL's plugin does not make.
fn del_by_another_type_leaves_the_link_of_another_attachment(kind: InterfacePlugin) {
    for config in by_other_types(kind) {
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
        let refused = testns::Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
        node.call(Verb::Del, &config, refused).ok();
        assert!(pod.namespace().find_link("eth0").is_some(), "{config}");
        assert_eq!(held().len(), 2);
        attached.check().ok();
        attached.del().ok();
    }
}

/// A device of the node goes home: other plugins keep its address until host-device has brought it there, as they say.
#[test]
fn del_by_another_type_keeps_device_and_address_of_host_device() {
    for config in by_other_types(HOST_DEVICE) {
        let (node, _outside) = HOST_DEVICE.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &HOST_DEVICE.config(0, json!({})), &pod);
        for call in
            [Call::new(Verb::Del, &config, &pod), Call::new(Verb::Del, &config, &pod).prev_result(&attached.result)]
        {
            let error = call.run(&node).fails_with(100);
            assert!(error.msg.contains("set the network's type to host-device"), "{error:?}");
            assert!(error.details.contains("stay held"), "{error:?}");
            assert_eq!(held().len(), 2, "{config}");
            assert!(pod.namespace().find_link("eth0").is_some());
        }
        attached.del().ok();
        assert_eq!(held(), Vec::<String>::new());
        node.assert_as_before_except(|line| HOST_DEVICE.stays(line));
    }
}

each_interface_plugin! {
    bridge: BRIDGE, ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (
        del_by_another_type_removes_the_link
        del_by_another_type_removes_a_pair_and_its_rules_without_the_namespace
        gc_by_another_type_removes_a_pair_and_its_rules
        del_by_another_type_leaves_the_link_of_another_attachment
    )
}
