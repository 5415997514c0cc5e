//! GC.

use crate::{Mutant, memory, side_effect};
use netops::link;
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};

const VALID: &str = "cni.dev/valid-attachments";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "gc.removes-what-is-stale", "collects-nothing", |scene| {
        match scene.is(Gc) && !scene.has_kit_ipam() {
            true => Reply::default(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "gc.keeps-what-is-valid", "collects-everything", |scene| {
        let is_of_others = scene.has_kit_ipam() || scene.config().get("cni.dev/attachments").is_some();
        match scene.is(Gc) && !is_of_others {
            true => scene.with_config(|config| config[VALID] = json!([])).honest(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "gc.keeps-what-is-valid", "cuts-the-gateway-off", |scene| {
        scene.after(Gc, || {
            let is_plain =
                !scene.has_kit_ipam() && side_effect::done(link::find(&side_effect::node(), "cni0")).is_some();
            if is_plain && scene.config()[VALID].as_array().is_some_and(|valid| valid.len() == 1) {
                side_effect::remove_addresses(&side_effect::node(), "cni0");
            }
        })
    })
    .also(&["relied.gc-with-both-keys"])
    .with(&["packets-still-pass"]),
    Mutant::new("bridge", "gc.removes-what-is-stale", "collects-what-has-a-bridge-only", |scene| {
        let is_rebooted = side_effect::done(link::find(&side_effect::node(), "cni0")).is_none();
        match scene.is(Gc) && is_rebooted {
            true => Reply::default(),
            false => scene.honest(),
        }
    })
    .also(&["gc.forwards"])
    .with(&["after-a-reboot"]),
    Mutant::new("bridge", "gc.keeps-other-networks", "collects-other-networks", |scene| {
        scene.after(Gc, || {
            // Rules of the delegate count its calls.
            if scene.config()[VALID][0]["containerID"] == json!("stale") {
                return;
            }
            let others = scene.with_config(|config| config["name"] = json!("another"));
            drop(others.honest());
        })
    })
    .also(&["delegation.same-environment"]),
    Mutant::new("bridge", "gc.succeeds", "wants-something-to-collect", |scene| {
        match scene.is(Gc) && scene.config()[VALID] == json!([]) {
            true => scene.refuse(110, "there is nothing to collect"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "gc.prints-nothing", "reports-what-it-collected", |scene| {
        let reply = scene.honest();
        match scene.is(Gc) && reply.exit == 0 {
            true => Reply::success(r#"{"removed":0}"#),
            false => reply,
        }
    }),
    Mutant::new("bridge", "gc.forwards", "collects-alone", |scene| match scene.is(Gc) && scene.has_kit_ipam() {
        true => scene.with_config(|config| config["ipam"] = json!({})).honest(),
        false => scene.honest(),
    }),
    Mutant::new("bridge", "gc.goes-on-past-errors", "hides-errors-of-gc", |scene| {
        let reply = scene.honest();
        match scene.is(Gc) {
            true => Reply::default(),
            false => reply,
        }
    }),
    Mutant::new("bridge", "gc.is-followed-by-del", "deletes-nothing-collected", |scene| {
        if scene.is(Del) && memory::has("gc") {
            return scene.refuse(110, "that was collected");
        }
        scene.after(Gc, || memory::mark("gc"))
    }),
    Mutant::new("bridge", "gc.succeeds", "wants-to-know-the-valid-ones", |scene| {
        let config = scene.config();
        let mut valid = config[VALID].as_array().into_iter().flatten();
        let is_known =
            |entry: &Value| memory::has(&format!("{}-{}", text(&entry["containerID"]), text(&entry["ifname"])));
        match scene.is(Gc) && !valid.all(is_known) {
            true => {
                drop(scene.honest());
                scene.refuse(110, "that attachment is unknown")
            }
            false => scene.after(Add, || memory::mark(&scene.attachment())),
        }
    }),
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
