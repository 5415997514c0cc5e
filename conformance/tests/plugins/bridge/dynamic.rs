//! Requests of the runtime: a hardware address, IP addresses.

use crate::configs::{bridge, with};
use crate::subjects::each;
use serde_json::{Value, json};
use testns::{Call, Node, Verb};

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
