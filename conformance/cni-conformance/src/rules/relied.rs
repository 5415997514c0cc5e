//! Behaviour that runtimes and operators rely on without any document: texts that they match, case of keys, exit codes.

use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, before, newest, relied, since};
use crate::testbed::Testbed;
use serde_json::{Map, Value, json};
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[
    relied(
        "relied.words",
        "libcni, which so knows plugins older than VERSION; kubelet, go-cni and operators, who look for them",
        Role::PLUGINS,
    )
    .says(
        "Errors have the words of Go's library: `unknown CNI_COMMAND: ` and its name, `required env \
              variables [A,B] missing`, `incompatible CNI versions` with the config's in the details, `config \
              version does not allow ` and the verb, `no such file or directory` of a namespace; without \
              CNI_COMMAND stderr has the versions.",
    )
    .by(&[
        newest("unknown-command", unknown_command_text).does("ADD with an unknown CNI_COMMAND."),
        newest("missing-variables", missing_variables_text).does("ADD without CNI_CONTAINERID and CNI_IFNAME."),
        newest("incompatible-version", incompatible_version_text).does("ADD with cniVersion 9.9.9."),
        before("0.4.0", "check", check_gate).does("CHECK with a version before 0.4.0."),
        before("1.1.0", "gc", |testbed| gate(testbed, Verb::Gc)).does("GC with a version before 1.1.0."),
        before("1.1.0", "status", |testbed| gate(testbed, Verb::Status)).does("STATUS with a version before 1.1.0."),
        newest("no-such-file", no_such_file_text).does("ADD with a namespace that is not there."),
        newest("about", about_text).does("A call without CNI_COMMAND and stdin."),
    ]),
    relied("relied.exit-status-1", "skel", Role::PLUGINS).says("A plugin that fails exits with 1.").by(&[newest(
        "",
        exits_with_1,
    )
    .does("ADD with \"{\" as its config.")]),
    relied("relied.own-namespace", "skel, namespaces", &[Role::Interface])
        .says("ADD to the plugin's own network namespace is code 8, unless CNI_NETNS_OVERRIDE is set.")
        .by(&[newest("", own_namespace).does("ADD with CNI_NETNS of the node itself.")]),
    relied("relied.version-probe", "libcni, which asks so, and skel, VERSION", Role::PLUGINS)
        .says("VERSION bears the word dummy in CNI_NETNS, CNI_IFNAME and CNI_PATH, and answers even if its input is empty.")
        .by(&[
            newest("dummies", version_with_dummies).does("VERSION with \"dummy\" in three variables."),
            newest("no-input", version_without_input).does("VERSION with an empty stdin."),
        ]),
    relied("relied.no-version-is-0.1.0", "skel, version gate", Role::PLUGINS)
        .says("A config without cniVersion, or with an empty one, is one of 0.1.0.")
        .by(&[
            before("0.2.0", "missing", missing_version).does("ADD without cniVersion."),
            before("0.2.0", "empty", empty_version).does("ADD with an empty cniVersion."),
        ]),
    relied("relied.go-json", "containerd, which writes HostPort, and runtimes in Go", Role::PLUGINS)
        .says(
            "The config is read as Go does: keys in any case, null as if the key were not there, of a key that is there \
              twice the last value, white space around all.",
        )
        .by(&[
            newest("any-case", keys_in_any_case)
                .does("ADD with the first letter of each key in capitals; the result has as much as without."),
            newest("any-case-in-runtime-config", keys_of_runtime_config)
                .does("The same with keys within runtimeConfig."),
            newest("null", null_is_absent)
                .does("ADD with null in runtimeConfig, args, dns, prevResult and capabilities, where they are not set."),
            newest("duplicate", last_duplicate_wins)
                .does("ADD with a second name before the right one, which is no name."),
            newest("white-space", white_space).does("ADD with line breaks and a tab around the config."),
        ]),
    relied("relied.unknown-keys", "libcni, requests", Role::PLUGINS)
        .says(
            "Keys that the plugin does not know are ignored: the capabilities that libcni leaves in the request, \
              those of a newer plugin, of runtimeConfig or of ipam.",
        )
        .by(&[
            newest("config", unknown_keys).does("ADD with an unknown key, in config and ipam."),
            newest("capabilities", capabilities_in_the_request)
                .does("ADD with capabilities, and an unknown one."),
            newest("runtime-config", unknown_runtime_config).does("ADD with unknown keys in runtimeConfig."),
        ]),
    relied("relied.kubernetes-args", "containerd and CRI-O, CNI_ARGS", Role::PLUGINS)
        .says("The CNI_ARGS of Kubernetes are borne by every plugin, in any order.")
        .by(&[newest("", kubernetes_args).does("ADD with the five pairs of a kubelet's runtime.")]),
    relied("relied.prev-result-without-version", "skel, prevResult", &[Role::Chained])
        .says("A prevResult without cniVersion is in the config's.")
        .by(&[newest("", prev_result_without_version).does("ADD with a prevResult that has no cniVersion.")]),
    relied("relied.gc-keys", "libcni, GC", Role::PLUGINS)
        .says(
            "GC bears cni.dev/attachments beside cni.dev/valid-attachments, and answers without either, as libcni \
              sends it if it was given none.",
        )
        .by(&[
            since("1.1.0", "both", gc_with_both_keys).does("GC with both keys, then CHECK of the valid container."),
            since("1.1.0", "none", gc_without_list)
                .does("GC without either; it has to succeed or print an error object."),
        ]),
    relied("relied.daemon-starts-again", "service managers, which start a daemon again that was killed", Role::PLUGINS)
        .says("A daemon that was killed, so that its socket is still there, starts again, and ADD works.")
        .by(&[newest("", daemon_starts_again).does("The daemon is killed and started; ADD has to succeed.")]),
];

