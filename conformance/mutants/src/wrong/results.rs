//! The form of results.

use super::put;
use crate::Act;
use serde_json::json;
use skel::cni_spec::Command::Add;

pub(super) const ACTS: &[Act] = &[
    ("answers-in-another-version", |call| call.reports(|result| result["cniVersion"] = json!("1.0.0"))),
    ("gives-addresses-in-another-version", |call| call.on(Add, |result| result["cniVersion"] = json!("1.0.0"))),
    ("gives-addresses-in-another-version-in-0.4.0", |call| {
        call.on(Add, |result| result["cniVersion"] = json!("1.0.0"))
    }),
    ("says-of-no-interface-where-it-is", |call| {
        call.reports(|result| drop(result["interfaces"][2].as_object_mut().map(|own| own.shift_remove("sandbox"))))
    }),
    ("routes-by-the-other-family-in-0.4.0", |call| {
        call.reports(|result| put(result, "/routes/0", "gw", json!("fd77::1")))
    }),
    ("reports-addresses-by-number", |call| {
        match call.config().get("prevResult").is_some() && call.is(Add) {
            true => call.honest(), // whether it passes on what others made is another rule's
            false => call.reports(|result| result["ips"] = json!({ "0": result["ips"][0] })),
        }
    }),
    ("reports-half-a-mac", |call| call.reports(|result| put(result, "/interfaces/1", "mac", json!("0a:00:00")))),
    ("names-an-interface-that-is-not-there", |call| {
        call.reports(|result| put(result, "/ips/0", "interface", json!(7)))
    }),
    ("reports-no-prefix-of-a-route", |call| call.reports(|result| put(result, "/routes/0", "dst", json!("0.0.0.0")))),
    ("reports-one-nameserver-as-a-text", |call| {
        call.reports(|result| result["dns"] = json!({ "nameservers": "10.77.0.1" }))
    }),
    ("invents-a-key", |call| call.reports(|result| result["bridge"] = json!("cni0"))),
];
