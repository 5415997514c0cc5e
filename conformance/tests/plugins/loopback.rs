//! The loopback plugin.

use crate::subjects::{Who, each, node_with_pod};
use expect_test::expect;
use nix::errno::Errno;
use serde_json::{Value, json};
use testns::{Call, Container, Verb};

fn config(version: &str) -> String {
    format!(r#"{{"cniVersion": "{version}", "name": "lo-net", "type": "loopback"}}"#)
}

const LATEST: &str = r#"{"cniVersion": "1.1.0", "name": "lo-net", "type": "loopback"}"#;

fn lo_is_up(pod: &Container) -> bool {
    pod.namespace().link("lo").up
}

/// Plugin loopback: ADD sets lo up, DEL sets it down, and CHECK reports which.
#[test]
fn add_sets_lo_up_and_del_sets_it_down() {
    each(|_, node| {
        let (pod, config) = (node.container(), config("1.0.0"));
        assert!(!lo_is_up(&pod));
        node.call(Verb::Check, &config, &pod).fails();
        node.call(Verb::Add, &config, &pod).ok();
        assert!(lo_is_up(&pod));
        pod.namespace().ping([127, 0, 0, 1]);
        node.call(Verb::Add, &config, &pod).ok();
        node.call(Verb::Check, &config, &pod).ok();
        node.call(Verb::Del, &config, &pod).ok();
        assert!(!lo_is_up(&pod));
        node.call(Verb::Del, &config, &pod).ok();
        node.assert_as_before();
    });
}

/// DEL, or the rollback, of one attachment leaves `lo` to the others of the namespace. In a list, DEL goes backward: with
/// loopback first, no other interface is up when its turn comes.
#[test]
fn lo_stays_up_while_another_interface_is_up() {
    each(|who, node| {
        let (pod, config) = (node.container(), config("1.0.0"));
        node.call(Verb::Add, &config, &pod).ok();
        node.host().add_veth("host0", pod.namespace(), "eth0");
        node.call(Verb::Del, &config, pod.attachment_as("eth1")).ok();
        assert_eq!(lo_is_up(&pod), who.is_ours());
        pod.namespace().set_down("eth0");
        node.call(Verb::Del, &config, &pod).ok();
        assert!(!lo_is_up(&pod));
    });
}

/// SPEC 5: results have the config's version. The reference prints the form of 1.0.0 under every older version.
#[test]
fn the_result_has_the_form_of_the_version() {
    each(|who, node| {
        for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let pod = node.container();
            let result = node.call(Verb::Add, config(version), &pod).ok();
            let sandbox = pod.attachment().netns;
            assert_eq!(result, expected(who, version, &sandbox), "{version}");
        }
    });
}

fn expected(who: Who, version: &str, sandbox: &str) -> Value {
    let interfaces = json!([{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": sandbox}]);
    let of_family = |family: &str, address: &str| json!({"version": family, "interface": 0, "address": address});
    let newest = [json!({"interface": 0, "address": "127.0.0.1/8"}), json!({"interface": 0, "address": "::1/128"})];
    match (who, version) {
        (Who::Ours, "0.1.0" | "0.2.0") => json!({
            "cniVersion": version, "ip4": {"ip": "127.0.0.1/8"}, "ip6": {"ip": "::1/128"}, "dns": {},
        }),
        (Who::Ours, "0.3.0" | "0.3.1" | "0.4.0") => json!({
            "cniVersion": version, "interfaces": interfaces, "dns": {},
            "ips": [of_family("4", "127.0.0.1/8"), of_family("6", "::1/128")],
        }),
        (Who::Ours | Who::Reference, _) => json!({"cniVersion": version, "interfaces": interfaces, "ips": newest}),
    }
}

/// Runtimes call it with ifname `lo` or `eth0`: the interface is lo in both cases.
#[test]
fn cni_ifname_is_ignored() {
    each(|_, node| {
        let pod = node.container();
        let result = node.call(Verb::Add, config("1.0.0"), pod.attachment_as("net7")).ok();
        assert_eq!(result["interfaces"][0]["name"], "lo");
    });
}

/// A foreign address on lo is an error, and lo stays down.
#[test]
fn a_foreign_address_on_lo_is_refused() {
    each(|who, node| {
        let pod = node.container();
        pod.namespace().add_address("lo", "10.9.9.9/32");
        let before = pod.namespace().snapshot();
        let failure = node.call(Verb::Add, config("1.0.0"), &pod).fails();
        if who.is_ours() {
            assert_eq!(testns::changes(&before, &pod.namespace().snapshot()), "");
            expect![[r#"
                110 cannot use link lo in /run/netns/pod1: it has the address 10.9.9.9/32, which is no loopback address
            "#]]
            .assert_eq(&format!("{} {}\n", failure.code, failure.msg));
        }
    });
}

/// SPEC 2, ADD: after a failure lo is as it was. A failed write may be the reply's own, and then no error can be
/// reported.
#[test]
fn a_failing_step_leaves_lo_as_it_was() {
    let mut failed = 0;
    for n in 1.. {
        let (node, pod) = node_with_pod();
        // After the first time that lo is up, the kernel keeps 127.0.0.1 on it, up or down.
        pod.namespace().set_up("lo");
        pod.namespace().set_down("lo");
        let before = pod.namespace().snapshot();
        let traced = Call::new(Verb::Add, LATEST, &pod).fail_step(&node, n, |_| Errno::ENOBUFS);
        let Some(step) = traced.hit else {
            traced.reply.ok();
            break;
        };
        if traced.reply.output.code() != 0 && step.name() != "write" {
            traced.reply.fails();
            assert_eq!(testns::changes(&before, &pod.namespace().snapshot()), "", "step {n}: {step}");
            failed += 1;
        }
    }
    // At least the requests for lo and its addresses, the change, and their answers.
    assert!(failed >= 8, "{failed}");
}
