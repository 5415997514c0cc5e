//! Failures whose cause is in the input of the runtime: config, environment.

use super::Trouble;
use crate::prelude::*;
use expect_test::expect;

/// Each cause, and the whole error object.
#[test]
fn each_cause_in_the_input_is_named() {
    let trouble = Trouble::new();
    let add = |own: Value| trouble.add(&bridge(own));
    let gone = Attachment { netns: "/run/netns/gone".into(), ..trouble.pod.attachment() };
    let host_local = |own: Value| json!({"ipam": with(json!({"type": "host-local"}), own)});
    let overlapping = json!([[{"subnet": "10.7.0.0/24"}], [{"subnet": "10.7.0.128/25"}]]);
    for (call, expected) in [
        (
            Call::new(Verb::Add, bridge(json!({})), &gone),
            expect![[r#"
                8 cannot open network namespace /run/netns/gone: no such file or directory
                The container has ended, or CNI_NETNS is wrong: it is the path of a network namespace, such as /run/netns/NAME.
            "#]],
        ),
        (
            add(json!({})).variable("CNI_NETNS", "/proc/self/ns/net"),
            expect![[r#"
                8 plugin's netns and netns from CNI_NETNS should not be the same
                CNI_NETNS is /proc/self/ns/net. Set CNI_NETNS_OVERRIDE=1 if this is intended.
            "#]],
        ),
        // A caller that finds the executable by itself may leave out `type`: the error names the plugin all the same.
        (
            Call::new(Verb::Add, json!({"cniVersion": "1.0.0", "name": "n"}), &trouble.pod).plugin("tuning"),
            expect![[r#"
                7 cannot use network config: plugin tuning needs key prevResult
                It changes what others have made: in the list of plugins it comes after an interface plugin.
            "#]],
        ),
        (
            add(json!({"cniVersion": "2.0.0"})),
            expect![[r#"
                1 incompatible CNI versions
                config is "2.0.0", plugin supports ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]. Set cniVersion to one of these.
            "#]],
        ),
        (
            add(json!({"ipam": {"type": "host-locale", "subnet": "10.7.0.0/24"}})),
            expect![[r#"
                108 failed to find plugin "host-locale" in path [/run/testns/bin]
                Did you mean host-local? Install host-locale into one of these folders, or correct the type.
            "#]],
        ),
        (
            add(host_local(json!({"subnet": "10.7.0.0/24", "gateway": "10.7.0.256"}))),
            expect![[r#"
                7 cannot use network config: key ipam.gateway = "10.7.0.256": "10.7.0.256" is no IP address (invalid IP address syntax)
                Reported by plugin host-local.
            "#]],
        ),
        // Unknown keys are ignored, as the reference does; the error about the missing one names its misspelt form.
        (
            add(host_local(json!({"subnett": "10.7.0.0/24"}))),
            expect![[r#"
                7 no IP ranges specified
                Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges. Key ipam.subnett is unknown and was ignored: did you mean subnet? Reported by plugin host-local.
            "#]],
        ),
        (
            add(host_local(json!({"ranges": overlapping}))),
            expect![[r#"
                7 range set 0 overlaps with 1
                Key ipam.ranges[0] is 10.7.0.1-10.7.0.254, key ipam.ranges[1] is 10.7.0.129-10.7.0.254. Reported by plugin host-local.
            "#]],
        ),
    ] {
        trouble.calling(&call, &expected);
    }
}

/// The reference takes some values that mean nothing for an absent key; here each is an error with key and value.
#[test]
fn values_that_mean_nothing_are_refused() {
    each(|who, node| {
        let chained = |kind: &str, own| with(json!({"cniVersion": "1.0.0", "name": "net", "type": kind}), own);
        let port = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "x"});
        for (config, key) in [
            (chained("tuning", json!({"txQLen": -4})), "txQLen"),
            (chained("tuning", json!({"sysctl": {"net.core.somaxconn": null}})), "sysctl"),
            (chained("portmap", json!({"runtimeConfig": {"portMappings": [port]}})), "hostIP"),
            (chained("sbr", json!({"table": -1})), "table"),
            (chained("sbr", json!({"table": 0})), "table"),
            (chained("sbr", json!({"gateways": ["x"]})), "gateways"),
            (chained("sbr", json!({"gateways": ["10.7.0.1", "10.7.0.254"]})), "gateways"),
        ] {
            let pod = node.container();
            let before = node.call(Verb::Add, bridge(json!({})), &pod).ok();
            let reply = Call::new(Verb::Add, &config, &pod).prev_result(&before).run(node);
            match who.is_ours() {
                true => assert!(reply.fails_with(7).msg.contains(key), "{reply}"),
                false => drop(reply.ok()),
            }
        }
        let reply = node.call(Verb::Add, bridge(json!({"mtu": -1})), &node.container());
        match who.is_ours() {
            true => assert!(reply.fails_with(7).msg.contains("mtu"), "{reply}"),
            false => drop(reply.ok()),
        }
    });
}

/// The reference leaves a gateway out that no address of the interface reaches, and its CHECK does nothing.
#[test]
fn sbr_reports_a_gateway_that_is_out_of_reach_and_a_missing_result() {
    each(|who, node| {
        let pod = node.container();
        let before = node.call(Verb::Add, bridge(json!({})), &pod).ok();
        let sbr = json!({"cniVersion": "1.0.0", "name": "net", "type": "sbr", "gateways": ["192.0.2.1"]});
        let add = Call::new(Verb::Add, &sbr, &pod).prev_result(&before).run(node);
        let check = Call::new(Verb::Check, &sbr, &pod).run(node);
        match who.is_ours() {
            true => {
                assert!(add.fails_with(100).msg.contains("unreachable"), "{add}");
                assert!(check.fails_with(7).msg.contains("prevResult"), "{check}");
            }
            false => {
                add.ok();
                check.ok();
            }
        }
    });
}

/// Conditions in the words of nft choose the backend that understands them.
#[test]
fn portmap_takes_conditions_of_nft_without_a_backend() {
    each(|who, node| {
        let pod = node.container();
        let before = node.call(Verb::Add, bridge(json!({})), &pod).ok();
        let port = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
        let portmap = json!({"cniVersion": "1.0.0", "name": "net", "type": "portmap",
            "conditionsV4": ["ip", "daddr", "192.0.2.1"], "runtimeConfig": {"portMappings": [port]}});
        let reply = Call::new(Verb::Add, &portmap, &pod).prev_result(&before).run(node);
        match who.is_ours() {
            true => drop(reply.ok()),
            false => {
                let failure = reply.fails_with(999);
                assert!(failure.msg.contains("iptables backend was requested"), "{reply}");
            }
        }
    });
}

/// CHECK and STATUS are of a config, which they refuse as ADD does where the plugin could not work by it.
#[test]
fn status_refuses_a_config_that_add_refuses() {
    each(|who, node| {
        let own = json!({"cniVersion": "1.1.0", "name": "net"});
        for (kind, keys) in
            [("host-local", json!({"ipam": {"type": "host-local"}})), ("static", json!({})), ("vrf", json!({}))]
        {
            let config = with(with(own.clone(), json!({"type": kind})), keys);
            let reply = node.call(Verb::Status, config, Attachment::none());
            match who.is_ours() {
                true => drop(reply.fails_with(7)),
                false => drop(reply.ok()),
            }
        }
    });
}

/// `null` is an object without keys.
#[test]
fn a_config_that_is_null_has_no_name() {
    each(|_, node| {
        let failure = Call::new(Verb::Add, "null", &node.container()).plugin("bridge").run(node).fails_with(7);
        assert_eq!(failure.msg, "missing network name");
    });
}
