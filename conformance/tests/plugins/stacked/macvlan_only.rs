//! Tests of macvlan alone.

use super::{MACVLAN, config, node, status};
use crate::bridge::stays;
use crate::prelude::*;
use conformance::shell::ip;

#[test]
fn macvlan_in_mode_passthru_is_alone_and_has_its_masters_address() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, _outside) = node();
    let (one, other) = (node.container_named("c1"), node.container());
    let passthru = config(MACVLAN, json!({"mode": "passthru", "mac": "0a:00:00:00:00:07"}));
    let attached = Attached::add(&node, &passthru, &one);
    assert_eq!(one.namespace().link("eth0").mac, node.host().link("uplink").mac);
    attached.check().ok();
    for config in [&passthru, &config(MACVLAN, json!({}))] {
        let error = node.call(Verb::Add, config, &other).fails_with(103);
        assert!(
            error.msg.contains("in mode passthru is the only one on its master")
                || error.msg.contains("a macvlan in this mode"),
            "{error:?}"
        );
        assert!(error.msg.ends_with(&format!("eth0 in {} (cni:net/c1/eth0)", one.attachment().netns)), "{error:?}");
    }
    attached.del().ok();
    node.assert_as_before_except(stays);
}

/// ADD would fail in each mode where one is in mode passthru, and in that mode where there is any.
#[test]
fn macvlan_status_names_the_one_that_has_the_master_to_itself() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, _outside) = node();
    let pod = node.container_named("c1");
    let (passthru, bridge) = (config(MACVLAN, json!({"mode": "passthru"})), config(MACVLAN, json!({})));
    for (there, refused, served) in
        [(&passthru, vec![&passthru, &bridge], None), (&bridge, vec![&passthru], Some(&bridge))]
    {
        let attached = Attached::add(&node, there, &pod);
        for config in refused {
            let error = status(&node, config.clone()).fails_with(50);
            let where_it_is = format!("eth0 in {} (cni:net/c1/eth0)", pod.attachment().netns);
            assert!(error.msg.starts_with("network net is not available: cannot create a macvlan"), "{error:?}");
            assert!(error.msg.ends_with(&where_it_is), "{error:?}");
        }
        served.into_iter().for_each(|config| drop(status(&node, config.clone()).ok()));
        attached.del().ok();
        [&passthru, &bridge].into_iter().for_each(|config| drop(status(&node, config.clone()).ok()));
    }
    // Promiscuous for another reason.
    ip(node.host(), "link set uplink promisc on");
    status(&node, bridge).ok();
}

#[test]
fn macvlan_on_a_bridges_port_says_what_is_in_the_way() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, _outside) = node();
    node.host().add_link("br0", "bridge");
    node.host().set_master("uplink", "br0");
    let error = node.call(Verb::Add, config(MACVLAN, json!({})), &node.container()).fails();
    assert!(error.details.contains("uplink is a bridge's or a bond's port"), "{error:?}");
}

#[test]
fn macvlan_queue_for_broadcasts_is_set_and_compared() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, _outside) = node();
    let pod = node.container();
    let attached = Attached::add(&node, &config(MACVLAN, json!({"bcqueuelen": 5000})), &pod);
    attached.check().ok();
    let other = with(attached.config.clone(), json!({"bcqueuelen": 6000}));
    let error = Call::new(Verb::Check, other, &pod).prev_result(&attached.result).run(&node).fails_with(107);
    assert!(error.msg.ends_with("it has mode bridge bcqueuelen 5000, not mode bridge bcqueuelen 6000"), "{error:?}");
}
