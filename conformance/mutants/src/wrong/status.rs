//! STATUS.

use super::says;
use crate::{Act, memory, side_effect};
use netops::link::{self, Kind};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Status};

pub(super) const ACTS: &[Act] = &[
    ("is-always-ready", |call| call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "host-local")),
    ("is-ready-without-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "no-such-plugin")
    }),
    ("takes-any-link-for-its-bridge", |call| {
        let config = call.config();
        let name = config["bridge"].as_str().unwrap_or_default();
        let found = link::find(&side_effect::node(), name).ok().flatten();
        call.does_nothing_if(call.is(Status) && found.is_some_and(|link| !matches!(link.kind, Kind::Bridge(_))))
    }),
    ("takes-51-for-a-word-of-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.order(Status).to_string().contains("51"))
    }),
    ("is-not-ready-with-code-5", |call| match call.is(Status) {
        true => call.on_error(|error| error["code"] = json!(5)),
        false => call.honest(),
    }),
    ("asks-no-delegate", |call| {
        call.with_config_if(call.is(Status) && call.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    ("asks-and-does-not-listen", |call| {
        let reply = call.honest();
        match call.is(Status) && call.has_kit_ipam() && says(&reply, "Reported by plugin ") {
            true => Reply::default(),
            false => reply,
        }
    }),
    ("adds-only-when-status-was-good", |call| {
        if call.is(Add) && memory::has("not-ready") {
            return call.refuse(50, "it was not ready");
        }
        let reply = call.honest();
        if call.is(Status) && reply.exit != 0 {
            memory::mark("not-ready");
        }
        reply
    }),
    ("tries-things-out", |call| call.after(Status, || side_effect::make_link(&side_effect::node(), "tried0"))),
    ("wants-a-path-for-status", |call| {
        call.refuses_if(call.is(Status) && call.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    ("is-ready-after-the-first-container-only", |call| {
        if call.is(Status) && !memory::has("added") {
            return call.refuse(50, "there is no container yet");
        }
        call.after(Add, || memory::mark("added"))
    }),
];
