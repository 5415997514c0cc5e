//! Faults in the reading of the configuration.

use crate::{Act, MutantCall};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::Add;
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    ("takes-any-name-of-a-network", |call| {
        let config = call.config();
        let name = config["name"].as_str().unwrap_or_default();
        call.with_config_if(name.is_empty() || name.contains(['/', ' ']) || name == "..", |config| {
            config["name"] = json!("a-network")
        })
    }),
    ("takes-short-names-only", |call| {
        call.refuses_if(
            call.config()["name"].as_str().is_some_and(|name| name.len() > 32),
            7,
            "the name is longer than 32",
        )
    }),
    ("refuses-keys-without-naming-them", |call| refuses(call, |key| key.starts_with("com."))),
    ("refuses-labels", |call| {
        call.refuses_if(call.config().pointer("/args/labels").is_some(), 7, "args.labels is unknown")
    }),
    ("refuses-reserved-keys", |call| refuses(call, |key| key.starts_with("cni.dev/"))),
    ("does-not-masquerade", |call| match call.has_kit_ipam() {
        true => call.honest(),
        false => call.with_config(|config| config["ipMasq"] = json!(false)).honest(),
    }),
    ("runs-any-path", |call| {
        let config = call.config();
        let kind = config["ipam"]["type"].as_str().unwrap_or_default();
        if call.is(Add) && kind.contains('/') {
            let executable = Path::new(&call.env.path).join(kind);
            let run = crate::delegate::run(&executable, call, Add);
            return call.refuse(110, &format!("its delegate said {}", String::from_utf8_lossy(&run.stdout)));
        }
        call.honest()
    }),
    ("sorts-nameservers", |call| {
        call.reports(|result| {
            if let Some(servers) = result.pointer_mut("/dns/nameservers").and_then(Value::as_array_mut) {
                servers.sort_by_key(ToString::to_string);
            }
        })
    }),
];

/// An ADD with a key at the top that it does not know is an error that does not say which.
fn refuses(call: &MutantCall, is_unknown: fn(&str) -> bool) -> Reply {
    let config = call.config();
    call.refuses_if(
        call.is(Add) && config.as_object().is_some_and(|config| config.keys().any(|key| is_unknown(key))),
        7,
        "there is an unknown key",
    )
}
