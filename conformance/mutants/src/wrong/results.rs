//! The form of results.

use crate::Mutant;
use serde_json::json;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "results.version", "answers-in-another-version", |scene| {
        scene.on(Add, |result| result["cniVersion"] = json!("1.0.0"))
    }),
    Mutant::new("bridge", "results.form", "tells-addresses-by-number", |scene| {
        scene.on(Add, |result| result["ips"] = json!({ "0": result["ips"][0] }))
    })
    .also(&["results.ips"]),
    Mutant::new("bridge", "results.interfaces", "tells-half-a-mac", |scene| {
        scene.on(Add, |result| result["interfaces"][1]["mac"] = json!("0a:00:00"))
    })
    .also(&["results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.ips", "points-beyond-the-interfaces", |scene| {
        scene.on(Add, |result| result["ips"][0]["interface"] = json!(7))
    })
    .also(&["results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.routes", "tells-no-prefix-of-a-route", |scene| {
        scene.on(Add, |result| result["routes"][0]["dst"] = json!("0.0.0.0"))
    })
    .also(&["results.form"])
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "results.dns", "tells-one-nameserver-as-a-text", |scene| {
        scene.on(Add, |result| result["dns"] = json!({ "nameservers": "10.77.0.1" }))
    })
    .also(&["results.form", "configuration.dns-is-kept"]),
    Mutant::new("bridge", "results.known-keys", "invents-a-key", |scene| {
        scene.on(Add, |result| result["bridge"] = json!("cni0"))
    })
    .speaking(&["0.2.0", "0.4.0", "1.1.0"]),
];
