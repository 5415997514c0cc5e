//! Faults in the reading of the environment.

use crate::{Act, MutantCall};
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc};

pub(super) const ACTS: &[Act] = &[
    ("makes-up-an-id", |call| {
        call.with_env_if(call.asks(Add) && call.env.container_id.is_empty(), |env| {
            env.container_id = "another".to_owned()
        })
    }),
    ("deletes-an-unknown-container", |call| {
        let env = &call.env;
        call.does_nothing_if(call.asks(Del) && (env.container_id.is_empty() || env.ifname.is_empty()))
    }),
    ("checks-an-unknown-container", |call| {
        let env = &call.env;
        call.does_nothing_if(
            call.asks(Check) && [&env.container_id, &env.netns, &env.ifname].iter().any(|value| value.is_empty()),
        )
    }),
    ("collects-without-a-path", |call| call.does_nothing_if(call.asks(Gc) && call.env.path.is_empty())),
    ("wants-a-path", |call| {
        call.refuses_if(call.asks(Del) && call.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    ("takes-commands-in-lower-case", |call| call.with_env(|env| env.command.make_ascii_uppercase()).honest()),
    ("takes-any-id", |call| {
        let id: String = call.env.container_id.chars().filter(char::is_ascii_alphanumeric).collect();
        call.with_env_if(
            call.env.container_id.contains(['/', ' ', '\n'])
                || call.env.container_id == ".."
                || call.env.container_id.starts_with('-'),
            |env| env.container_id = id,
        )
    }),
    ("takes-short-ids-only", |call| {
        call.refuses_if(call.env.container_id.len() > 32, 4, "CNI_CONTAINERID is longer than 32")
    }),
    ("knows-one-folder-of-namespaces", |call| {
        let netns = &call.env.netns;
        let is_known = netns.starts_with("/run/netns/") || netns.contains("/./") || call.has_own_netns();
        call.refuses_if(call.is(Add) && call.has_netns() && !is_known, 4, "CNI_NETNS is not below /run/netns")
    }),
    ("refuses-args-of-others", |call| {
        call.refuses_if(call.asks(Add) && call.env.args.contains("FOO=BAR"), 4, "unknown args [FOO=BAR]")
    }),
    ("makes-up-a-name-of-the-interface", |call| {
        call.with_env_if(call.asks(Add) && call.env.ifname.is_empty(), |env| env.ifname = "eth0".to_owned())
    }),
    ("adds-nowhere", |call| call.boasts_if(call.asks(Add) && call.env.netns.is_empty())),
    ("adds-without-a-config", |call| call.boasts_if(call.asks(Add) && call.has_stdin() && call.config().is_null())),
    ("uses-names-made-plain", |call| if is_possible(&call.env.ifname) { makes_plain(call) } else { call.honest() }),
    (
        "makes-impossible-names-plain",
        |call| {
            if is_possible(&call.env.ifname) { call.honest() } else { makes_plain(call) }
        },
    ),
];

/// Whether an interface can have that name.
fn is_possible(name: &str) -> bool {
    let is_length = (1..=15).contains(&name.len());
    is_length && ![".", ".."].contains(&name) && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
}

/// The call with a name of letters and digits.
fn makes_plain(call: &MutantCall) -> Reply {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { 'x' };
    let name: String = call.env.ifname.chars().map(plain).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("e{name}") } else { name };
    call.with_env(|env| env.ifname = name).honest()
}