/// Checks that a text has some words.
fn says(what: &str, text: &str, words: &str) -> Result<(), Stop> {
    Finding::unless(text.contains(words), format!("the words {words:?} in {what}"), format!("it is {text:?}"))
}

fn unknown_command_text(testbed: &Testbed) -> Result<(), Stop> {
    let call = testbed.call(Verb::Add, &testbed.pod()).variable("CNI_COMMAND", "FROBNICATE");
    let answer = testbed.make(&call)?.refused_by("parameters.unknown-command-is-an-error");
    says("msg", &answer.fails()?.msg, "unknown CNI_COMMAND: FROBNICATE")
}

fn missing_variables_text(testbed: &Testbed) -> Result<(), Stop> {
    let call = testbed.call(Verb::Add, &testbed.pod()).without("CNI_IFNAME").without("CNI_CONTAINERID");
    let error = testbed.make(&call)?.refused_by("parameters.required").fails()?;
    says("msg", &error.msg, "required env variables [CNI_CONTAINERID,CNI_IFNAME] missing")
}

fn incompatible_version_text(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    config["cniVersion"] = json!("9.9.9");
    let error = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?.fails_with(1)?;
    says("msg", &error.msg, "incompatible CNI versions")?;
    says("details", &error.details, "9.9.9")
}

fn check_gate(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result = testbed.add(&pod)?;
    let call = testbed.call(Verb::Check, &pod).prev_result(&result);
    says("msg", &testbed.make(&call)?.fails_with(1)?.msg, "config version does not allow CHECK")
}

/// Of a verb that came with 1.1.0. Who speaks no 1.1.0 need not know it.
fn gate(testbed: &Testbed, verb: Verb) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call(Verb::Version, Attachment::none()))?.succeeds()?;
    let list = answer.get("supportedVersions").and_then(Value::as_array);
    Stop::skip_if(!list.is_some_and(|list| list.contains(&json!("1.1.0"))), "it speaks no version from 1.1.0 on")?;
    let error = testbed.make(&testbed.call(verb, Attachment::none()))?.fails_with(1)?;
    says("msg", &error.msg, &format!("config version does not allow {verb}"))
}

fn no_such_file_text(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.profile.role != Role::Interface, "it makes no interface, and may not need the namespace")?;
    let nowhere = Attachment { netns: "/run/netns/no-such-namespace".to_owned(), ..testbed.pod().attachment() };
    let answer = testbed.make(&testbed.call(Verb::Add, &nowhere))?;
    let error = answer.refused_by("add.needs-the-namespace").fails()?;
    says("the error", &format!("{}; {}", error.msg, error.details), "no such file or directory")
}

