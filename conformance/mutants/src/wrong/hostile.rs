//! Hostile input.

use super::says;
use crate::{Act, MutantCall, side_effect};
use skel::Reply;
use skel::cni_spec::Command::Add;
use std::fs;

/// Bytes that the half of a config has at least.
const SHORT: usize = 40;

/// Bytes that a name of another rule does not have.
const LONG: usize = 300;

pub(super) const ACTS: &[Act] = &[
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

/// The honest plugin's reply, but without the errors that have some text.
fn has_no_words(call: &MutantCall, texts: &[&str]) -> Reply {
    let reply = call.honest();
    match reply.exit != 0 && texts.iter().any(|text| says(&reply, text)) {
        true => Reply { stdout: Vec::new(), ..reply },
        false => reply,
    }
}
