//! The form of results.

use super::push;
use crate::{Mutant, deed};
use serde_json::json;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "results.version", "answers-in-another-version", |scene| {
        scene.on(Add, |result| result["cniVersion"] = json!("1.0.0"))
    }),
    Mutant::new("bridge", "results.form", "points-beyond-the-interfaces", |scene| {
        scene.on(Add, |result| result["ips"][0]["interface"] = json!(7))
    }),
    Mutant::new("bridge", "results.known-keys", "invents-a-key", |scene| {
        scene.on(Add, |result| result["bridge"] = json!("cni0"))
    }),
    Mutant::new("bridge", "results.interface-in-the-container", "leaves-the-interface-out", |scene| {
        scene.on(Add, |result| {
            result["ips"][0]["interface"] = json!(0);
            result["interfaces"].as_array_mut().map(Vec::pop);
        })
    }),
    Mutant::new("bridge", "results.interfaces-exist", "tells-another-name-of-its-host-end", |scene| {
        scene.on(Add, |result| result["interfaces"][1]["name"] = json!("veth7"))
    }),
    Mutant::new("bridge", "results.mac-is-the-interfaces", "tells-another-mac-of-its-host-end", |scene| {
        scene.on(Add, |result| result["interfaces"][1]["mac"] = json!("0a:00:00:00:00:07"))
    }),
    Mutant::new("bridge", "results.addresses-are-there", "takes-the-address-back", |scene| {
        scene.after(Add, || deed::remove_addresses(&scene.container(), &scene.env.ifname))
    }),
    Mutant::new("bridge", "results.addresses-of-the-container-are-told", "tells-no-address", |scene| {
        scene.on(Add, |result| result["ips"] = json!([]))
    }),
    Mutant::new("bridge", "results.routes-are-there", "tells-of-another-route", |scene| {
        scene.on(Add, |result| push(result, "routes", json!({ "dst": "198.51.100.0/24", "gw": "10.77.0.1" })))
    }),
    Mutant::new("tuning", "results.keeps-prev-result", "forgets-the-routes", |scene| {
        scene.on(Add, |result| result["routes"] = json!([]))
    }),
];
