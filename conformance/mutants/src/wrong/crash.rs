//! Calls that are killed.

use super::says;
use crate::{Mutant, memory};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "crash.add-killed", "deletes-what-it-finished", |scene| {
        if scene.is(Del) && !memory::has(&scene.attachment()) {
            return Reply::default();
        }
        let reply = scene.after(Add, || memory::mark(&scene.attachment()));
        if scene.is(Del) {
            memory::forget(&scene.attachment());
        }
        reply
    })
    .with(&["first-half"])
    .slow(),
    Mutant::new("bridge", "crash.del-killed", "forgets-before-it-deletes", |scene| {
        if scene.is(Del) && !memory::forget(&scene.attachment()) {
            return Reply::default();
        }
        if scene.is(Add) {
            memory::mark(&scene.attachment());
        }
        scene.honest()
    })
    .slow(),
    Mutant::new("bridge", "crash.gc-killed", "leaves-its-lock", |scene| {
        if !scene.is(Gc) {
            return scene.honest();
        }
        if memory::has("gc") {
            return scene.refuse(110, "another GC is at work");
        }
        memory::mark("gc");
        let reply = scene.honest();
        memory::forget("gc");
        reply
    })
    .slow(),
    Mutant::new("bridge", "crash.caller-killed", "says-nothing-when-its-delegate-dies", |scene| {
        let reply = scene.honest();
        match reply.exit != 0 && says(&reply, "killed by ") {
            true => Reply { stdout: Vec::new(), ..reply },
            false => reply,
        }
    })
    .with_ipam_as_process()
    .with(&["add"])
    .slow(),
];
