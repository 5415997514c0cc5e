//! SPEC 5, Error: the object, and the codes below 100.

use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, before, newest, since, spec};
use crate::spec_version::is_from;
use crate::testbed::{Answer, ErrorObject, Testbed};
use serde_json::{Value, json};
use std::fs::File;
use std::process::{Command, Stdio};
use testns::{Attachment, Call, Output, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("errors.exit-status", &["errors/exit"], Role::PLUGINS)
        .says("A plugin that fails exits with another status than 0.")
        .by(&[
            newest("config-is-no-json", |testbed| fails(&no_json(testbed)?))
                .does("ADD with \"{\" as its config; a failure has to show in the status."),
            newest("unknown-command", |testbed| fails(&unknown_command(testbed)?))
                .does("The same with an unknown CNI_COMMAND."),
            newest("no-such-namespace", |testbed| fails(&no_namespace(testbed)?))
                .does("The same with a namespace that is not there."),
        ]),
    spec("errors.object", &["errors/object"], Role::PLUGINS)
        .says(
            "A plugin that fails prints an object with the number code, the text msg and, if any, the text \
              details; and nothing else on stdout.",
        )
        .by(&[
            newest("config-is-no-json", |testbed| prints_an_object(&no_json(testbed)?))
                .does("ADD with \"{\" as its config; what it prints is looked at."),
            newest("config-without-name", no_name_prints_an_object).does("The same with a config without name."),
            newest("no-such-namespace", |testbed| prints_an_object(&no_namespace(testbed)?))
                .does("The same with a namespace that is not there."),
        ]),
    spec("errors.object-in-0.4.0", &["errors/object-0.4.0"], Role::PLUGINS)
        .says("A plugin that fails prints an object with the number code and the text msg.")
        .by(&[newest("", no_name_prints_an_object)
            .does("ADD with a config without name; if it fails, what it prints is looked at.")]),
    spec("errors.version", &["errors/keys"], Role::PLUGINS).says("cniVersion of an error is the version in use.").by(
        &[
            newest("newest", version_in_use).does(
                "The error of ADD with a name that has a slash, without a namespace, or without CNI_CONTAINERID.",
            ),
            before("1.0.0", "before-1.0.0", version_in_use).does("The same with the newest version before 1.0.0."),
        ],
    ),
    spec("errors.reserved-codes", &["errors/reserved"], Role::PLUGINS)
        .says("Codes below 100 are used as the specification has them; a plugin's own start at 100.")
        .by(&[
            since("1.0.0", "no-such-namespace", no_namespace_code)
                .does("The code of ADD with a namespace that is not there."),
            since("1.0.0", "unusable-config", unusable_config_code)
                .does("The code of ADD whose keys all have the value [[-1]]."),
        ]),
    spec("errors.reserved-codes-in-0.4.0", &["errors/reserved-0.4.0"], Role::PLUGINS)
        .says("Codes from 1 to 99 are used only as the specification has them.")
        .by(&[
            before("1.0.0", "no-such-namespace", no_namespace_code)
                .does("The code of ADD with a namespace that is not there."),
            before("1.0.0", "unusable-config", unusable_config_code)
                .does("The code of ADD whose keys all have the value [[-1]]."),
            before("1.0.0", "codes-of-1.0.0", uses_no_code_of_1_0_0)
                .does("Codes of three errors of a plugin that speaks nothing from 1.0.0 on: none is 4 to 8."),
        ]),
    spec("errors.1-incompatible-version", &["errors/1"], Role::PLUGINS)
        .says("A config in a version that the plugin does not speak is code 1.")
        .by(&[
            newest("add", |testbed| of_unspoken_version(testbed, Verb::Add)).does("ADD with cniVersion 9.9.9."),
            newest("del", |testbed| of_unspoken_version(testbed, Verb::Del)).does("DEL with cniVersion 9.9.9."),
        ]),
    spec("errors.2-unsupported-field", &["errors/2"], Role::PLUGINS)
        .says("The message of code 2 has key and value of the field that is not supported.")
        .by(&[newest("", unsupported_field)
            .does("ADD with an unknown key; if that is code 2, msg has to name key and value.")]),
    spec("errors.3-container-unknown", &["errors/3"], Role::PLUGINS)
        .says("Code 3 says that the runtime has nothing to clean up, so nothing is left.")
        .by(&[newest("", container_unknown)
            .does("ADD with a namespace that is not there; if that is code 3, the node is compared with before.")]),
    spec("errors.4-invalid-variables", &["errors/4"], Role::PLUGINS)
        .says("Missing or invalid variables are code 4.")
        .by(&[
            newest("command", |testbed| unknown_command(testbed)?.fails_with(4).map(drop))
                .does("ADD with an unknown CNI_COMMAND."),
            newest("missing", |testbed| without(testbed, &["CNI_CONTAINERID"])?.fails_with(4).map(drop))
                .does("ADD without CNI_CONTAINERID."),
        ]),
    spec("errors.4-names-variables", &["errors/4-names"], Role::PLUGINS)
        .says("The message of code 4 names the variables that are missing or invalid.")
        .by(&[
            newest("command", |testbed| names(&unknown_command(testbed)?, &["CNI_COMMAND"]))
                .does("ADD with an unknown CNI_COMMAND; if that is code 4, msg has to name it."),
            newest("container-id", |testbed| names_missing(testbed, &["CNI_CONTAINERID"]))
                .does("The same without CNI_CONTAINERID."),
            newest("ifname", |testbed| names_missing(testbed, &["CNI_IFNAME"])).does("The same without CNI_IFNAME."),
            newest("netns", |testbed| names_missing(testbed, &["CNI_NETNS"])).does("The same without CNI_NETNS."),
            newest("several", |testbed| names_missing(testbed, &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]))
                .does("The same without all three; one has to be named."),
        ]),
    spec("errors.5-io", &["errors/5"], Role::PLUGINS)
        .says("A config that cannot be read from stdin is code 5.")
        .by(&[newest("", unreadable_stdin).does("ADD whose stdin is a file that cannot be read (EIO).")]),
    spec("errors.6-undecodable", &["errors/6"], Role::PLUGINS).says("A config that is no JSON is code 6.").by(&[
        newest("empty", |testbed| undecodable(testbed, "")).does("ADD with an empty stdin."),
        newest("truncated", truncated_config).does("ADD with a config that lacks its last brace."),
        newest("text", |testbed| undecodable(testbed, "name: conformance")).does("ADD with a line of text."),
    ]),
    spec("errors.7-invalid-config", &["errors/7"], Role::PLUGINS)
        .says("A config that is JSON, but not valid, is code 7.")
        .by(&[
            newest("no-name", |testbed| without_name(testbed)?.fails_with(7).map(drop)).does("ADD without name."),
            newest("name-with-a-slash", |testbed| bad_name_answer(testbed)?.fails_with(7).map(drop))
                .does("ADD with a name that has a slash."),
        ]),
];

