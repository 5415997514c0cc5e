//! CONVENTIONS.

use crate::{Mutant, Scene};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("portmap", "conventions.port-mappings", "maps-no-ports", |scene| {
        without(scene, "/runtimeConfig", "portMappings")
    })
    // The first DEL of a node then makes the file that is locked.
    .also(&["del.of-nothing-changes-nothing"]),
    Mutant::new("bandwidth", "conventions.bandwidth", "limits-nothing", |scene| {
        without(scene, "/runtimeConfig", "bandwidth")
    }),
    Mutant::new("host-local", "conventions.ip-ranges", "knows-no-ranges-of-runtimes", |scene| {
        without(scene, "/runtimeConfig", "ipRanges")
    }),
    Mutant::new("host-local", "conventions.ips", "knows-no-ips-of-runtimes", |scene| {
        without(scene, "/runtimeConfig", "ips")
    }),
    Mutant::new("host-local", "conventions.args-ips", "knows-no-ips-in-args", |scene| {
        without(scene, "/args/cni", "ips")
    })
    .also(&["conventions.args-win"]),
    Mutant::new("host-local", "conventions.cni-args-ip", "knows-no-ip-in-cni-args", |scene| without_arg(scene, "IP=")),
    Mutant::new("host-local", "conventions.args-win", "prefers-cni-args", |scene| {
        match scene.env.args.contains("IP=") {
            true => without(scene, "/args/cni", "ips"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "conventions.mac", "knows-no-mac-of-runtimes", |scene| {
        // The MAC address is ignored only where nothing else names one, so that precedence is not at issue.
        match scene.env.args.is_empty() && scene.config().get("args").is_none() {
            true => without(scene, "/runtimeConfig", "mac"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "conventions.cni-args-mac", "knows-no-mac-in-cni-args", |scene| without_arg(scene, "MAC=")),
    Mutant::new("bridge", "conventions.args-are-optional", "refuses-labels-of-cni", |scene| {
        scene.refuses_if(
            !scene.has_kit_ipam() && scene.config().pointer("/args/cni/labels").is_some(),
            7,
            "args.cni.labels is unknown",
        )
    }),
    Mutant::new("bridge", "conventions.args-are-optional", "crashes-by-its-keys-in-args", |scene| {
        match scene.is(Add) && scene.config().pointer("/args/cni/bridge").is_some() {
            true => Reply { stdout: Vec::new(), exit: 2 },
            false => scene.honest(),
        }
    })
    .with(&["keys-of-the-config"]),
    Mutant::new("bridge", "conventions.ignore-unknown", "wants-ignore-unknown-first", |scene| {
        scene.refuses_if(
            scene.is(Add) && !scene.env.args.is_empty() && !scene.env.args.starts_with("IgnoreUnknown"),
            4,
            "unknown args",
        )
    })
    .also(&["relied.kubernetes-args"]),
    Mutant::new("bridge", "conventions.runtime-config-is-strongest", "takes-cni-args-for-stronger", |scene| {
        let mac = scene.env.args.split(';').find_map(|pair| pair.strip_prefix("MAC="));
        match mac {
            Some(mac) => scene.with_config(|config| config["runtimeConfig"]["mac"] = json!(mac)).honest(),
            None => scene.honest(),
        }
    }),
    Mutant::new("bridge", "conventions.ignore-unknown", "refuses-unknown-args-in-any-case", |scene| {
        scene.refuses_if(
            scene.is(Add) && !scene.has_kit_ipam() && scene.env.args.contains("CONFORMANCE"),
            4,
            "unknown args",
        )
    }),
];

fn without(scene: &Scene, place: &str, key: &str) -> Reply {
    let less = scene.with_config(|config| {
        config.pointer_mut(place).and_then(Value::as_object_mut).map(|object| object.shift_remove(key));
    });
    less.honest()
}

/// The call without a pair of `CNI_ARGS`.
fn without_arg(scene: &Scene, start: &str) -> Reply {
    let others: Vec<_> = scene.env.args.split(';').filter(|pair| !pair.starts_with(start)).collect();
    scene.with_env(|env| env.args = others.join(";")).honest()
}
