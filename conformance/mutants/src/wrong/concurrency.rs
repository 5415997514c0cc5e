//! Many calls at once.

use super::{at_once, says};
use crate::{Act, memory};
use serde_json::json;
use skel::cni_spec::Command::{Add, Del};

pub(super) const ACTS: &[Act] = &[
    ("gives-one-address-at-a-time", |call| match call.is(Add) {
        true => at_once::alone(call),
        false => call.honest(),
    }),
    ("gives-the-fifth-the-address-of-another", |call| {
        let key = format!("lives-{}", call.attachment());
        if call.is(Del) {
            memory::forget(&key);
        }
        call.on(Add, |result| {
            let own = result["ips"][0]["address"].take();
            let others = memory::find_all("lives-");
            memory::note(&key, own.as_str().unwrap_or_default());
            result["ips"][0]["address"] = others.get(3).map_or(own, |other| json!(other));
        })
    }),
    ("makes-the-bridge-alone", |call| match call.is(Add) && !memory::has("bridge") {
        true => at_once::alone(call),
        false => call.honest(),
    }),
    ("frees-no-address-of-a-small-pool", |call| {
        call.does_nothing_if(call.is(Del) && call.config()["ipam"]["ranges"].to_string().contains("10.77.0.6"))
    }),
    ("adds-when-there-is-no-address", |call| {
        let reply = call.honest();
        match call.is(Add) && reply.exit != 0 && says(&reply, "no IP addresses available") {
            true => call.boast(),
            false => reply,
        }
    }),
];