fn no_json(testbed: &Testbed) -> Result<Answer, Stop> {
    testbed
        .make(&testbed.call_with(Verb::Add, "{", &testbed.pod()))
        .map(|answer| answer.refused_by("parameters.config-is-one-json-object"))
}

fn unknown_command(testbed: &Testbed) -> Result<Answer, Stop> {
    testbed
        .make(&testbed.call(Verb::Add, &testbed.pod()).variable("CNI_COMMAND", "FROBNICATE"))
        .map(|answer| answer.refused_by("parameters.unknown-command-is-an-error"))
}

/// ADD to a container whose namespace is not there. Plugins that do not look into it are left out.
fn no_namespace(testbed: &Testbed) -> Result<Answer, Stop> {
    let pod = testbed.pod();
    let call =
        testbed.call(Verb::Add, Attachment { netns: "/run/netns/no-such-namespace".to_owned(), ..pod.attachment() });
    let answer = testbed.make(&call)?;
    match answer.is_success() {
        true => Err(Stop::skip("its ADD does not look into the namespace")),
        false => Ok(answer),
    }
}

/// Checks that a call did not exit with 0 and print an error. Whether it has to be an error is said by the basis.
fn fails(answer: &Answer) -> Result<(), Stop> {
    let printed: Value = serde_json::from_str(&answer.record().stdout).unwrap_or_default();
    Stop::skip_if(answer.record().exit == Some(0) && printed.get("code").is_none(), "that is no failure of it")?;
    let exit = answer.record().exit;
    let fails = exit.is_some_and(|exit| exit != 0) && answer.signal().is_none();
    Finding::unless(fails, "an exit status other than 0", format!("it is {}", exit.unwrap_or(-1)))
        .map_err(|stop| stop.based_on(answer.basis_of_failure()))
}

