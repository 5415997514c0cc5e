//! Faults in what runtimes rely on without any document.

use crate::{Act, MutantCall};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Gc, Version};

const VALID: &str = "cni.dev/valid-attachments";

pub(super) const ACTS: &[Act] = &[
    ("has-its-own-words-for-a-command", |call| says_instead(call, "unknown CNI_COMMAND: ", "no such CNI_COMMAND: ")),
    ("has-its-own-words-for-variables", |call| says_instead(call, "required env variables", "please set")),
    ("has-its-own-words-for-versions", |call| says_instead(call, "incompatible CNI versions", "unknown version")),
    ("has-its-own-words-for-verbs", |call| {
        says_instead(call, "config version does not allow", "the version is too old for")
    }),
    ("has-its-own-words-for-namespaces", |call| says_instead(call, "no such file or directory", "gone")),
    ("exits-with-2", |call| {
        let reply = call.honest();
        Reply { exit: if reply.exit == 0 { 0 } else { 2 }, ..reply }
    }),
    ("says-what-it-is-on-stdout", |call| match call.env.command.is_empty() {
        true => Reply::success("CNI bridge plugin\n"),
        false => call.honest(),
    }),
    ("works-in-its-own-namespace", |call| call.with_env(|env| env.netns_override = "1".to_owned()).honest()),
    ("wants-a-namespace-for-version", |call| {
        call.refuses_if(call.is(Version) && call.env.netns == "dummy", 4, "CNI_NETNS is no path")
    }),
    ("wants-input-for-version", |call| {
        call.refuses_if(call.is(Version) && call.config().is_null(), 6, "stdin is no JSON")
    }),
    ("takes-no-version-for-the-newest", |call| {
        let config = call.config();
        let mut keys = config.as_object().into_iter().flatten();
        let version = keys.find(|(key, _)| key.eq_ignore_ascii_case("cniVersion"));
        match version.and_then(|(_, version)| version.as_str()).unwrap_or_default() {
            "" => call.with_config(|config| config["cniVersion"] = json!("1.1.0")).honest(),
            _ => call.honest(),
        }
    }),
    ("knows-keys-in-lower-case-only", |call| {
        let less = call.with_config(|config| {
            if let Some(config) = config.as_object_mut() {
                config.retain(|key, _| !key.starts_with(|first: char| first.is_ascii_uppercase()));
            }
        });
        less.honest()
    }),
    ("refuses-null", |call| {
        let config = call.config();
        call.refuses_if(
            call.is(Add) && config.as_object().is_some_and(|config| config.values().any(Value::is_null)),
            7,
            "a key is null",
        )
    }),
    ("refuses-duplicates", |call| {
        let text = String::from_utf8_lossy(call.stdin());
        call.refuses_if(
            text.matches("\"name\":").count() > 1 && !text.contains("prevResult") && call.is(Add),
            6,
            "a key is there twice",
        )
    }),
    ("wants-no-line-break-at-the-end", |call| {
        call.refuses_if(call.is(Add) && call.stdin().ends_with(b"\n"), 6, "there is something after the config")
    }),
    ("refuses-one-of-kubernetes-args", |call| {
        call.refuses_if(call.is(Add) && call.env.args.contains("K8S_POD_INFRA_CONTAINER_ID"), 4, "unknown args")
    }),
    ("wants-a-version-in-prev-result", |call| {
        let config = call.config();
        let has_none = config["prevResult"].as_object().is_some_and(|result| !result.contains_key("cniVersion"));
        call.refuses_if(call.is(Add) && has_none, 7, "prevResult has no cniVersion")
    }),
    ("wants-one-list-of-attachments", |call| {
        let config = call.config();
        call.refuses_if(call.is(Gc) && config.get("cni.dev/attachments").is_some(), 7, "cni.dev/attachments is unknown")
    }),
    ("ends-without-a-word-when-there-is-no-list", |call| match call.is(Gc) && call.config().get(VALID).is_none() {
        true => Reply { stdout: Vec::new(), exit: 1 },
        false => call.honest(),
    }),
    ("refuses-unknown-keys", |call| {
        let config = call.config();
        let is_unknown =
            |object: &Value| object.as_object().is_some_and(|all| all.keys().any(|key| key.starts_with("zz")));
        call.refuses_if(
            call.is(Add) && (is_unknown(&config) || is_unknown(&config["runtimeConfig"])),
            2,
            &format!("zzConformance = {} is unknown", config["zzConformance"]),
        )
    }),
];

/// An error with other words, wherever they are.
fn says_instead(call: &MutantCall, words: &str, other: &str) -> Reply {
    let reply = call.honest();
    match reply.exit {
        0 => reply,
        _ => Reply { stdout: String::from_utf8_lossy(&reply.stdout).replace(words, other).into_bytes(), ..reply },
    }
}
