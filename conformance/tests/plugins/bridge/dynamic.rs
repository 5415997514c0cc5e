//! Requests of the runtime: a hardware address, IP addresses.

use crate::configs::{addresses, bridge, dual, with};
use crate::subjects::each;
use serde_json::{Value, json};
use testns::{Call, Container, Node, Verb};

const BY_ARGS: &str = "0a:00:00:00:00:01";
const BY_CNI: &str = "0a:00:00:00:00:02";
const BY_RUNTIME: &str = "0a:00:00:00:00:03";

fn mac_of(node: &Node, own: &Value, args: Option<&str>) -> String {
    let pod = node.container();
    let call = Call::new(Verb::Add, bridge(own.clone()), &pod);
    let result = args.map_or_else(|| call.clone(), |args| call.clone().args(args)).run(node).ok();
    let mac = pod.namespace().link("eth0").mac;
    assert_eq!(result["interfaces"][2]["mac"], json!(mac));
    mac
}

/// The channels from weakest to strongest: `CNI_ARGS MAC`, `args.cni.mac`, `runtimeConfig.mac`.
#[test]
fn the_strongest_channel_sets_the_hardware_address() {
    each(|_, node| {
        let args = format!("MAC={BY_ARGS};IgnoreUnknown=1");
        let cni = json!({"args": {"cni": {"mac": BY_CNI}}});
        let runtime = json!({"runtimeConfig": {"mac": BY_RUNTIME}});
        let all = with(cni.clone(), runtime.clone());
        assert_eq!(mac_of(node, &json!({}), Some(&args)), BY_ARGS);
        assert_eq!(mac_of(node, &cni, None), BY_CNI);
        assert_eq!(mac_of(node, &cni, Some(&args)), BY_CNI);
        assert_eq!(mac_of(node, &runtime, None), BY_RUNTIME);
        assert_eq!(mac_of(node, &all, Some(&args)), BY_RUNTIME);
    });
}

/// A malformed address is an error before any change.
#[test]
fn a_bad_hardware_address_is_an_error() {
    each(|who, node| {
        for own in [json!({"args": {"cni": {"mac": "nonsense"}}}), json!({"runtimeConfig": {"mac": "0a:00:00:00:00"}})]
        {
            let pod = node.container();
            node.call(Verb::Add, bridge(own), &pod).fails();
            assert!(pod.namespace().find_link("eth0").is_none());
        }
        for mac in ["01:00:5e:00:00:01", "00:00:00:00:00:00", "0a:00:00:00:00:00:00:01"] {
            let pod = node.container();
            node.call(Verb::Add, bridge(json!({"runtimeConfig": {"mac": mac}})), &pod).fails();
            if who.is_ours() {
                assert!(pod.namespace().find_link("eth0").is_none(), "{mac}");
            }
        }
        Call::new(Verb::Add, bridge(json!({})), &node.container()).args("MAC=x;IgnoreUnknown=1").run(node).fails();
        Call::new(Verb::Add, bridge(json!({})), &node.container()).args("K=V").run(node).fails();
    });
}

fn ips_of(node: &Node, pod: &Container, own: Value, args: &str) -> Vec<String> {
    let config = bridge(with(json!({"ipam": dual()}), own));
    let result = Call::new(Verb::Add, config, pod).args(args).run(node).ok();
    let given = addresses(&result);
    assert_eq!(pod.namespace().global_addresses("eth0"), given);
    given
}

/// Requested addresses reach IPAM by each channel and are set on the interface.
#[test]
fn fixed_addresses_get_through_to_ipam() {
    each(|_, node| {
        let (one, two, three) = (node.container(), node.container(), node.container());
        let given = ips_of(node, &one, json!({}), "IP=10.7.0.50;IgnoreUnknown=1");
        assert_eq!(given, ["10.7.0.50/24", "fd07::2/64"]);
        let own = json!({"args": {"cni": {"ips": ["10.7.0.60", "fd07::60"]}}});
        assert_eq!(ips_of(node, &two, own, "IgnoreUnknown=1"), ["10.7.0.60/24", "fd07::60/64"]);
        let own = json!({"runtimeConfig": {"ips": ["10.7.0.70/24", "fd07::70/64"]}});
        assert_eq!(ips_of(node, &three, own, "IgnoreUnknown=1"), ["10.7.0.70/24", "fd07::70/64"]);
    });
}
