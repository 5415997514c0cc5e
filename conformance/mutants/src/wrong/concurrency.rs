//! Many calls at once.

use super::{at_once, says};
use crate::{Mutant, memory};
use skel::cni_spec::Command::{Add, Del};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("host-local", "concurrency.containers-at-once", "gives-one-address-at-a-time", |scene| {
        match scene.is(Add) {
            true => at_once::alone(scene),
            false => scene.honest(),
        }
    })
    .also(&["add.serves-containers-at-once"])
    .with(&["8"])
    .slow(),
    Mutant::new("bridge", "concurrency.first-containers-at-once", "makes-the-bridge-alone", |scene| {
        match scene.is(Add) && !memory::has("bridge") {
            true => at_once::alone(scene),
            false => scene.honest(),
        }
    })
    .also(&["add.serves-containers-at-once"]),
    Mutant::new("host-local", "concurrency.pool-is-whole-again", "frees-no-address-of-a-small-pool", |scene| {
        scene.does_nothing_if(scene.is(Del) && scene.config()["ipam"]["ranges"].to_string().contains("10.77.0.6"))
    }),
    Mutant::new("host-local", "concurrency.small-pool", "adds-when-there-is-no-address", |scene| {
        let reply = scene.honest();
        match scene.is(Add) && reply.exit != 0 && says(&reply, "no IP addresses available") {
            true => scene.boast(),
            false => reply,
        }
    })
    .also(&["ipam.exhausted-is-an-error"]),
];
