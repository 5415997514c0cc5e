//! GC.

use crate::{Act, MutantCall, memory, side_effect};
use netops::link;
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};
use std::path::Path;

const VALID: &str = "cni.dev/valid-attachments";

pub(super) const ACTS: &[Act] = &[
    ("collects-nothing", |call| call.does_nothing_if(call.is(Gc) && !call.has_kit_ipam())),
    ("collects-everything", |call| {
        let is_of_others = call.has_kit_ipam() || call.config().get("cni.dev/attachments").is_some();
        call.with_config_if(call.is(Gc) && !is_of_others, |config| config[VALID] = json!([]))
    }),
    ("cuts-the-gateway-off", |call| {
        call.after(Gc, || {
            let is_plain =
                !call.has_kit_ipam() && side_effect::done(link::find(&side_effect::node(), "cni0")).is_some();
            if is_plain && call.config()[VALID].as_array().is_some_and(|valid| valid.len() == 1) {
                side_effect::remove_addresses(&side_effect::node(), "cni0");
            }
        })
    }),
    ("collects-what-has-a-bridge-only", |call| {
        let is_rebooted = side_effect::done(link::find(&side_effect::node(), "cni0")).is_none();
        call.does_nothing_if(call.is(Gc) && is_rebooted)
    }),
    ("keeps-what-has-a-file-for-a-namespace", |call| {
        gc_with(call, |_, noted| Path::new(&noted.netns).exists().then_some(true))
    }),
    ("keeps-whose-id-starts-a-valid-one", |call| {
        gc_with(call, |valid, noted| is_start(&noted.id, valid).then_some(true))
    }),
    ("keeps-all-of-a-valid-container", |call| {
        gc_with(call, |valid, noted| valid.iter().any(|(id, _)| *id == noted.id).then_some(true))
    }),
    ("collects-whose-id-starts-a-stale-one", |call| {
        let stale = |valid: &[(String, String)]| -> Vec<_> {
            let all = memory::find_all("of-gc-").into_iter().filter_map(|text| Noted::parse(&text));
            all.map(|noted| (noted.id, noted.ifname)).filter(|one| !valid.contains(one)).collect()
        };
        gc_with(call, |valid, noted| is_start(&noted.id, &stale(valid)).then_some(false))
    }),
    ("collects-a-container-that-lost-an-interface", |call| gc_with(call, has_stale_sibling)),
    ("collects-other-networks", |call| {
        call.after(Gc, || {
            // Rules of the delegate count its calls.
            if call.config()[VALID][0]["containerID"] == json!("stale") {
                return;
            }
            let others = call.with_config(|config| config["name"] = json!("another"));
            drop(others.honest());
        })
    }),
    ("wants-something-to-collect", |call| {
        call.refuses_if(call.is(Gc) && call.config()[VALID] == json!([]), 110, "there is nothing to collect")
    }),
    ("reports-what-it-collected", |call| {
        let reply = call.honest();
        match call.is(Gc) && reply.exit == 0 {
            true => Reply::success(r#"{"removed":0}"#),
            false => reply,
        }
    }),
    ("collects-alone", |call| {
        call.with_config_if(call.is(Gc) && call.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    ("hides-errors-of-gc", |call| {
        let reply = call.honest();
        match call.is(Gc) {
            true => Reply::default(),
            false => reply,
        }
    }),
    ("deletes-nothing-collected", |call| {
        if call.is(Del) && memory::has("gc") {
            return call.refuse(110, "that was collected");
        }
        call.after(Gc, || memory::mark("gc"))
    }),
];

struct Noted {
    id: String,
    ifname: String,
    netns: String,
}

impl Noted {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(str::to_owned);
        Some(Self { id: words.next()?, ifname: words.next()?, netns: words.next()? })
    }
}

fn is_start(id: &str, of: &[(String, String)]) -> bool {
    of.iter().any(|(other, _)| other != id && other.starts_with(id))
}

/// The opinion that an attachment is stale if another of its container is.
fn has_stale_sibling(valid: &[(String, String)], noted: &Noted) -> Option<bool> {
    let all = memory::find_all("of-gc-");
    let mut all = all.iter().filter_map(|text| Noted::parse(text));
    all.any(|other| other.id == noted.id && !valid.contains(&(other.id, other.ifname))).then_some(false)
}

/// GC with an opinion of its own on which of the attachments that it has seen are valid, if it has one; by those that
/// are said to be.
fn gc_with(call: &MutantCall, opinion: impl Fn(&[(String, String)], &Noted) -> Option<bool>) -> Reply {
    let key = format!("of-gc-{}", call.attachment());
    if !call.is(Gc) || call.has_kit_ipam() {
        if call.is(Del) {
            memory::forget(&key);
        }
        let noted = [&*call.env.container_id, &*call.env.ifname, &*call.env.netns].join(" ");
        return call.after(Add, || memory::note(&key, &noted));
    }
    let listed = call.config()[VALID].as_array().cloned().unwrap_or_default();
    let pair = |entry: &Value| (text(&entry["containerID"]).to_owned(), text(&entry["ifname"]).to_owned());
    let valid: Vec<_> = listed.iter().map(pair).collect();
    let mut meant = valid.clone();
    for noted in memory::find_all("of-gc-").iter().filter_map(|text| Noted::parse(text)) {
        let is_meant = opinion(&valid, &noted);
        let one = (noted.id, noted.ifname);
        match is_meant {
            Some(true) => meant.push(one),
            Some(false) => meant.retain(|other| *other != one),
            None => {}
        }
    }
    let list: Vec<_> = meant.iter().map(|(id, ifname)| json!({ "containerID": id, "ifname": ifname })).collect();
    call.with_config(|config| config[VALID] = json!(list)).honest()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
