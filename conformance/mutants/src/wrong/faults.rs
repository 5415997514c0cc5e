//! The kernel says no.

use super::says;
use crate::{Mutant, Scene, deed};
use skel::Reply;
use skel::cni_spec::Command::{self, Add, Del};
use std::fs;
use std::io::Write;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "faults.add-answers", "fails-to-add-without-a-word", |scene| says_nothing(scene, Add))
        .with(&["refused"])
        .slow(),
    Mutant::new("bridge", "faults.del-answers", "fails-to-delete-without-a-word", |scene| says_nothing(scene, Del))
        .slow(),
    Mutant::new("bridge", "faults.add-is-all-or-nothing", "leaves-a-link-when-the-kernel-refuses", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 {
            deed::make_link(&deed::node(), &deed::name_for(&scene.env.container_id));
        }
        reply
    })
    .slow(),
    Mutant::new("host-local", "faults.disk-errors", "fails-to-write-without-a-word", |scene| says_nothing(scene, Add))
        .with(&["no-space"])
        .slow(),
    Mutant::new("host-local", "faults.disk-errors", "writes-once", |scene| {
        let (key, journal) = (scene.attachment(), format!("/var/lib/cni/journal-{}", scene.env.container_id));
        let reply = scene.after(Add, || {
            let written = fs::File::create(&journal).and_then(|mut file| file.write(key.as_bytes()));
            written.map(drop).unwrap_or_else(|error| panic!("{error}"));
        });
        if scene.is(Del) && fs::read_to_string(&journal).is_ok_and(|text| text != key) {
            return scene.refuse(105, "the journal is damaged");
        }
        if scene.is(Del) {
            fs::remove_file(&journal).ok(); // a second DEL finds none
        }
        reply
    })
    .with(&["short-write"])
    .slow(),
    Mutant::new("host-local", "disk.add-on-a-full-disk", "has-no-words-for-a-full-disk", |scene| {
        says_nothing(scene, Add)
    }),
    Mutant::new("host-local", "disk.del-on-a-full-disk", "writes-a-journal-to-delete", |scene| {
        const JOURNAL: &str = "/var/lib/cni/journal";
        if !scene.is(Del) {
            return scene.honest();
        }
        if fs::write(JOURNAL, scene.attachment()).is_err() {
            return scene.refuse(105, "cannot write the journal");
        }
        let reply = scene.honest();
        fs::remove_file(JOURNAL).unwrap_or_else(|error| panic!("{error}"));
        reply
    }),
];

/// What the honest plugin does, but an error is not told, unless it is about the config.
fn says_nothing(scene: &Scene, verb: Command) -> Reply {
    let reply = scene.honest();
    let is_of_input = ["\"code\": 6", "\"code\": 7"].iter().any(|code| says(&reply, code));
    match scene.is(verb) && reply.exit != 0 && !is_of_input {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
