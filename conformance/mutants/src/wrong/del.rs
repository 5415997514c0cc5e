//! DEL.

use crate::{Mutant, deed, memory};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del};
use std::fs;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-link", |scene| {
        scene.after(Add, || deed::make_link(&deed::node(), &deed::name_for(&scene.env.container_id)))
    }),
    Mutant::new("host-local", "del.undoes-modifications", "keeps-the-address", |scene| match scene.is(Del) {
        true => Reply::default(),
        false => scene.honest(),
    }),
    Mutant::new("bridge", "del.removes-the-interface", "leaves-an-interface-of-the-name", |scene| {
        scene.after(Del, || {
            if scene.has_netns() {
                deed::make_link(&scene.container(), &scene.env.ifname);
            }
        })
    }),
    Mutant::new("bridge", "del.is-repeatable", "deletes-once", |scene| {
        if scene.is(Del) && memory::has(&scene.attachment()) {
            return scene.refuse(110, "that is gone already");
        }
        scene.after(Del, || memory::mark(&scene.attachment()))
    }),
    Mutant::new("bridge", "del.bears-that-nothing-was-added", "deletes-what-it-knows-only", |scene| {
        if scene.is(Del) && !memory::has(&scene.attachment()) {
            return scene.refuse(110, "nobody knows that container");
        }
        let reply = scene.honest();
        if scene.is(Add) {
            memory::mark(&scene.attachment());
        }
        reply
    }),
    Mutant::new("bridge", "del.needs-no-namespace", "enters-the-namespace-to-delete", |scene| {
        match scene.is(Del) && !scene.has_netns() {
            true => scene.refuse(110, "cannot enter the namespace"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "del.needs-no-prev-result", "deletes-by-prev-result", |scene| {
        match scene.is(Del) && scene.config().get("prevResult").is_none() {
            true => Reply::default(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "del.needs-no-prev-result", "wants-addresses-in-prev-result", |scene| {
        let result = &scene.config()["prevResult"];
        match scene.is(Del) && result.is_object() && result["ips"].is_null() {
            true => scene.refuse(7, "prevResult has no ips"),
            false => scene.honest(),
        }
    })
    .with(&["empty-result"]),
    Mutant::new("bridge", "del.needs-no-namespace", "wants-the-variable-of-the-namespace", |scene| {
        match scene.is(Del) && scene.env.netns.is_empty() {
            true => scene.refuse(4, "required env variables [CNI_NETNS] missing"),
            false => scene.honest(),
        }
    })
    .with(&["no-variable"])
    .also(&["del.needs-no-prev-result"]),
    Mutant::new("bridge", "del.needs-no-dynamic-parameters", "deletes-by-args", |scene| {
        let key = scene.attachment();
        match scene.is(Del) && memory::find(&key).is_some_and(|args| args != scene.env.args) {
            true => Reply::default(),
            false => scene.after(Add, || memory::note(&key, &scene.env.args)),
        }
    }),
    Mutant::new("bridge", "del.follows-a-failed-add", "deletes-no-failure", |scene| {
        let key = scene.attachment();
        if scene.is(Del) && memory::has(&key) {
            return scene.refuse(110, "that was never added");
        }
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 {
            memory::mark(&key);
        }
        reply
    }),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-interface-to-delete", |scene| {
        let key = scene.attachment();
        let is_missing =
            || netops::link::find(&scene.container(), &scene.env.ifname).is_ok_and(|found| found.is_none());
        if scene.is(Del) && scene.has_netns() && memory::has(&key) && is_missing() {
            return scene.refuse(110, "the interface is not there");
        }
        let reply = scene.after(Add, || memory::mark(&key));
        if scene.is(Del) && reply.exit == 0 {
            memory::forget(&key);
        }
        reply
    }),
    Mutant::new("host-local", "del.bears-lost-state", "wants-its-file-to-delete", |scene| {
        let key = scene.attachment();
        if scene.is(Del) && memory::has(&key) && !has_file_of(&scene.env.container_id) {
            return scene.refuse(110, "the file of the address is not there");
        }
        let reply = scene.after(Add, || memory::mark(&key));
        if scene.is(Del) && reply.exit == 0 {
            memory::forget(&key);
        }
        reply
    }),
    Mutant::new("bridge", "del.leaves-others-alone", "removes-the-bridge", |scene| {
        scene.after(Del, || deed::remove_link(&deed::node(), "cni0"))
    }),
];

/// Whether host-local has an address for a container, in any network.
fn has_file_of(container_id: &str) -> bool {
    let folders = fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten();
    let mut files = folders.flat_map(|folder| fs::read_dir(folder.path())).flatten().flatten();
    files.any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with(container_id)))
}
