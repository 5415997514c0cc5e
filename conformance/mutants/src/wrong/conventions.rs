//! CONVENTIONS.

use crate::{Act, MutantCall};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const ACTS: &[Act] = &[
    ("maps-no-ports", |call| without(call, "/runtimeConfig", "portMappings")),
    ("limits-nothing", |call| without(call, "/runtimeConfig", "bandwidth")),
    ("knows-no-ranges-of-runtimes", |call| without(call, "/runtimeConfig", "ipRanges")),
    ("knows-no-ips-of-runtimes", |call| without(call, "/runtimeConfig", "ips")),
    ("knows-no-ips-in-args", |call| without(call, "/args/cni", "ips")),
    ("knows-no-ip-in-cni-args", |call| without_arg(call, "IP=")),
    ("prefers-cni-args", |call| match call.env.args.contains("IP=") {
        true => without(call, "/args/cni", "ips"),
        false => call.honest(),
    }),
    ("knows-no-mac-of-runtimes", |call| {
        // The MAC address is ignored only where nothing else names one, so that precedence is not at issue.
        match call.env.args.is_empty() && call.config().get("args").is_none() {
            true => without(call, "/runtimeConfig", "mac"),
            false => call.honest(),
        }
    }),
    ("knows-no-mac-in-cni-args", |call| without_arg(call, "MAC=")),
    ("refuses-labels-of-cni", |call| {
        call.refuses_if(
            !call.has_kit_ipam() && call.config().pointer("/args/cni/labels").is_some(),
            7,
            "args.cni.labels is unknown",
        )
    }),
    ("crashes-by-its-keys-in-args", |call| match call.is(Add) && call.config().pointer("/args/cni/bridge").is_some() {
        true => Reply { stdout: Vec::new(), exit: 2 },
        false => call.honest(),
    }),
    ("takes-cni-args-for-stronger", |call| {
        let mac = call.env.args.split(';').find_map(|pair| pair.strip_prefix("MAC="));
        match mac {
            Some(mac) => call.with_config(|config| config["runtimeConfig"]["mac"] = json!(mac)).honest(),
            None => call.honest(),
        }
    }),
    ("refuses-unknown-args-in-any-case", |call| {
        call.refuses_if(
            call.is(Add) && !call.has_kit_ipam() && call.env.args.contains("CONFORMANCE"),
            4,
            "unknown args",
        )
    }),
];

fn without(call: &MutantCall, place: &str, key: &str) -> Reply {
    let less = call.with_config(|config| {
        config.pointer_mut(place).and_then(Value::as_object_mut).map(|object| object.shift_remove(key));
    });
    less.honest()
}

/// The call without a pair of `CNI_ARGS`.
fn without_arg(call: &MutantCall, start: &str) -> Reply {
    let others: Vec<_> = call.env.args.split(';').filter(|pair| !pair.starts_with(start)).collect();
    call.with_env(|env| env.args = others.join(";")).honest()
}
