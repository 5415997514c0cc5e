//! Error objects.

use crate::{Act, MutantCall, side_effect};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const ACTS: &[Act] = &[
    ("says-the-code-as-a-text", |call| call.on_error(|error| error["code"] = json!(error["code"].to_string()))),
    ("fails-in-its-own-version", |call| call.on_error(|error| error["cniVersion"] = json!("1.0.0"))),
    ("calls-a-version-invalid", |call| other_code(call, 1, 7)),
    ("names-no-value-of-a-field", |call| {
        let config = call.config();
        let is_unknown = config["zzConformance"].is_string();
        call.refuses_if(call.is(Add) && is_unknown, 2, "unsupported field zzConformance")
    }),
    ("knows-no-container-and-leaves-a-link", |call| {
        if call.is(Add) && !call.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
            return call.refuse(3, "container unknown: no such file or directory");
        }
        call.honest()
    }),
    ("says-that-some-variable-is-wrong", |call| {
        call.on_error(|error| {
            if error["code"] == 4 && error["msg"].as_str().is_some_and(|msg| msg.starts_with("required ")) {
                error["msg"] = json!("the environment is not as it should be");
            }
        })
    }),
    ("calls-a-missing-variable-code-7", |call| other_code(call, 4, 7)),
    ("has-one-code-for-reading-and-decoding", |call| other_code(call, 5, 6)),
    ("calls-no-json-invalid", |call| other_code(call, 6, 7)),
    ("calls-a-config-undecodable", |call| other_code(call, 7, 6)),
    ("fails-with-0", |call| Reply { exit: 0, ..call.honest() }),
    ("uses-a-reserved-code-for-configs", |call| other_code(call, 7, 42)),
    ("uses-a-reserved-code-in-0.4.0", |call| other_code(call, 7, 42)),
];

/// Replaces an error's code with another.
fn other_code(call: &MutantCall, code: u32, other: u32) -> Reply {
    call.on_error(|error| {
        if error["code"] == code {
            error["code"] = json!(other);
        }
    })
}