/// The error's keys have the right types, if they are present. A call that succeeds is no failure: that it has to be one is
/// not asked by this, and less binding.
fn prints_an_object(answer: &Answer) -> Result<(), Stop> {
    Stop::skip_if(answer.is_success(), "that is no failure of it")?;
    let ErrorObject { object, .. } = answer.fails()?;
    let is_text = |key: &str| object.get(key).is_none_or(Value::is_string);
    Finding::unless(
        is_text("details") && is_text("cniVersion"),
        "texts in details and cniVersion",
        format!("it printed {object}"),
    )
}

fn no_name_prints_an_object(testbed: &Testbed) -> Result<(), Stop> {
    prints_an_object(&without_name(testbed)?)
}

/// The error object of a call that may be refused: that it is, and prints an object, is asked by other rules.
fn object_of(answer: &Answer) -> Result<ErrorObject, Stop> {
    match answer.is_success() {
        true => Err(Stop::skip("that is no failure of it")),
        false => answer.fails().map_err(|_no_object| Stop::skip("it fails without an error object: see errors.object")),
    }
}

fn version_in_use(testbed: &Testbed) -> Result<(), Stop> {
    let answers = [bad_name_answer, no_namespace, |testbed: &Testbed| without(testbed, &["CNI_CONTAINERID"])];
    let error = answers.iter().map(|answer| object_of(&answer(testbed)?)).reduce(Result::or);
    let error = error.unwrap_or_else(|| Err(Stop::skip("no call was made")))?;
    let is_right = error.object.get("cniVersion") == Some(&json!(testbed.version));
    Finding::unless(is_right, format!("cniVersion {}", testbed.version), format!("it printed {}", error.object))
}

/// 8 is no code of the specification, but the reference's library has it for namespaces.
fn is_known_or_own(answer: &Answer) -> Result<(), Stop> {
    let error = object_of(answer)?;
    let is_right = matches!(error.code, 1..=8 | 11 | 50 | 51 | 100..);
    Finding::unless(is_right, "a code that there is, or one from 100 on", format!("it printed {}", error.object))
}

/// Before 1.0.0 there were 1, 2, 3 and 11, and none of 4 to 8. A plugin that speaks 1.0.0, too, uses them as the specification
/// has them since.
fn uses_no_code_of_1_0_0(testbed: &Testbed) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call(Verb::Version, Attachment::none()))?.succeeds()?;
    let versions = answer["supportedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Stop::skip_if(
        versions.into_iter().any(|version| is_from(version, "1.0.0")),
        "it speaks 1.0.0, too, which has codes 4 to 8",
    )?;
    // Without a version in stdin no edition is known.
    for answer in [unknown_command(testbed)?, without(testbed, &["CNI_CONTAINERID"])?, bad_name_answer(testbed)?] {
        let Ok(error) = object_of(&answer) else { continue };
        let is_right = matches!(error.code, 1..=3 | 11 | 100..);
        Finding::unless(is_right, "code 1, 2, 3, 11, or one from 100 on", format!("it printed {}", error.object))?;
    }
    Ok(())
}

fn no_namespace_code(testbed: &Testbed) -> Result<(), Stop> {
    is_known_or_own(&no_namespace(testbed)?)
}

fn unusable_config_code(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    if let Some(config) = config.as_object_mut() {
        let keys: Vec<_> = config.keys().cloned().collect();
        for key in keys.iter().filter(|key| !["cniVersion", "name", "type", "prevResult"].contains(&key.as_str())) {
            config.insert(key.clone(), json!([[-1]]));
        }
    }
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    match answer.is_success() {
        true => Err(Stop::skip("it has no keys of its own in this config")),
        false => is_known_or_own(&answer),
    }
}

