//! Calls that are killed.

use super::says;
use crate::{Act, memory};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};

pub(super) const ACTS: &[Act] = &[
    ("deletes-what-it-finished", |call| {
        if call.is(Del) && !memory::has(&call.attachment()) {
            return Reply::default();
        }
        let reply = call.after(Add, || memory::mark(&call.attachment()));
        if call.is(Del) {
            memory::forget(&call.attachment());
        }
        reply
    }),
    ("forgets-before-it-deletes", |call| {
        if call.is(Del) && !memory::forget(&call.attachment()) {
            return Reply::default();
        }
        if call.is(Add) {
            memory::mark(&call.attachment());
        }
        call.honest()
    }),
    ("leaves-its-lock", |call| {
        if !call.is(Gc) {
            return call.honest();
        }
        if memory::has("gc") {
            return call.refuse(110, "another GC is at work");
        }
        memory::mark("gc");
        let reply = call.honest();
        memory::forget("gc");
        reply
    }),
    ("says-nothing-when-its-delegate-dies", |call| {
        let reply = call.honest();
        match reply.exit != 0 && says(&reply, "killed by ") {
            true => Reply { stdout: Vec::new(), ..reply },
            false => reply,
        }
    }),
];
