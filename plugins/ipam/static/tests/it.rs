//! The plugin beside the reference's, and behind bridge.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use serde_json::{Value, json};
use testns::{Call, Node, Subject, Verb};

fn config(version: &str, keys: &Value) -> String {
    let mut config = json!({"cniVersion": version, "name": "net", "type": "static"});
    let object = config.as_object_mut().unwrap();
    object.extend(keys.as_object().unwrap().clone());
    config.to_string()
}

fn two() -> Value {
    json!({"ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "fd00::2/64"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.0.0.9"}], "dns": {"nameservers": ["10.0.0.53"], "domain": "d"}}})
}

/// The result of each ADD, or that it is refused. An empty `dns` is as good as none.
fn answers(subject: &Subject, calls: &[(String, &str)]) -> Vec<Option<Value>> {
    let node = Node::with(subject);
    let pod = node.container();
    let answer = |(config, args): &(String, &str)| {
        let reply = Call::new(Verb::Add, config.as_str(), &pod).plugin("static").args(args).run(&node);
        let mut result = reply.output.status.success().then(|| reply.ok())?;
        if result["dns"] == json!({}) {
            result.as_object_mut().unwrap().remove("dns");
        }
        Some(result)
    };
    calls.iter().map(answer).collect()
}

/// The reference passes them on.
#[test]
fn a_mix_of_families_is_refused() {
    let mixed = [
        json!({"ipam": {"addresses": [{"address": "10.0.0.2/24", "gateway": "fd00::1"}]}}),
        json!({"ipam": {"addresses": [{"address": "fd00::2/64"}], "routes": [{"dst": "::/0", "gw": "10.0.0.1"}]}}),
    ];
    let node = Node::with(&Subject::ours());
    let pod = node.container();
    for (keys, key) in mixed.iter().zip(["ipam.addresses[0].gateway = \"fd00::1\"", "ipam.routes[0].gw = \"10.0.0.1\""])
    {
        for verb in [Verb::Add, Verb::Status] {
            let error = node.call(verb, config("1.1.0", keys), &pod).fails_with(7);
            assert!(error.msg.contains(key), "{error:?}");
        }
        node.call(Verb::Del, config("1.1.0", keys), &pod).ok();
    }
    drop(pod);
    drop(node);
    let Some(reference) = Subject::reference_or_skip("a_mix_of_families_is_refused") else { return };
    let calls = mixed.map(|keys| (config("1.0.0", &keys), ""));
    assert!(answers(&reference, &calls).iter().all(Option::is_some));
}

/// ADD by one, CHECK and DEL by the other; an interface plugin of either side delegates to the other's.
#[test]
fn each_checks_and_deletes_what_the_other_added() {
    let Some(reference) = Subject::reference_or_skip("each_checks_and_deletes_what_the_other_added") else { return };
    let mut keys = two();
    keys["type"] = json!("ptp");
    keys["ipam"]["addresses"][1]["gateway"] = json!("fd00::1");
    let config = config("1.0.0", &keys);
    for (first, second) in [(Subject::ours(), reference.clone()), (reference, Subject::ours())] {
        let node = Node::with(&first);
        node.install_one(&second, "static");
        let pod = node.container();
        let result = node.call(Verb::Add, &config, &pod).ok();
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.0.0.2/24", "fd00::2/64"]);
        pod.namespace().ping([10, 0, 0, 1]);
        pod.namespace().ping("fd00::1".parse::<std::net::Ipv6Addr>().unwrap());
        node.install(&second);
        node.install_one(&first, "static");
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
        for _ in 0..2 {
            Call::new(Verb::Del, &config, &pod).prev_result(&result).run(&node).ok();
        }
        assert!(pod.namespace().find_link("eth0").is_none());
    }
}

/// The reference's ADD takes it, too; its CHECK does not.
#[test]
fn check_takes_a_config_that_add_took() {
    let node = Node::with(&Subject::ours());
    let pod = node.container();
    let mut keys = two();
    keys["dns"] = json!(5);
    keys["prevResult"] = node.call(Verb::Add, config("1.0.0", &keys), &pod).ok();
    node.call(Verb::Check, config("1.0.0", &keys), &pod).ok();
}

#[test]
fn check_compares_addresses_gateways_and_routes() {
    let node = Node::with(&Subject::ours());
    let pod = node.container();
    let result = node.call(Verb::Add, config("1.0.0", &two()), &pod).ok();
    let check = |change: &dyn Fn(&mut Value)| {
        let mut keys = two();
        keys["prevResult"] = result.clone();
        change(&mut keys["prevResult"]);
        node.call(Verb::Check, config("1.0.0", &keys), &pod)
    };
    check(&|_| ()).ok();
    // What the interface plugin completes is no difference.
    check(&|prev| prev["ips"][1]["gateway"] = json!("fd00::1")).ok();
    check(&|prev| prev["routes"][0]["gw"] = json!("10.0.0.1")).ok();
    for (change, named) in [
        (&(|prev: &mut Value| prev["ips"] = json!([])) as &dyn Fn(&mut Value), "address 10.0.0.2/24 is not found"),
        (&|prev| prev["ips"][0]["gateway"] = json!("10.0.0.3"), "does not have gateway 10.0.0.1"),
        (&|prev| prev["routes"] = json!([{"dst": "0.0.0.0/0"}]), "a route to 192.0.2.0/24"),
    ] {
        let msg = check(change).fails_with(107).msg;
        assert!(msg.contains(named), "{msg}");
    }
    node.call(Verb::Check, config("1.0.0", &two()), &pod).fails_with(7);
}

/// The reference's ADD gives configured addresses no gateway of `CNI_ARGS`.
#[test]
fn check_takes_a_pod_of_the_reference_whose_gateway_is_in_cni_args() {
    let node = Node::with(&Subject::ours());
    let pod = node.container();
    let check = |gateway: &str| {
        let mut keys = two();
        let result = node.call(Verb::Add, config("1.0.0", &keys), &pod).ok();
        keys["prevResult"] = result;
        if !gateway.is_empty() {
            keys["prevResult"]["ips"][1]["gateway"] = json!(gateway);
        }
        Call::new(Verb::Check, config("1.0.0", &keys), &pod).args("GATEWAY=fd00::1").run(&node)
    };
    check("").ok();
    check("fd00::1").ok();
    check("fd00::2").fails_with(107);
}

#[test]
fn a_container_on_a_bridge_has_the_addresses_that_it_asks_for() {
    let node = Node::with(&Subject::ours());
    let pod = node.container();
    let mut keys = two();
    keys["type"] = json!("bridge");
    keys["isGateway"] = json!(true);
    let config = config("1.1.0", &keys);
    node.call(Verb::Add, &config, &pod).ok();
    assert_eq!(pod.namespace().global_addresses("eth0"), ["10.0.0.2/24", "fd00::2/64"]);
    pod.namespace().ping([10, 0, 0, 1]);
    node.call(Verb::Del, &config, &pod).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
}
