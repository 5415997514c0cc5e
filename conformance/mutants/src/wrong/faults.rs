//! The kernel says no.

use crate::{Mutant, Scene, side_effect};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{self, Add, Del, Gc};
use std::fs;
use std::io::Write;

/// The file that plugins without other state write, and the start of its name.
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
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        reply
    })
    .also(&["add.failed-leaves-nothing"])
    .slow(),
    Mutant::new("host-local", "faults.disk-errors", "fails-to-write-without-a-word", |scene| says_nothing(scene, Add))
        .with(&["no-space"])
        .slow(),
    Mutant::new("host-local", "faults.disk-errors", "writes-once", |scene| {
        let (key, journal) = (scene.attachment(), journal_of(scene, &scene.attachment()));
        let reply = scene.after(Add, || {
            let written = fs::File::create(&journal).and_then(|mut file| file.write(key.as_bytes()));
            written.map(drop).unwrap_or_else(|error| panic!("{error}"));
        });
        if scene.is(Gc) {
            remove_journals(scene);
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

/// The journal of an attachment to the call's network.
fn journal_of(scene: &Scene, attachment: &str) -> String {
    format!("{JOURNAL}-{}-{attachment}", scene.config()["name"].as_str().unwrap_or_default())
}

/// Removes journals of what is stale in the call's network.
fn remove_journals(scene: &Scene) {
    let config = scene.config();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let name = |entry: &Value| journal_of(scene, &format!("{}-{}", text(entry, "containerID"), text(entry, "ifname")));
    let valid: Vec<_> = config["cni.dev/valid-attachments"].as_array().into_iter().flatten().map(name).collect();
    let is_stale = |path: &str| path.starts_with(&journal_of(scene, "")) && !valid.iter().any(|valid| valid == path);
    let files = fs::read_dir("/var/lib/cni").into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(|file| is_stale(&file.to_string_lossy())) {
        fs::remove_file(file).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The honest plugin's reply, but without the error if the kernel says that it cannot.
fn says_nothing(scene: &Scene, verb: Command) -> Reply {
    // Texts of ENOMEM, ENOBUFS, EOPNOTSUPP, ENOSPC and EIO: what other rules have refused is refused otherwise.
    const CANNOT: [&str; 5] =
        ["cannot allocate memory", "no buffer space", "not supported", "no space left", "input/output error"];
    let reply = scene.honest();
    let text = String::from_utf8_lossy(&reply.stdout).to_lowercase();
    match scene.is(verb) && reply.exit != 0 && CANNOT.iter().any(|cannot| text.contains(cannot)) {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
