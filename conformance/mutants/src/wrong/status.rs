//! STATUS.

use super::says;
use crate::{Mutant, memory, side_effect};
use netops::link::{self, Kind};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Status};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "status.ready", "is-ready-before-the-first-container-only", |scene| {
        if scene.is(Status) && memory::has("added") {
            return scene.refuse(50, "there is a container already");
        }
        scene.after(Add, || memory::mark("added"))
    }),
    Mutant::new("bridge", "status.not-ready", "is-always-ready", |scene| {
        scene.does_nothing_if(scene.is(Status) && scene.config()["ipam"]["type"] == "host-local")
    })
    .with(&["addresses-exhausted"])
    .also(&["status.foresees-a-refused-add"]),
    Mutant::new("bridge", "status.foresees-a-refused-add", "is-ready-without-its-delegate", |scene| {
        scene.does_nothing_if(scene.is(Status) && scene.config()["ipam"]["type"] == "no-such-plugin")
    })
    .with(&["delegate-missing"]),
    Mutant::new("bridge", "status.foresees-a-refused-add", "takes-any-link-for-its-bridge", |scene| {
        let config = scene.config();
        let name = config["bridge"].as_str().unwrap_or_default();
        let found = link::find(&side_effect::node(), name).ok().flatten();
        scene.does_nothing_if(scene.is(Status) && found.is_some_and(|link| !matches!(link.kind, Kind::Bridge(_))))
    })
    .with(&["bridge-is-no-bridge"]),
    Mutant::new("bridge", "status.delegate-not-ready", "takes-51-for-a-word-of-its-delegate", |scene| {
        scene.does_nothing_if(scene.is(Status) && scene.order(Status).to_string().contains("51"))
    })
    .with(&["code-51"]),
    Mutant::new("bridge", "status.not-ready-codes", "is-not-ready-with-code-5", |scene| match scene.is(Status) {
        true => scene.on_error(|error| error["code"] = json!(5)),
        false => scene.honest(),
    }),
    Mutant::new("bridge", "status.forwards", "asks-no-delegate", |scene| {
        scene.with_config_if(scene.is(Status) && scene.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    Mutant::new("bridge", "status.delegate-not-ready", "asks-and-does-not-listen", |scene| {
        let reply = scene.honest();
        match scene.is(Status) && scene.has_kit_ipam() && says(&reply, "Reported by plugin ") {
            true => Reply::default(),
            false => reply,
        }
    }),
    Mutant::new("bridge", "status.is-not-needed", "adds-only-when-status-was-good", |scene| {
        if scene.is(Add) && memory::has("not-ready") {
            return scene.refuse(50, "it was not ready");
        }
        let reply = scene.honest();
        if scene.is(Status) && reply.exit != 0 {
            memory::mark("not-ready");
        }
        reply
    }),
    Mutant::new("bridge", "status.changes-nothing", "tries-things-out", |scene| {
        scene.after(Status, || side_effect::make_link(&side_effect::node(), "tried0"))
    }),
    Mutant::new("host-local", "status.cni-path-is-optional", "wants-a-path-for-status", |scene| {
        scene.refuses_if(scene.is(Status) && scene.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    Mutant::new("bridge", "status.ready", "is-ready-after-the-first-container-only", |scene| {
        if scene.is(Status) && !memory::has("added") {
            return scene.refuse(50, "there is no container yet");
        }
        scene.after(Add, || memory::mark("added"))
    }),
];
