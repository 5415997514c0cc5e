//! The kernel says no.

use crate::{Act, MutantCall, side_effect};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{self, Add, Del, Gc};
use std::fs;
use std::io::Write;

/// The file that plugins without other state write, and the start of its name.
const JOURNAL: &str = "/var/lib/cni/journal";

pub(super) const ACTS: &[Act] = &[
    ("fails-to-add-without-a-word", |call| says_nothing(call, Add)),
    ("fails-to-delete-without-a-word", |call| says_nothing(call, Del)),
    ("leaves-a-link-when-the-kernel-refuses", |call| {
        let reply = call.honest();
        if call.is(Add) && call.has_netns() && !call.has_kit_ipam() && reply.exit != 0 {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    ("writes-once", |call| {
        let (key, journal) = (call.attachment(), journal_of(call, &call.attachment()));
        let reply = call.after(Add, || {
            let written = fs::File::create(&journal).and_then(|mut file| file.write(key.as_bytes()));
            written.map(drop).unwrap_or_else(|error| panic!("{error}"));
        });
        if call.is(Gc) {
            remove_journals(call);
        }
        if call.is(Del) && fs::read_to_string(&journal).is_ok_and(|text| text != key) {
            return call.refuse(105, "the journal is damaged");
        }
        if call.is(Del) {
            fs::remove_file(&journal).ok(); // a second DEL finds none
        }
        reply
    }),
    ("has-no-words-for-a-full-disk", |call| says_nothing(call, Add)),
    ("writes-a-journal-to-delete", |call| {
        if !call.is(Del) {
            return call.honest();
        }
        if fs::write(JOURNAL, call.attachment()).is_err() {
            return call.refuse(105, "cannot write the journal");
        }
        let reply = call.honest();
        fs::remove_file(JOURNAL).ok(); // another call may have
        reply
    }),
];

/// The journal of an attachment to the call's network.
fn journal_of(call: &MutantCall, attachment: &str) -> String {
    format!("{JOURNAL}-{}-{attachment}", call.config()["name"].as_str().unwrap_or_default())
}

/// Removes journals of what is stale in the call's network.
fn remove_journals(call: &MutantCall) {
    let config = call.config();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let name = |entry: &Value| journal_of(call, &format!("{}-{}", text(entry, "containerID"), text(entry, "ifname")));
    let valid: Vec<_> = config["cni.dev/valid-attachments"].as_array().into_iter().flatten().map(name).collect();
    let is_stale = |path: &str| path.starts_with(&journal_of(call, "")) && !valid.iter().any(|valid| valid == path);
    let files = fs::read_dir("/var/lib/cni").into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(|file| is_stale(&file.to_string_lossy())) {
        fs::remove_file(file).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The honest plugin's reply, but without the error if the kernel says that it cannot.
fn says_nothing(call: &MutantCall, verb: Command) -> Reply {
    // Texts of ENOMEM, ENOBUFS, EOPNOTSUPP, ENOSPC and EIO: what other rules have refused is refused otherwise.
    const CANNOT: [&str; 5] =
        ["cannot allocate memory", "no buffer space", "not supported", "no space left", "input/output error"];
    let reply = call.honest();
    let text = String::from_utf8_lossy(&reply.stdout).to_lowercase();
    match call.is(verb) && reply.exit != 0 && CANNOT.iter().any(|cannot| text.contains(cannot)) {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