fn exits_with_1(testbed: &Testbed) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call_with(Verb::Add, "{", &testbed.pod()))?;
    let answer = answer.refused_by("parameters.config-is-one-json-object");
    let exit = answer.record().exit.unwrap_or(-1);
    Finding::unless(exit == 1, "exit status 1", format!("it is {exit}"))
        .map_err(|stop| stop.based_on(answer.basis_of_failure().filter(|_| exit == 0)))
}

fn about_text(testbed: &Testbed) -> Result<(), Stop> {
    let call = testbed.call_with(Verb::Version, "", Attachment::none()).without("CNI_COMMAND");
    let answer = testbed.make(&call)?;
    answer.prints_nothing()?;
    says("stderr", &answer.record().stderr, "CNI protocol versions supported: ")?;
    says("stderr", &answer.record().stderr, &testbed.version)
}

fn own_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let own = testbed.node.host().path().display().to_string();
    let own = Attachment { netns: own, ..testbed.pod().attachment() };
    testbed.make(&testbed.call(Verb::Add, &own))?.fails_with(8).map(drop)
}

fn version_with_dummies(testbed: &Testbed) -> Result<(), Stop> {
    let call = testbed.call_with(Verb::Version, json!({ "cniVersion": "1.1.0" }), Attachment::none());
    let names = ["CNI_NETNS", "CNI_IFNAME", "CNI_PATH"];
    let call = names.iter().fold(call, |call, name| call.variable(name, "dummy"));
    has_list(&testbed.make(&call)?.succeeds()?)
}

fn version_without_input(testbed: &Testbed) -> Result<(), Stop> {
    has_list(&testbed.make(&testbed.call_with(Verb::Version, "", Attachment::none()))?.succeeds()?)
}

fn has_list(answer: &Value) -> Result<(), Stop> {
    let has_list = answer.get("supportedVersions").is_some_and(Value::is_array);
    Finding::unless(has_list, "supportedVersions", format!("it printed {answer}"))
        .map_err(|stop| stop.based_on("version.lists-versions"))
}

fn missing_version(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| config.shift_remove("cniVersion")).and_then(|result| is_oldest(&result))
}

fn empty_version(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| config.insert("cniVersion".to_owned(), json!("")))
        .and_then(|result| is_oldest(&result))
}

fn is_oldest(result: &Value) -> Result<(), Stop> {
    let is_newer = ["interfaces", "ips"].iter().any(|key| result.get(*key).is_some());
    let version = result.get("cniVersion").and_then(Value::as_str).unwrap_or("0.1.0");
    let is_oldest = !is_newer && ["", "0.1.0"].contains(&version);
    Finding::unless(is_oldest, "a result of 0.1.0", format!("the result is {result}"))
}

/// The result of ADD with a changed config.
fn with_config<T>(testbed: &Testbed, change: impl FnOnce(&mut Map<String, Value>) -> T) -> Result<Value, Stop> {
    let pod = testbed.pod();
    let mut config = testbed.config_for(Verb::Add, &pod.attachment());
    config.as_object_mut().map(change);
    testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?.succeeds()
}

/// The same with some keys of the config capitalised: ADD has to give the same result.
fn capitalised(testbed: &Testbed, change: impl FnOnce(&mut Map<String, Value>)) -> Result<(), Stop> {
    let count = |result: &Value| {
        let length = |key: &str| result.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        (length("ips"), length("interfaces"), length("routes"))
    };
    let (plain, result) = (with_config(testbed, |_| ())?, with_config(testbed, change)?);
    Finding::unless(
        count(&plain) == count(&result),
        format!("as much as in {plain}"),
        format!("the result is {result}"),
    )
}

fn keys_in_any_case(testbed: &Testbed) -> Result<(), Stop> {
    // Of the plugin's own part the first level: below may be names of the user's choice.
    capitalised(testbed, |config| {
        if let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) {
            capitalise(ipam);
            for range in ipam.get_mut("Ranges").and_then(Value::as_array_mut).into_iter().flatten() {
                capitalise_each(range);
            }
        }
        capitalise(config);
    })
}

