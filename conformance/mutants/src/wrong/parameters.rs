//! Faults in the reading of the environment.

use crate::{Mutant, Scene};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "parameters.required", "makes-up-an-id", |scene| {
        scene.with_env_if(scene.asks(Add) && scene.env.container_id.is_empty(), |env| {
            env.container_id = "another".to_owned()
        })
    })
    .with(&["add-container-id"])
    .also(&["relied.words"]),
    Mutant::new("bridge", "parameters.required", "deletes-an-unknown-container", |scene| {
        let env = &scene.env;
        scene.does_nothing_if(scene.asks(Del) && (env.container_id.is_empty() || env.ifname.is_empty()))
    })
    .with(&["del-container-id", "del-ifname"]),
    Mutant::new("bridge", "parameters.required", "checks-an-unknown-container", |scene| {
        let env = &scene.env;
        scene.does_nothing_if(
            scene.asks(Check) && [&env.container_id, &env.netns, &env.ifname].iter().any(|value| value.is_empty()),
        )
    })
    .with(&["check-container-id", "check-netns", "check-ifname"]),
    Mutant::new("bridge", "parameters.required", "collects-without-a-path", |scene| {
        scene.does_nothing_if(scene.asks(Gc) && scene.env.path.is_empty())
    })
    .with(&["gc-path"]),
    Mutant::new("host-local", "parameters.path-is-optional", "wants-a-path", |scene| {
        scene.refuses_if(scene.asks(Del) && scene.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
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
        scene.with_env_if(
            scene.env.container_id.contains(['/', ' ', '\n'])
                || scene.env.container_id == ".."
                || scene.env.container_id.starts_with('-'),
            |env| env.container_id = id,
        )
    }),
    Mutant::new("bridge", "parameters.every-container-id-works", "takes-short-ids-only", |scene| {
        scene.refuses_if(scene.env.container_id.len() > 32, 4, "CNI_CONTAINERID is longer than 32")
    }),
    Mutant::new("bridge", "parameters.ifname-is-used-or-refused", "uses-the-start-of-a-name", |scene| {
        // A name that is impossible because it is too long is left to another rule.
        if scene.env.ifname.len() > 15 { scene.honest() } else { shortens(scene, 8) }
    }),
    Mutant::new("bridge", "parameters.impossible-ifname-is-an-error", "uses-what-fits-of-a-name", |scene| {
        shortens(scene, 15)
    }),
    Mutant::new("bridge", "parameters.netns-is-any-path", "knows-one-folder-of-namespaces", |scene| {
        let netns = &scene.env.netns;
        let is_known = netns.starts_with("/run/netns/") || netns.contains("/./") || scene.has_own_netns();
        scene.refuses_if(scene.is(Add) && scene.has_netns() && !is_known, 4, "CNI_NETNS is not below /run/netns")
    }),
    Mutant::new("bridge", "parameters.args-are-pairs", "refuses-args-of-others", |scene| {
        scene.refuses_if(scene.asks(Add) && scene.env.args.contains("FOO=BAR"), 4, "unknown args [FOO=BAR]")
    }),
    Mutant::new("bridge", "parameters.required", "makes-up-a-name-of-the-interface", |scene| {
        scene.with_env_if(scene.asks(Add) && scene.env.ifname.is_empty(), |env| env.ifname = "eth0".to_owned())
    })
    .with(&["add-ifname"])
    .also(&["relied.words"]),
    Mutant::new("bridge", "parameters.required", "adds-nowhere", |scene| {
        scene.boasts_if(scene.asks(Add) && scene.env.netns.is_empty())
    })
    .with(&["add-netns"]),
    Mutant::new("bridge", "parameters.unknown-command-is-an-error", "takes-any-word-for-add", |scene| {
        match scene.env.find_command() {
            None if !scene.env.command.is_empty() => scene.with_verb(Add).honest(),
            None | Some(_) => scene.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.config-is-one-json-object", "adds-without-a-config", |scene| {
        scene.boasts_if(scene.asks(Add) && scene.has_stdin() && scene.config().is_null())
    }),
    Mutant::new("bridge", "parameters.every-container-id-works", "takes-plain-ids-only", |scene| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        scene.refuses_if(
            scene.is(Add) && (scene.env.container_id.len() < 2 || !scene.env.container_id.chars().all(is_plain)),
            4,
            "CNI_CONTAINERID is too short or has signs in it",
        )
    }),
    Mutant::new("bridge", "parameters.ifname-is-used-or-refused", "uses-names-made-plain", |scene| {
        if is_possible(&scene.env.ifname) { makes_plain(scene) } else { scene.honest() }
    }),
    Mutant::new("bridge", "parameters.impossible-ifname-is-an-error", "makes-impossible-names-plain", |scene| {
        if is_possible(&scene.env.ifname) { scene.honest() } else { makes_plain(scene) }
    }),
];

/// Whether an interface can have that name.
fn is_possible(name: &str) -> bool {
    let is_length = (1..=15).contains(&name.len());
    is_length && ![".", ".."].contains(&name) && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}

/// The call with a shorter name.
fn shortens(scene: &Scene, length: usize) -> Reply {
    scene.with_env(|env| env.ifname.truncate(length)).honest()
}

/// The call with a name of letters and digits.
fn makes_plain(scene: &Scene) -> Reply {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { 'x' };
    let name: String = scene.env.ifname.chars().map(plain).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("e{name}") } else { name };
    scene.with_env(|env| env.ifname = name).honest()
}
