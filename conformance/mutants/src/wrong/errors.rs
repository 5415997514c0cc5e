//! Error objects.

use crate::{Mutant, Scene, side_effect};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "errors.exit-status", "bears-any-command", |scene| match scene.env.find_command() {
        // The error is printed all the same.
        None => Reply { exit: 0, ..scene.honest() },
        Some(_) => scene.honest(),
    }),
    Mutant::new("bridge", "errors.object", "says-the-code-as-a-text", |scene| {
        scene.on_error(|error| error["code"] = json!(error["code"].to_string()))
    }),
    Mutant::new("bridge", "errors.object-in-0.4.0", "says-the-code-as-a-text-in-0.4.0", |scene| {
        scene.on_error(|error| error["code"] = json!(error["code"].to_string()))
    })
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "errors.version", "fails-in-its-own-version", |scene| {
        scene.on_error(|error| error["cniVersion"] = json!("1.0.0"))
    })
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "errors.reserved-codes", "uses-a-reserved-code", |scene| {
        scene.on_error(|error| {
            // Of a namespace that is not there: what is said of others is other rules'.
            if error["code"] == 8 && error["msg"].as_str().is_some_and(|msg| msg.contains("no such file")) {
                error["code"] = json!(42);
            }
        })
    }),
    Mutant::new("bridge", "errors.1-incompatible-version", "calls-a-version-invalid", |scene| other_code(scene, 1, 7))
        .also(&["relied.words"]),
    Mutant::new("bridge", "errors.2-unsupported-field", "names-no-value-of-a-field", |scene| {
        let config = scene.config();
        let is_unknown = config["zzConformance"].is_string();
        scene.refuses_if(scene.is(Add) && is_unknown, 2, "unsupported field zzConformance")
    }),
    Mutant::new("bridge", "errors.3-container-unknown", "knows-no-container-and-leaves-a-link", |scene| {
        if scene.is(Add) && !scene.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
            return scene.refuse(3, "container unknown: no such file or directory");
        }
        scene.honest()
    })
    .also(&["add.failed-leaves-nothing", "del.cleans-up-a-failed-add"])
    .unasked(),
    Mutant::new("bridge", "errors.4-names-variables", "says-that-some-variable-is-wrong", |scene| {
        scene.on_error(|error| {
            if error["code"] == 4 && error["msg"].as_str().is_some_and(|msg| msg.starts_with("required ")) {
                error["msg"] = json!("the environment is not as it should be");
            }
        })
    })
    .also(&["relied.words"]),
    Mutant::new("bridge", "errors.4-invalid-variables", "calls-a-missing-variable-code-7", |scene| {
        other_code(scene, 4, 7)
    }),
    Mutant::new("bridge", "errors.5-io", "has-one-code-for-reading-and-decoding", |scene| other_code(scene, 5, 6)),
    Mutant::new("bridge", "errors.6-undecodable", "calls-no-json-invalid", |scene| other_code(scene, 6, 7)),
    Mutant::new("bridge", "errors.7-invalid-config", "calls-a-config-undecodable", |scene| other_code(scene, 7, 6)),
    Mutant::new("bridge", "errors.exit-status", "fails-with-0", |scene| Reply { exit: 0, ..scene.honest() }),
    Mutant::new("bridge", "errors.reserved-codes", "uses-a-reserved-code-for-configs", |scene| {
        other_code(scene, 7, 42)
    })
    .also(&["errors.7-invalid-config"]),
    Mutant::new("bridge", "errors.reserved-codes-in-0.4.0", "uses-a-reserved-code-in-0.4.0", |scene| {
        other_code(scene, 7, 42)
    })
    .speaking(&["0.4.0"]),
];

/// Replaces an error's code with another.
fn other_code(scene: &Scene, code: u32, other: u32) -> Reply {
    scene.on_error(|error| {
        if error["code"] == code {
            error["code"] = json!(other);
        }
    })
}
