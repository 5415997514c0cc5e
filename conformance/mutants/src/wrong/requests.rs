//! Faults about what a plugin is asked: parameters, the configuration, conventions, VERSION, and words that runtimes rely on.

use crate::{Act, MutantCall};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc, Version};
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    // Faults in the reading of the configuration.
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
    // Faults in the reading of the environment.
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
    // VERSION.
    ("lists-one-version-as-a-text", |call| call.on(Version, |object| object["supportedVersions"] = json!("1.1.0"))),
    ("answers-in-its-own-version", |call| call.on(Version, |object| object["cniVersion"] = json!("1.0.0"))),
    ("wants-a-network-for-version", |call| {
        call.refuses_if(call.is(Version) && call.config().get("name").is_none(), 7, "missing network name")
    }),
    ("lists-a-version-of-the-future", |call| {
        call.on(Version, |object| super::push(object, "supportedVersions", json!("99.1.0")))
    }),
    ("lists-what-it-was-asked-for", |call| {
        call.on(Version, |object| object["supportedVersions"] = json!([call.config()["cniVersion"]]))
    }),
    ("answers-in-versions-that-it-knows", |call| {
        call.refuses_if(call.is(Version) && call.config()["cniVersion"] == "99.0.0", 1, "incompatible CNI versions")
    }),
    ("lists-more-than-it-serves", |call| {
        let config = call.config();
        let is_plain = !call.has_kit_ipam() && !config.as_object().is_some_and(|all| all.keys().any(|key| is_odd(key)));
        call.refuses_if(
            call.is(Add) && call.has_netns() && !call.has_own_netns() && is_plain && config["cniVersion"] == "0.4.0",
            1,
            "incompatible CNI versions",
        )
    }),
    // CONVENTIONS.
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
    // Faults in what runtimes rely on without any document.
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

/// An ADD with a key at the top that it does not know is an error that does not say which.
fn refuses(call: &MutantCall, is_unknown: fn(&str) -> bool) -> Reply {
    let config = call.config();
    call.refuses_if(
        call.is(Add) && config.as_object().is_some_and(|config| config.keys().any(|key| is_unknown(key))),
        7,
        "there is an unknown key",
    )
}

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

/// Keys of rules that look at the error.
fn is_odd(key: &str) -> bool {
    key.starts_with("com.") || key.starts_with("zz")
}

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

const VALID: &str = "cni.dev/valid-attachments";

/// An error with other words, wherever they are.
fn says_instead(call: &MutantCall, words: &str, other: &str) -> Reply {
    let reply = call.honest();
    match reply.exit {
        0 => reply,
        _ => Reply { stdout: String::from_utf8_lossy(&reply.stdout).replace(words, other).into_bytes(), ..reply },
    }
}
