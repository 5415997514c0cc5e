//! The loopback plugin.

use crate::prelude::*;
use expect_test::expect;

fn config(version: &str) -> String {
    format!(r#"{{"cniVersion": "{version}", "name": "lo-net", "type": "loopback"}}"#)
}

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
