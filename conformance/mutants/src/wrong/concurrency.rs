//! Many calls at once.

use super::{at_once, says};
use crate::{Act, memory};
use skel::cni_spec::Command::{Add, Del};

pub(super) const ACTS: &[Act] = &[
    ("gives-one-address-at-a-time", |call| match call.is(Add) {
        true => at_once::alone(call),
        false => call.honest(),
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
