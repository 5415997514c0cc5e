//! Faults that show when calls are killed, fail, come at once, at random, or are hostile.

use super::says;
use crate::{Act, MutantCall, memory, side_effect};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{self, Add, Del, Gc};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

pub(super) const ACTS: &[Act] = &[
    // Calls that are killed.
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
    // The kernel says no.
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
    // Many calls at once.
    ("gives-one-address-at-a-time", |call| match call.is(Add) {
        true => alone(call),
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
        true => alone(call),
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
    // Random operations.
    ("keeps-addresses-of-those-who-vanished", |call| {
        let count = memory::find("count").map_or(0, |count| count.parse::<usize>().unwrap_or_default());
        match call.is(Del) && !call.has_netns() && count > BUSY {
            true => Reply::default(),
            false => call.after(Add, || memory::note("count", &(count + 1).to_string())),
        }
    }),
    // Hostile input.
    ("has-no-words-for-bad-input", |call| has_no_words(call, &["\"code\": 6", "\"code\": 7"])),
    ("has-no-words-for-a-bad-environment", |call| {
        let is_long = call.env.container_id.len() > LONG || call.env.ifname.len() > LONG;
        has_no_words(call, if is_long { &["\"code\": 4"] } else { &[] })
    }),
    ("writes-a-file-of-any-name", |call| {
        // Write only to one of the kit's witnesses, by whichever path: the disk behind may be the machine's own.
        if call.config()["name"].as_str().is_some_and(|name| name.contains("../") && name.ends_with("/run/owned")) {
            fs::write("/run/owned", call.attachment()).unwrap_or_else(|error| panic!("{error}"));
        }
        call.honest()
    }),
    ("leaves-a-link-when-it-refuses", |call| {
        let (reply, stdin) = (call.honest(), call.stdin());
        // The beginning of a config, shorter than in other rules.
        let is_cut = stdin.starts_with(b"{\"") && stdin.len() < SHORT && call.config().is_null();
        if call.asks(Add) && reply.exit != 0 && is_cut {
            side_effect::make_link(&side_effect::node(), "refused0");
        }
        reply
    }),
];

/// The file that plugins without other state write, and the start of its name.
const JOURNAL: &str = "/var/lib/cni/journal";

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

/// The socket on which the call that serves listens, below the testbed's own folder.
const SOCKET: &str = "/run/testns/mutant-is-busy";

/// The time that a call waits for another to be refused.
const PATIENCE: Duration = Duration::from_secs(2);

/// The number of calls that wait in vain before none waits any more: on most testbeds calls come one by one.
const VAIN: usize = 4;

/// The first call waits for another, so that they meet on any machine; the other is refused.
pub(super) fn alone(call: &MutantCall) -> Reply {
    if memory::has("refused") || memory::has(&format!("in-vain-{VAIN}")) {
        return call.honest();
    }
    let Ok(listener) = UnixListener::bind(SOCKET) else {
        memory::mark("refused");
        drop(UnixStream::connect(SOCKET));
        return call.refuse(110, "another container is being served");
    };
    // A thread of its own waits, as `accept` has no deadline.
    let (came, news) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let other = listener.accept().map(|(mut other, _)| other.read(&mut [0]).is_ok());
        came.send(other.is_ok()).ok();
    });
    if news.recv_timeout(PATIENCE).is_err() {
        let vain = (1..=VAIN).find(|number| !memory::has(&format!("in-vain-{number}")));
        vain.into_iter().for_each(|number| memory::mark(&format!("in-vain-{number}")));
    }
    std::fs::remove_file(SOCKET).ok();
    call.honest()
}

/// A number of ADDs that no other rule makes.
const BUSY: usize = 10;

/// Bytes that the half of a config has at least.
const SHORT: usize = 40;

/// Bytes that a name of another rule does not have.
const LONG: usize = 300;

/// The honest plugin's reply, but without the errors that have some text.
fn has_no_words(call: &MutantCall, texts: &[&str]) -> Reply {
    let reply = call.honest();
    match reply.exit != 0 && texts.iter().any(|text| says(&reply, text)) {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