fn keys_of_runtime_config(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.config().get("runtimeConfig").is_none(), "its config enables no capability")?;
    capitalised(testbed, |config| {
        for value in config.get_mut("runtimeConfig").and_then(Value::as_object_mut).into_iter().flatten() {
            capitalise_each(value.1);
        }
    })
}

fn capitalise_each(value: &mut Value) {
    match value {
        Value::Object(object) => capitalise(object),
        Value::Array(values) => values.iter_mut().for_each(capitalise_each),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn capitalise(object: &mut Map<String, Value>) {
    *object = std::mem::take(object).into_iter().map(|(key, value)| (capital(&key), value)).collect();
}

fn capital(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn null_is_absent(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| {
        for key in ["runtimeConfig", "args", "dns", "prevResult", "capabilities"] {
            config.entry(key).or_insert(Value::Null);
        }
    })
    .map(drop)
}

fn last_duplicate_wins(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let text = testbed.config_for(Verb::Add, &pod.attachment()).to_string();
    let twice = format!("{{\"name\":\"not/a/name\",{}", text.trim_start_matches('{'));
    testbed.make(&testbed.call_with(Verb::Add, twice, &pod))?.succeeds().map(drop)
}

fn unknown_keys(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| {
        config.insert("zzConformance".to_owned(), json!({ "a": [1, null] }));
        if let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) {
            ipam.insert("zzConformance".to_owned(), json!("b"));
        }
    })
    .map(drop)
}

fn capabilities_in_the_request(testbed: &Testbed) -> Result<(), Stop> {
    let capabilities = json!({ "portMappings": true, "mac": false, "zzConformance": true });
    with_config(testbed, |config| config.insert("capabilities".to_owned(), capabilities)).map(drop)
}

fn unknown_runtime_config(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| {
        let runtime_config = config.entry("runtimeConfig").or_insert_with(|| json!({}));
        runtime_config["zzConformance"] = json!({ "a": 1 });
        runtime_config["io.kubernetes.cri.pod-annotations"] = json!({ "a/b": "c" });
    })
    .map(drop)
}

fn white_space(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let text = format!("\n\t {}\r\n\n", testbed.config_for(Verb::Add, &pod.attachment()));
    testbed.make(&testbed.call_with(Verb::Add, text, &pod))?.succeeds().map(drop)
}

fn kubernetes_args(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID=0123abcd;\
                K8S_POD_UID=6f0a3d0e-0000-4000-8000-000000000001";
    testbed.make(&testbed.call(Verb::Add, &pod).args(args))?.succeeds().map(drop)
}

fn prev_result_without_version(testbed: &Testbed) -> Result<(), Stop> {
    with_config(testbed, |config| {
        config.get_mut("prevResult").and_then(Value::as_object_mut).map(|result| result.shift_remove("cniVersion"))
    })
    .map(drop)
}

fn gc_with_both_keys(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result = testbed.add(&pod)?;
    let mut config = testbed.config_for(Verb::Gc, &pod.attachment());
    let valid = json!([{ "containerID": pod.id(), "ifname": "eth0" }]);
    config["cni.dev/attachments"] = valid.clone();
    config["cni.dev/valid-attachments"] = valid;
    testbed.make(&testbed.call_with(Verb::Gc, &config, Attachment::none()))?.succeeds()?;
    testbed.check(&pod, &result)
}

fn gc_without_list(testbed: &Testbed) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call(Verb::Gc, Attachment::none()))?;
    if answer.is_success() { answer.prints_nothing() } else { answer.fails().map(drop) }
}

fn daemon_starts_again(testbed: &Testbed) -> Result<(), Stop> {
    testbed.add(&testbed.pod())?;
    Stop::skip_if(testbed.end_daemons() == 0, "it has no daemon")?;
    match testbed.restart_daemons() {
        Some(status) => Err(Finding::new("a daemon that runs", format!("it ended with {status}")).into()),
        None => testbed.add(&testbed.pod()).map(drop),
    }
}
