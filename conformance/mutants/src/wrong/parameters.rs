//! What a plugin reads from its environment.

use crate::{Mutant, Scene};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "parameters.required-of-add", "makes-up-an-id", |scene| {
        match scene.is(Add) && scene.env.container_id.is_empty() {
            true => scene.with_env(|env| env.container_id = "somebody".to_owned()).honest(),
            false => scene.honest(),
        }
    })
    .also(&["errors.4-names-variables", "relied.missing-variables-text"]),
    Mutant::new("bridge", "parameters.required-of-del", "deletes-nobody", |scene| {
        match scene.is(Del) && scene.env.container_id.is_empty() {
            true => Reply::default(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.required-of-check", "checks-nobody", |scene| {
        match scene.is(Check) && scene.env.ifname.is_empty() {
            true => Reply::default(),
            false => scene.honest(),
        }
    }),
    Mutant::new("host-local", "parameters.path-is-optional", "wants-a-path", |scene| {
        match scene.is(Del) && scene.env.path.is_empty() {
            true => scene.refuse(4, "required env variables [CNI_PATH] missing"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.unknown-command-is-an-error", "takes-commands-in-lower-case", |scene| {
        scene.with_env(|env| env.command.make_ascii_uppercase()).honest()
    }),
    Mutant::new("bridge", "parameters.config-is-one-json-object", "takes-the-first-of-a-list", |scene| {
        match scene.config() {
            Value::Array(list) => scene.with_stdin(list.first().map(Value::to_string).unwrap_or_default()).honest(),
            _ => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.container-id-is-a-name", "takes-any-id", |scene| {
        let id: String = scene.env.container_id.chars().filter(char::is_ascii_alphanumeric).collect();
        match scene.env.container_id.contains(['/', ' ', '\n']) || scene.env.container_id.starts_with('-') {
            true => scene.with_env(|env| env.container_id = id).honest(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.every-container-id-works", "takes-short-ids-only", |scene| {
        match scene.env.container_id.len() > 32 {
            true => scene.refuse(4, "CNI_CONTAINERID is longer than 32"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.ifname-is-used-or-refused", "uses-the-start-of-a-name", |scene| {
        shortens(scene, 8)
    }),
    Mutant::new("bridge", "parameters.impossible-ifname-is-an-error", "uses-what-fits-of-a-name", |scene| {
        shortens(scene, 15)
    }),
    Mutant::new("bridge", "parameters.netns-is-any-path", "knows-one-folder-of-namespaces", |scene| {
        match scene.is(Add) && !scene.env.netns.is_empty() && !scene.env.netns.starts_with("/run/netns/") {
            true => scene.refuse(4, "CNI_NETNS is not below /run/netns"),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.args-are-pairs", "refuses-args-of-others", |scene| {
        match scene.is(Add) && scene.env.args.contains("FOO=BAR") {
            true => scene.refuse(4, "unknown args [FOO=BAR]"),
            false => scene.honest(),
        }
    }),
];

/// The call with a shorter name.
fn shortens(scene: &Scene, length: usize) -> Reply {
    scene.with_env(|env| env.ifname.truncate(length)).honest()
}
