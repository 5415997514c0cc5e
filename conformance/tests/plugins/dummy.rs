//! The dummy plugin.

use serde_json::{Value, json};
use testns::{Feature, Node, Remains, Subject, Verb};

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "quiet", "type": "dummy",
           "ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "routes": [{"dst": "10.9.0.0/16"}]}})
}

fn node() -> Node {
    Node::with(&Subject::ours())
}

#[test]
fn dummy_has_an_address_and_a_route_until_del() {
    testns::needs!(Feature::Dummy.or_skip());
    let node = node();
    let pod = node.container();
    let result = node.call(Verb::Add, config(), &pod).ok();
    let link = pod.namespace().link("eth0");
    assert_eq!((link.kind.as_str(), link.up), ("dummy", true));
    assert_eq!(
        result["interfaces"],
        json!([{"name": "eth0", "mac": link.mac, "mtu": 1500,
        "sandbox": pod.attachment().netns}])
    );
    assert_eq!(result["ips"], json!([{"interface": 0, "address": "10.7.0.2/24", "gateway": "10.7.0.1"}]));
    let routes = pod.namespace().routes();
    assert!(routes.iter().any(|route| route.to == "10.9.0.0/16"), "{routes:#?}");
    testns::Call::new(Verb::Check, config(), &pod).prev_result(&result).run(&node).ok();
    for _ in 0..2 {
        node.call(Verb::Del, config(), &pod).ok();
        assert!(pod.namespace().find_link("eth0").is_none());
    }
}

/// A failed ADD is followed by a DEL of the same interface: the link is another network's.
#[test]
fn dummy_del_leaves_another_networks_link_of_that_name() {
    testns::needs!(Feature::Dummy.or_skip());
    let node = node();
    let pod = node.container();
    node.call(Verb::Add, config(), &pod).ok();
    let mut other = config();
    other["name"] = json!("other");
    node.call(Verb::Add, other.clone(), &pod).fails();
    node.call(Verb::Del, other, &pod).ok();
    assert!(pod.namespace().find_link("eth0").is_some());
}

#[test]
fn dummy_frees_the_address_when_its_namespace_is_gone() {
    testns::needs!(Feature::Dummy.or_skip());
    let node = node();
    let pod = node.container();
    let first = node.call(Verb::Add, config(), &pod).ok();
    assert_eq!(first["ips"][0]["address"], "10.7.0.2/24");
    let gone = pod.leave(Remains::Gone);
    node.call(Verb::Del, config(), &gone).ok();
    node.assert_as_before_except(|line| line.contains("/var/lib/cni") || line.contains("/run/cni"));
}

/// Where the kernel has no dummy links, ADD names the missing module and leaves nothing.
#[test]
fn dummy_without_the_module_leaves_nothing() {
    if Feature::Dummy.is_here() {
        return;
    }
    let node = node();
    let pod = node.container();
    let error = node.call(Verb::Add, config(), &pod).fails();
    assert!(error.details.contains("Load module dummy"), "{error:?}");
    assert!(error.details.contains("addresses released"), "{error:?}");
    assert!(pod.namespace().find_link("eth0").is_none());
    let error = node.call(Verb::Status, config(), testns::Attachment::none()).fails_with(50);
    assert!(error.details.contains("Load module dummy"), "{error:?}");
}
