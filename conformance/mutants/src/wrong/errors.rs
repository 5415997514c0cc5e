//! Error objects.

use crate::{Mutant, MutantCall, side_effect};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "errors.exit-status", "bears-any-command", |call| match call.env.find_command() {
        // The error is printed all the same.
        None => Reply { exit: 0, ..call.honest() },
        Some(_) => call.honest(),
    }),
    Mutant::new("bridge", "errors.object", "says-the-code-as-a-text", |call| {
        call.on_error(|error| error["code"] = json!(error["code"].to_string()))
    }),
    Mutant::new("bridge", "errors.object-in-0.4.0", "says-the-code-as-a-text-in-0.4.0", |call| {
        call.on_error(|error| error["code"] = json!(error["code"].to_string()))
    })
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "errors.version", "fails-in-its-own-version", |call| {
        call.on_error(|error| error["cniVersion"] = json!("1.0.0"))
    })
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "errors.reserved-codes", "uses-a-reserved-code", |call| {
        call.on_error(|error| {
            // Of a namespace that is not there: what is said of others is other rules'.
            if error["code"] == 8 && error["msg"].as_str().is_some_and(|msg| msg.contains("no such file")) {
                error["code"] = json!(42);
            }
        })
    }),
    Mutant::new("bridge", "errors.1-incompatible-version", "calls-a-version-invalid", |call| other_code(call, 1, 7))
        .also(&["relied.words"]),
    Mutant::new("bridge", "errors.2-unsupported-field", "names-no-value-of-a-field", |call| {
        let config = call.config();
        let is_unknown = config["zzConformance"].is_string();
        call.refuses_if(call.is(Add) && is_unknown, 2, "unsupported field zzConformance")
    }),
    Mutant::new("bridge", "errors.3-container-unknown", "knows-no-container-and-leaves-a-link", |call| {
        if call.is(Add) && !call.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
            return call.refuse(3, "container unknown: no such file or directory");
        }
        call.honest()
    })
    .also(&["add.failed-leaves-nothing", "del.cleans-up-a-failed-add"])
    .unasked(),
    Mutant::new("bridge", "errors.4-names-variables", "says-that-some-variable-is-wrong", |call| {
        call.on_error(|error| {
            if error["code"] == 4 && error["msg"].as_str().is_some_and(|msg| msg.starts_with("required ")) {
                error["msg"] = json!("the environment is not as it should be");
            }
        })
    })
    .also(&["relied.words"]),
    Mutant::new("bridge", "errors.4-invalid-variables", "calls-a-missing-variable-code-7", |call| {
        other_code(call, 4, 7)
    }),
    Mutant::new("bridge", "errors.5-io", "has-one-code-for-reading-and-decoding", |call| other_code(call, 5, 6)),
    Mutant::new("bridge", "errors.6-undecodable", "calls-no-json-invalid", |call| other_code(call, 6, 7)),
    Mutant::new("bridge", "errors.7-invalid-config", "calls-a-config-undecodable", |call| other_code(call, 7, 6)),
    Mutant::new("bridge", "errors.exit-status", "fails-with-0", |call| Reply { exit: 0, ..call.honest() }),
    Mutant::new("bridge", "errors.reserved-codes", "uses-a-reserved-code-for-configs", |call| other_code(call, 7, 42))
        .also(&["errors.7-invalid-config"]),
    Mutant::new("bridge", "errors.reserved-codes-in-0.4.0", "uses-a-reserved-code-in-0.4.0", |call| {
        other_code(call, 7, 42)
    })
    .speaking(&["0.4.0"]),
];

/// Replaces an error's code with another.
fn other_code(call: &MutantCall, code: u32, other: u32) -> Reply {
    call.on_error(|error| {
        if error["code"] == code {
            error["code"] = json!(other);
        }
    })
}
