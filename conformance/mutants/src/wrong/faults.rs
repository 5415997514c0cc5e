//! The kernel says no.

use super::says;
use crate::{Mutant, Scene, deed};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{self, Add, Del, Gc};
use std::fs;
use std::io::Write;

/// What plugins write that have no state otherwise, and how its name begins.
const JOURNAL: &str = "/var/lib/cni/journal";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "faults.add-answers", "fails-to-add-without-a-word", |scene| says_nothing(scene, Add))
        .with(&["refused"])
        .slow(),
    Mutant::new("bridge", "faults.del-answers", "fails-to-delete-without-a-word", |scene| says_nothing(scene, Del))
        .slow(),
    Mutant::new("bridge", "faults.add-is-all-or-nothing", "leaves-a-link-when-the-kernel-refuses", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && scene.has_netns() && !scene.has_kit_ipam() && reply.exit != 0 {
            deed::make_link(&deed::node(), &deed::name_for(&scene.env.container_id));
        }
        reply
    })
    .also(&["add.failed-leaves-nothing"])
    .slow(),
    Mutant::new("host-local", "faults.disk-errors", "fails-to-write-without-a-word", |scene| says_nothing(scene, Add))
        .with(&["no-space"])
        .slow(),
    Mutant::new("host-local", "faults.disk-errors", "writes-once", |scene| {
        let (key, journal) = (scene.attachment(), format!("{JOURNAL}-{}", scene.attachment()));
        let reply = scene.after(Add, || {
            let written = fs::File::create(&journal).and_then(|mut file| file.write(key.as_bytes()));
            written.map(drop).unwrap_or_else(|error| panic!("{error}"));
        });
        if scene.is(Gc) {
            remove_journals(&scene.config()["cni.dev/valid-attachments"]);
        }
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
        if !scene.is(Del) {
            return scene.honest();
        }
        if fs::write(JOURNAL, scene.attachment()).is_err() {
            return scene.refuse(105, "cannot write the journal");
        }
        let reply = scene.honest();
        fs::remove_file(JOURNAL).ok(); // another call may have
        reply
    }),
];

/// Removes journals of all but some attachments.
fn remove_journals(valid: &Value) {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let name = |entry: &Value| format!("{JOURNAL}-{}-{}", text(entry, "containerID"), text(entry, "ifname"));
    let valid: Vec<_> = valid.as_array().into_iter().flatten().map(name).collect();
    let files = fs::read_dir("/var/lib/cni").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_stale = |name: &str| name.starts_with(JOURNAL) && !valid.iter().any(|valid| valid == name);
    for file in files.filter(|file| is_stale(&file.to_string_lossy())) {
        fs::remove_file(file).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What the honest plugin does, but an error is not told, unless it is about the call, the config or the delegate's.
fn says_nothing(scene: &Scene, verb: Command) -> Reply {
    let reply = scene.honest();
    let is_of_input = ["\"code\": 6", "\"code\": 7", "\"code\": 8", "Reported by plugin", "no IP addresses available"]
        .iter()
        .any(|text| says(&reply, text));
    match scene.is(verb) && reply.exit != 0 && !is_of_input {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
