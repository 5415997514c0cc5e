//! The form of results.

use super::put;
use crate::Mutant;
use serde_json::json;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "results.version", "answers-in-another-version", |call| {
        call.reports(|result| result["cniVersion"] = json!("1.0.0"))
    }),
    Mutant::new("host-local", "results.version-of-ipam", "gives-addresses-in-another-version", |call| {
        call.on(Add, |result| result["cniVersion"] = json!("1.0.0"))
    }),
    Mutant::new(
        "host-local",
        "results.version-of-ipam-in-0.4.0",
        "gives-addresses-in-another-version-in-0.4.0",
        |call| call.on(Add, |result| result["cniVersion"] = json!("1.0.0")),
    )
    .speaking(&["0.4.0"])
    .also(&["results.version-of-ipam"]),
    Mutant::new("bridge", "results.sandbox-in-0.4.0", "says-of-no-interface-where-it-is", |call| {
        call.reports(|result| drop(result["interfaces"][2].as_object_mut().map(|own| own.shift_remove("sandbox"))))
    })
    .also(&["add.result-addresses-are-set", "add.result-has-all-interfaces", "add.result-interfaces-exist"])
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "results.routes-are-of-one-family-in-0.4.0", "routes-by-the-other-family-in-0.4.0", |call| {
        call.reports(|result| put(result, "/routes/0", "gw", json!("fd77::1")))
    })
    .also(&["add.result-routes-are-set"])
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "results.form", "reports-addresses-by-number", |call| {
        match call.config().get("prevResult").is_some() && call.is(Add) {
            true => call.honest(), // whether it passes on what others made is another rule's
            false => call.reports(|result| result["ips"] = json!({ "0": result["ips"][0] })),
        }
    })
    .also(&["add.result-has-all-addresses", "results.ips"]),
    Mutant::new("bridge", "results.interfaces", "reports-half-a-mac", |call| {
        call.reports(|result| put(result, "/interfaces/1", "mac", json!("0a:00:00")))
    })
    .also(&["add.result-mac-is-the-links", "results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.ips", "names-an-interface-that-is-not-there", |call| {
        call.reports(|result| put(result, "/ips/0", "interface", json!(7)))
    })
    .also(&["add.passes-prev-result-on", "add.result-addresses-are-set", "results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.routes", "reports-no-prefix-of-a-route", |call| {
        call.reports(|result| put(result, "/routes/0", "dst", json!("0.0.0.0")))
    })
    .also(&["add.passes-prev-result-on", "add.result-has-all-routes", "add.result-routes-are-set", "results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.dns", "reports-one-nameserver-as-a-text", |call| {
        call.reports(|result| result["dns"] = json!({ "nameservers": "10.77.0.1" }))
    })
    .also(&["results.form", "configuration.dns-is-kept"]),
    Mutant::new("bridge", "results.known-keys", "invents-a-key", |call| {
        call.reports(|result| result["bridge"] = json!("cni0"))
    })
    .speaking(&["0.2.0", "0.4.0", "1.1.0"]),
];
