//! DEL of a container that has ended, by a path or a process's number that another container now has.

use super::{ChainedPlugin, bandwidth, behind, bridged, chained_plugins};
use crate::namespace_paths::by_process;
use crate::prelude::*;

/// A chained behind bridge in the container that has ended, and in the one that lives.
struct Two<'a> {
    chained: ChainedPlugin,
    ended: Attached<'a>,
    living: Attached<'a>,
    pod: &'a Container,
}

impl<'a> Two<'a> {
    fn add(chained: ChainedPlugin, node: &'a Node, ended: &Container, pod: &'a Container, has_marks: bool) -> Self {
        let [before, after] = [ended, pod].map(|pod| bridged(node, pod));
        let ended = Attached::add(node, &behind(&before, (chained.config)()), ended);
        let living = Attached::add(node, &behind(&after, (chained.config)()), pod);
        if !has_marks {
            node.host().set_alias(after.host_veth(), "");
        }
        Self { chained, ended, living, pod }
    }

    /// Deletes the one that has ended, by a path of the other, which must not change.
    fn del_by(&self, node: &Node, path: &str, result: Option<&Value>) {
        let inside = self.pod.namespace().snapshot();
        let attachment = Attachment { netns: path.to_owned(), ..self.ended.attachment.clone() };
        let call = Call::new(Verb::Del, (self.chained.config)(), &attachment);
        let call = if let Some(result) = result { call.prev_result(result) } else { call };
        call.run(node).ok();
        let changes = testns::changes(&inside, &self.pod.namespace().snapshot());
        assert!(changes.is_empty(), "{}: {changes}", self.chained.name);
        self.living.check().ok();
    }

    /// The result of the one that has ended, with the other's Ethernet address, as of a config that sets one.
    fn same_mac(&self) -> Value {
        let mut result = self.ended.result.clone();
        result["interfaces"][2]["mac"] = self.living.result["interfaces"][2]["mac"].clone();
        result
    }
}

#[test]
fn a_mark_tells_more_than_an_equal_ethernet_address() {
    for chained in chained_plugins() {
        let node = node();
        let pods = [node.container(), node.container()];
        let two = Two::add(chained, &node, &pods[0], &pods[1], true);
        two.del_by(&node, &two.living.attachment.netns, Some(&two.same_mac()));
    }
}

/// The veth has no mark, as the reference makes it.
#[test]
fn without_a_mark_result_and_reservation_show_whose_a_link_is() {
    for chained in chained_plugins() {
        let node = node();
        let pods = [node.container(), node.container()];
        let two = Two::add(chained, &node, &pods[0], &pods[1], false);
        for result in [Some(two.same_mac()), Some(two.ended.result.clone()), None] {
            two.del_by(&node, &two.living.attachment.netns, result.as_ref());
        }
    }
}

/// No reservation says which container has the address.
#[test]
fn through_another_containers_process_nothing_is_taken_from_that_one() {
    for chained in chained_plugins() {
        for has_result in [true, false] {
            let node = node();
            let pods = [node.container(), node.container()];
            let two = Two::add(chained, &node, &pods[0], &pods[1], false);
            std::fs::remove_dir_all("/var/lib/cni/networks").unwrap();
            let mut result = two.ended.result.clone();
            result["interfaces"][2]["mac"] = json!("0a:00:00:00:00:01");
            by_process(&pods[1], |path| two.del_by(&node, path, Some(&result).filter(|_| has_result)));
        }
    }
}

/// Limits for what the container receives have no ifb whose name could show whose they are.
#[test]
fn del_of_another_network_or_container_leaves_the_limits_of_a_veth_without_mark() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let config = bandwidth::config(json!({"ingressRate": 8_000_000, "ingressBurst": 800_000}));
    let limited = Attached::add(&node, &behind(&before, config.clone()), &pod);
    node.host().set_alias(before.host_veth(), "");
    node.remember();
    let unknown = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
    let other = crate::configs::with(config.clone(), json!({"name": "other"}));
    let elsewhere = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": unknown.netns}],
                           "ips": [{"address": "10.7.0.77/24", "interface": 0}]});
    Call::new(Verb::Del, &config, &unknown).run(&node).ok();
    Call::new(Verb::Del, &config, &unknown).prev_result(&elsewhere).run(&node).ok();
    Call::new(Verb::Del, &other, &pod).run(&node).ok();
    // The kernel gives links their own addresses a while after they are made.
    node.assert_as_before_except(|line| line.contains("route fe80::") && line.contains(" table 255 "));
    limited.check().ok();
    Call::new(Verb::Del, &config, &pod).run(&node).ok();
    assert!(node.changes().contains("- qdisc tbf "), "{}", node.changes());
}
