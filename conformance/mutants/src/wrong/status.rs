//! STATUS.

use super::says;
use crate::{Mutant, memory, side_effect};
use netops::link::{self, Kind};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Status};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "status.ready", "is-ready-before-the-first-container-only", |call| {
        if call.is(Status) && memory::has("added") {
            return call.refuse(50, "there is a container already");
        }
        call.after(Add, || memory::mark("added"))
    }),
    Mutant::new("bridge", "status.not-ready", "is-always-ready", |call| {
        call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "host-local")
    })
    .with(&["addresses-exhausted"])
    .also(&["status.foresees-a-refused-add"]),
    Mutant::new("bridge", "status.foresees-a-refused-add", "is-ready-without-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "no-such-plugin")
    })
    .with(&["delegate-missing"]),
    Mutant::new("bridge", "status.foresees-a-refused-add", "takes-any-link-for-its-bridge", |call| {
        let config = call.config();
        let name = config["bridge"].as_str().unwrap_or_default();
        let found = link::find(&side_effect::node(), name).ok().flatten();
        call.does_nothing_if(call.is(Status) && found.is_some_and(|link| !matches!(link.kind, Kind::Bridge(_))))
    })
    .with(&["bridge-is-no-bridge"]),
    Mutant::new("bridge", "status.delegate-not-ready", "takes-51-for-a-word-of-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.order(Status).to_string().contains("51"))
    })
    .with(&["code-51"]),
    Mutant::new("bridge", "status.not-ready-codes", "is-not-ready-with-code-5", |call| match call.is(Status) {
        true => call.on_error(|error| error["code"] = json!(5)),
        false => call.honest(),
    }),
    Mutant::new("bridge", "status.forwards", "asks-no-delegate", |call| {
        call.with_config_if(call.is(Status) && call.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    Mutant::new("bridge", "status.delegate-not-ready", "asks-and-does-not-listen", |call| {
        let reply = call.honest();
        match call.is(Status) && call.has_kit_ipam() && says(&reply, "Reported by plugin ") {
            true => Reply::default(),
            false => reply,
        }
    }),
    Mutant::new("bridge", "status.is-not-needed", "adds-only-when-status-was-good", |call| {
        if call.is(Add) && memory::has("not-ready") {
            return call.refuse(50, "it was not ready");
        }
        let reply = call.honest();
        if call.is(Status) && reply.exit != 0 {
            memory::mark("not-ready");
        }
        reply
    }),
    Mutant::new("bridge", "status.changes-nothing", "tries-things-out", |call| {
        call.after(Status, || side_effect::make_link(&side_effect::node(), "tried0"))
    }),
    Mutant::new("host-local", "status.cni-path-is-optional", "wants-a-path-for-status", |call| {
        call.refuses_if(call.is(Status) && call.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    Mutant::new("bridge", "status.ready", "is-ready-after-the-first-container-only", |call| {
        if call.is(Status) && !memory::has("added") {
            return call.refuse(50, "there is no container yet");
        }
        call.after(Add, || memory::mark("added"))
    }),
];
