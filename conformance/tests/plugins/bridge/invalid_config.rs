//! DEL, GC and STATUS with a config that ADD refuses: an operator's mistake must not keep a pod from ending.

use super::stays;
use crate::prelude::*;

fn good() -> Value {
    bridge(json!({"cniVersion": "1.0.0", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()}))
}

fn with_ipam(own: Value) -> Value {
    json!({"ipam": with(dual(), own)})
}

/// Keys that removal does not use, with values that ADD of both implementations refuses, always or in most cases. The
/// reference's DEL accepts these, too.
fn accepted_by_both() -> Vec<Value> {
    vec![
        json!({"runtimeConfig": {"mac": "x"}}),
        json!({"args": {"cni": {"mac": "x"}}}),
        json!({"mtu": -1}),
        json!({"ipMasqBackend": "x"}),
        json!({"hairpinMode": true, "promiscMode": true}),
        json!({"bridge": "a/b"}),
        json!({"bridge": "longer-than-a-name-may-be"}),
        with_ipam(json!({"routes": [{"dst": "0.0.0.0/0", "priority": -1}]})),
        json!({"prevResult": {"cniVersion": "9.9.9"}}),
        json!({"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "x"}]}}),
        json!({"prevResult": {"cniVersion": "0.2.0", "ip4": {"ip": "10.7.0.2/24"}}}),
    ]
}

/// Keys that removal does not use, with values that the reference's DEL refuses as its ADD does.
fn refused_by_the_reference() -> Vec<Value> {
    vec![
        json!({"type": 5}),
        json!({"mtu": "x"}),
        json!({"mtu": {}}),
        json!({"bridge": 5}),
        json!({"vlan": 5000}),
        json!({"vlanTrunk": [{"minID": 5}]}),
        json!({"runtimeConfig": 5}),
        json!({"runtimeConfig": {"mac": 5}}),
        json!({"args": 5}),
        json!({"dns": 5}),
        json!({"capabilities": 5}),
        json!({"prevResult": 5}),
        with_ipam(json!({"routes": [{"dst": "x"}]})),
        with_ipam(json!({"ranges": [[{"subnet": "10.7.0.0/33"}]]})),
        with_ipam(json!({"ranges": [[{"subnet": "10.7.0.0/31"}]]})),
        with_ipam(json!({"ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "10.7.0.0/16"}]]})),
        with_ipam(json!({"ranges": 5})),
        with_ipam(json!({"ranges": null})),
        with_ipam(json!({"dataDir": 5})),
        json!({"runtimeConfig": {"ipRanges": 5}}),
        json!({"runtimeConfig": {"ips": ["x"]}}),
        json!({"args": {"cni": {"ips": ["x"]}}}),
    ]
}

/// SPEC 2, DEL: plugins should generally complete a DEL action without error.
#[test]
fn del_is_not_refused_for_keys_that_it_does_not_use() {
    each(|who, node| {
        let both = accepted_by_both().into_iter().map(|own| (own, true));
        let ours = refused_by_the_reference().into_iter().map(|own| (own, who.is_ours()));
        for (own, accepted) in both.chain(ours) {
            let attached = Attached::add(node, &good(), &node.container());
            let broken = with(good(), own.clone());
            let del = || Call::new(Verb::Del, &broken, &attached.attachment).plugin("bridge").run(node);
            if accepted {
                let reply = del();
                assert_eq!(reply.output.code(), 0, "{own}: {reply}");
                assert!(node.host().find_link(attached.host_veth()).is_none(), "{own}");
            } else {
                assert_ne!(del().output.code(), 0, "{own}");
                attached.del().ok();
            }
            if who.is_ours() {
                node.assert_as_before_except(stays);
                del().ok();
            }
        }
    });
}

#[test]
fn what_del_does_not_read_is_logged() {
    let node = node();
    let broken = with(good(), json!({"bridge": "a/b", "ipam": with(dual(), json!({"dataDir": 5}))}));
    let reply = node.call(Verb::Del, broken, &node.container());
    for sentence in [r#"key bridge = "a/b": interface name contains / or :"#, "key ipam.dataDir = 5: expected a string"]
    {
        assert!(reply.output.stderr.contains(sentence), "{reply}");
    }
    reply.ok();
}

/// The address was given but `ipam` no longer names a plugin: all else is removed, and the error reports what stays.
#[test]
fn an_address_that_cannot_be_released_is_an_error() {
    let node = node();
    for ipam in [json!(5), json!({"type": 5}), json!({"type": "../host-local"})] {
        let attached = Attached::add(&node, &good(), &node.container());
        let broken = with(good(), json!({"ipam": ipam}));
        let failure =
            Call::new(Verb::Del, &broken, &attached.attachment).prev_result(&attached.result).run(&node).fails_with(7);
        assert!(failure.msg.contains("key ipam"), "{failure:?}");
        assert!(failure.details.contains("stay taken"), "{failure:?}");
        assert!(node.host().find_link(attached.host_veth()).is_none());
        // The DEL after a refused ADD has no result, and nothing to release.
        node.call(Verb::Add, &broken, &node.container()).fails_with(7);
        node.call(Verb::Del, &broken, &node.container()).ok();
        attached.del().ok();
        node.assert_as_before_except(stays);
    }
}

/// SPEC 2, GC: unused keys do not refuse it either.
#[test]
fn gc_is_not_refused_for_keys_that_it_does_not_use() {
    let node = node();
    let good = with(good(), json!({"ipam": unshared().dual()}));
    for own in [accepted_by_both(), refused_by_the_reference()].concat() {
        let attached = Attached::add(&node, &good, &node.container());
        let gc = with(with(good.clone(), own.clone()), json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
        let reply = Call::new(Verb::Gc, &gc, Attachment::none()).plugin("bridge").run(&node);
        assert_eq!(reply.output.code(), 0, "{own}: {reply}");
        assert!(node.host().find_link(attached.host_veth()).is_none(), "{own}");
        node.assert_as_before_except(stays);
    }
}

/// A list of valid attachments that cannot be read is not taken for an empty list.
#[test]
fn gc_is_refused_for_the_key_that_it_uses() {
    let node = node();
    let attached = Attached::add(&node, &good(), &node.container());
    for list in [json!(5), json!([5]), json!([{"containerID": "c1"}]), json!([{"containerID": "c1", "ifname": 5}])] {
        let gc = with(good(), json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": list}));
        node.call(Verb::Gc, gc, Attachment::none()).fails_with(7);
        attached.check().ok();
    }
}

/// SPEC 2, STATUS: it fails if ADD cannot be served. With a config that ADD refuses, it returns the same error. It does
/// not check what belongs to one attachment.
#[test]
fn status_gives_the_error_that_add_would() {
    let node = node();
    for own in [json!({"mtu": -1}), json!({"bridge": "a/b"}), json!({"ipam": 5}), with_ipam(json!({"ranges": 5}))] {
        let config = with(with(good(), own), json!({"cniVersion": "1.1.0"}));
        let add = node.call(Verb::Add, &config, &node.container()).fails();
        let status = node.call(Verb::Status, &config, Attachment::none()).fails();
        assert_eq!((status.code, status.msg), (add.code, add.msg));
    }
    let config = with(good(), json!({"cniVersion": "1.1.0", "prevResult": 5}));
    node.call(Verb::Status, config, Attachment::none()).ok();
}
