//! Promises of ADD's result, broken.

use super::{push, put};
use crate::{Act, side_effect};
use ipnetwork::IpNetwork;
use serde_json::json;
use skel::cni_spec::Command::Add;
use std::net::IpAddr;

pub(super) const ACTS: &[Act] = &[
    ("reports-a-link-that-is-not-there", |call| {
        call.reports(|result| push(result, "interfaces", json!({ "name": "cni7", "mac": "0a:00:00:00:00:07" })))
    }),
    ("keeps-its-host-end-to-itself", |call| {
        call.reports(|result| result["interfaces"][1] = result["interfaces"][0].clone())
    }),
    ("cleans-the-path-of-the-sandbox", |call| {
        call.reports(|result| {
            let sandbox = &mut result["interfaces"][2]["sandbox"];
            *sandbox = json!(sandbox.as_str().unwrap_or_default().replace("/./", "/").replace("//", "/"));
        })
    }),
    ("reports-another-mac", |call| {
        call.reports(|result| put(result, "/interfaces/2", "mac", json!("0a:00:00:00:00:07")))
    }),
    ("reports-another-mtu", |call| call.reports(|result| put(result, "/interfaces/2", "mtu", json!(9000)))),
    ("reports-another-prefix", |call| {
        call.reports(|result| {
            let address = &mut result["ips"][0]["address"];
            *address = json!(address.as_str().unwrap_or_default().replace("/16", "/24"));
        })
    }),
    ("counts-no-interfaces-of-others", |call| {
        let earlier = call.config()["prevResult"]["interfaces"].as_array().map_or(0, Vec::len);
        call.reports(|result| {
            let last = result["ips"].as_array_mut().and_then(|ips| ips.last_mut());
            if let Some(ip) = last.filter(|_| earlier > 0) {
                ip["interface"] = json!(ip["interface"].as_u64().unwrap_or_default().saturating_sub(earlier as u64));
            }
        })
    }),
    ("sets-one-address-more", |call| {
        call.after(Add, || {
            let network = IpNetwork::from(IpAddr::from([198, 51, 100, 7]));
            side_effect::add_address(&call.container(), &call.env.ifname, &network.into());
        })
    }),
    ("reports-a-gateway-elsewhere", |call| {
        call.reports(|result| put(result, "/ips/0", "gateway", json!("203.0.113.254")))
    }),
    ("reports-a-route-that-is-not-there", |call| {
        call.reports(|result| push(result, "routes", json!({ "dst": "198.51.100.0/24", "gw": "10.77.0.1" })))
    }),
    ("reports-no-route", |call| {
        call.reports(|result| drop(result.as_object_mut().map(|result| result.shift_remove("routes"))))
    }),
];
