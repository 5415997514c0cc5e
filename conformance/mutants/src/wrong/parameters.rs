//! Faults in the reading of the environment.

use crate::{Mutant, MutantCall};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "parameters.required", "makes-up-an-id", |call| {
        call.with_env_if(call.asks(Add) && call.env.container_id.is_empty(), |env| {
            env.container_id = "another".to_owned()
        })
    })
    .with(&["add-container-id"])
    .also(&["relied.words"]),
    Mutant::new("bridge", "parameters.required", "deletes-an-unknown-container", |call| {
        let env = &call.env;
        call.does_nothing_if(call.asks(Del) && (env.container_id.is_empty() || env.ifname.is_empty()))
    })
    .with(&["del-container-id", "del-ifname"]),
    Mutant::new("bridge", "parameters.required", "checks-an-unknown-container", |call| {
        let env = &call.env;
        call.does_nothing_if(
            call.asks(Check) && [&env.container_id, &env.netns, &env.ifname].iter().any(|value| value.is_empty()),
        )
    })
    .with(&["check-container-id", "check-netns", "check-ifname"]),
    Mutant::new("bridge", "parameters.required", "collects-without-a-path", |call| {
        call.does_nothing_if(call.asks(Gc) && call.env.path.is_empty())
    })
    .with(&["gc-path"]),
    Mutant::new("host-local", "parameters.path-is-optional", "wants-a-path", |call| {
        call.refuses_if(call.asks(Del) && call.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    Mutant::new("bridge", "parameters.unknown-command-is-an-error", "takes-commands-in-lower-case", |call| {
        call.with_env(|env| env.command.make_ascii_uppercase()).honest()
    }),
    Mutant::new("bridge", "parameters.config-is-one-json-object", "takes-the-first-of-a-list", |call| {
        match call.config() {
            Value::Array(list) => call.with_stdin(list.first().map(Value::to_string).unwrap_or_default()).honest(),
            _ => call.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.container-id-is-a-name", "takes-any-id", |call| {
        let id: String = call.env.container_id.chars().filter(char::is_ascii_alphanumeric).collect();
        call.with_env_if(
            call.env.container_id.contains(['/', ' ', '\n'])
                || call.env.container_id == ".."
                || call.env.container_id.starts_with('-'),
            |env| env.container_id = id,
        )
    }),
    Mutant::new("bridge", "parameters.every-container-id-works", "takes-short-ids-only", |call| {
        call.refuses_if(call.env.container_id.len() > 32, 4, "CNI_CONTAINERID is longer than 32")
    }),
    Mutant::new("bridge", "parameters.ifname-is-used-or-refused", "uses-the-start-of-a-name", |call| {
        // A name that is impossible because it is too long is left to another rule.
        if call.env.ifname.len() > 15 { call.honest() } else { shortens(call, 8) }
    }),
    Mutant::new("bridge", "parameters.impossible-ifname-is-an-error", "uses-what-fits-of-a-name", |call| {
        shortens(call, 15)
    }),
    Mutant::new("bridge", "parameters.netns-is-any-path", "knows-one-folder-of-namespaces", |call| {
        let netns = &call.env.netns;
        let is_known = netns.starts_with("/run/netns/") || netns.contains("/./") || call.has_own_netns();
        call.refuses_if(call.is(Add) && call.has_netns() && !is_known, 4, "CNI_NETNS is not below /run/netns")
    }),
    Mutant::new("bridge", "parameters.args-are-pairs", "refuses-args-of-others", |call| {
        call.refuses_if(call.asks(Add) && call.env.args.contains("FOO=BAR"), 4, "unknown args [FOO=BAR]")
    }),
    Mutant::new("bridge", "parameters.required", "makes-up-a-name-of-the-interface", |call| {
        call.with_env_if(call.asks(Add) && call.env.ifname.is_empty(), |env| env.ifname = "eth0".to_owned())
    })
    .with(&["add-ifname"])
    .also(&["relied.words"]),
    Mutant::new("bridge", "parameters.required", "adds-nowhere", |call| {
        call.boasts_if(call.asks(Add) && call.env.netns.is_empty())
    })
    .with(&["add-netns"]),
    Mutant::new("bridge", "parameters.unknown-command-is-an-error", "takes-any-word-for-add", |call| {
        match call.env.find_command() {
            None if !call.env.command.is_empty() => call.with_verb(Add).honest(),
            None | Some(_) => call.honest(),
        }
    }),
    Mutant::new("bridge", "parameters.config-is-one-json-object", "adds-without-a-config", |call| {
        call.boasts_if(call.asks(Add) && call.has_stdin() && call.config().is_null())
    }),
    Mutant::new("bridge", "parameters.every-container-id-works", "takes-plain-ids-only", |call| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        call.refuses_if(
            call.is(Add) && (call.env.container_id.len() < 2 || !call.env.container_id.chars().all(is_plain)),
            4,
            "CNI_CONTAINERID is too short or has signs in it",
        )
    }),
    Mutant::new("bridge", "parameters.ifname-is-used-or-refused", "uses-names-made-plain", |call| {
        if is_possible(&call.env.ifname) { makes_plain(call) } else { call.honest() }
    }),
    Mutant::new("bridge", "parameters.impossible-ifname-is-an-error", "makes-impossible-names-plain", |call| {
        if is_possible(&call.env.ifname) { call.honest() } else { makes_plain(call) }
    }),
];

/// Whether an interface can have that name.
fn is_possible(name: &str) -> bool {
    let is_length = (1..=15).contains(&name.len());
    is_length && ![".", ".."].contains(&name) && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}

/// The call with a shorter name.
fn shortens(call: &MutantCall, length: usize) -> Reply {
    call.with_env(|env| env.ifname.truncate(length)).honest()
}

/// The call with a name of letters and digits.
fn makes_plain(call: &MutantCall) -> Reply {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { 'x' };
    let name: String = call.env.ifname.chars().map(plain).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("e{name}") } else { name };
    call.with_env(|env| env.ifname = name).honest()
}