fn of_unspoken_version(testbed: &Testbed, verb: Verb) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(verb, &attachment);
    config["cniVersion"] = json!("9.9.9");
    testbed.make(&testbed.call_with(verb, &config, &attachment))?.fails_with(1).map(drop)
}

fn unsupported_field(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    config["zzConformance"] = json!("kept-or-named");
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    if answer.is_success() {
        return Ok(()); // ignored, as it may
    }
    let error = object_of(&answer)?;
    Stop::skip_if(error.code != 2, format!("it refuses such a field with code {}", error.code))?;
    let says = |text: &str| error.msg.contains(text);
    Finding::unless(
        says("zzConformance") && says("kept-or-named"),
        "key and value in msg",
        format!("it printed {}", error.object),
    )
}

fn container_unknown(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    testbed.remember();
    let call =
        testbed.call(Verb::Add, Attachment { netns: "/run/netns/no-such-namespace".to_owned(), ..pod.attachment() });
    let answer = testbed.make(&call)?;
    match answer.fails() {
        Ok(error) if error.code == 3 => {}
        _ => return Err(Stop::skip("it does not say code 3 when the container is not there")),
    }
    Finding::unless_differs(testbed.left_behind(), "nothing left after code 3", "something is")
}

/// Checks that a call that fails with code 4 names a variable: a plugin may stop at the first that is wrong, and need not
/// want all of them. Whether it names all is `relied.words`' to ask.
fn names(answer: &Answer, variables: &[&str]) -> Result<(), Stop> {
    let error = object_of(answer)?;
    Stop::skip_if(error.code != 4, format!("its code is {}, not 4", error.code))?;
    let says_one = variables.iter().any(|name| error.msg.contains(name));
    Finding::unless(says_one, format!("{} in msg", variables.join(" or ")), format!("it printed {}", error.object))
}

fn names_missing(testbed: &Testbed, variables: &[&str]) -> Result<(), Stop> {
    names(&without(testbed, variables)?, variables)
}

fn without(testbed: &Testbed, variables: &[&str]) -> Result<Answer, Stop> {
    let call = testbed.call(Verb::Add, &testbed.pod());
    let answer = testbed.make(&variables.iter().fold(call, |call, name| call.without(name)))?;
    Ok(answer.refused_by("parameters.required"))
}

/// Memory that is not mapped can be opened, but reading it is an error (EIO). Not a folder: some interpreters would not even
/// start with one; nor what is closed for reading, which some languages take for empty.
fn unreadable_stdin(testbed: &Testbed) -> Result<(), Stop> {
    let call: Call = testbed.call_with(Verb::Add, "", &testbed.pod());
    let (executable, variables, _) = call.invocation(&testbed.node);
    let unreadable = File::open("/proc/self/mem");
    let unreadable = unreadable.map_err(|error| Stop::skip(format!("cannot open /proc/self/mem: {error}")))?;
    let mut command = Command::new(executable);
    command.env_clear().envs(variables).stdin(unreadable).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| Stop::skip(format!("cannot start the plugin: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let output = Output { status: output.status, stdout, stderr, elapsed: std::time::Duration::ZERO };
    testbed.record(&call, Some(&output))?.fails_with(5).map(drop)
}

fn undecodable(testbed: &Testbed, stdin: &str) -> Result<(), Stop> {
    let answer = testbed.make(&testbed.call_with(Verb::Add, stdin, &testbed.pod()))?;
    answer.refused_by("parameters.config-is-one-json-object").fails_with(6).map(drop)
}

fn truncated_config(testbed: &Testbed) -> Result<(), Stop> {
    let mut text = testbed.config().to_string();
    text.pop();
    undecodable(testbed, &text)
}

fn without_name(testbed: &Testbed) -> Result<Answer, Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    if let Some(config) = config.as_object_mut() {
        config.shift_remove("name");
    }
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    Ok(answer.refused_by("configuration.name-is-a-name"))
}

fn bad_name_answer(testbed: &Testbed) -> Result<Answer, Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    config["name"] = json!("a/b");
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    Ok(answer.refused_by("configuration.name-is-a-name"))
}
