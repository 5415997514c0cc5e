//! SPEC 5, Error: the object, and the codes below 100.

use crate::rules::prelude::*;
use crate::spec_version::is_from;
use crate::testbed::{Answer, ErrorObject};
use std::fs::File;
use std::process::{Command, Stdio};
use testns::Output;

pub(super) const CASES: &[Code] = &[
    ("errors.version/newest", version_in_use),
    ("errors.version/before-1.0.0", version_in_use),
    ("errors.reserved-codes/unusable-config", unusable_config_code),
    ("errors.reserved-codes-in-0.4.0/unusable-config", unusable_config_code),
    ("errors.reserved-codes-in-0.4.0/codes-of-1.0.0", uses_no_code_of_1_0_0),
    ("errors.2-unsupported-field", unsupported_field),
    ("errors.3-container-unknown", container_unknown),
    ("errors.5-io", unreadable_stdin),
];

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
    Stop::skip_if(answer.is_success(), "its ADD does not look into the namespace").map(|()| answer)
}

/// Checks that a call did not exit with 0 and print an error. Whether it has to be an error is said by the basis.
pub(super) fn fails(answer: &Answer) -> Result<(), Stop> {
    let printed: Value = serde_json::from_str(&answer.record().stdout).unwrap_or_default();
    Stop::skip_if(answer.record().exit == Some(0) && printed.get("code").is_none(), "that is no failure of it")?;
    let exit = answer.record().exit;
    let fails = exit.is_some_and(|exit| exit != 0) && answer.signal().is_none();
    Finding::unless(fails, "an exit status other than 0", format!("it is {}", exit.unwrap_or(-1)))
        .map_err(|stop| stop.based_on(answer.basis_of_failure()))
}

/// The error's keys have the right types, if they are present. A call that succeeds is no failure: that it has to be one is
/// not asked by this, and less binding.
pub(super) fn prints_an_object(answer: &Answer) -> Result<(), Stop> {
    Stop::skip_if(answer.is_success(), "that is no failure of it")?;
    let ErrorObject { object, .. } = answer.fails()?;
    let is_text = |key: &str| object.get(key).is_none_or(Value::is_string);
    Finding::unless(
        is_text("details") && is_text("cniVersion"),
        "texts in details and cniVersion",
        format!("it printed {object}"),
    )
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
pub(super) fn is_known_or_own(answer: &Answer) -> Result<(), Stop> {
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
    Stop::skip_if(answer.is_success(), "it has no keys of its own in this config")?;
    is_known_or_own(&answer)
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
pub(super) fn names(answer: &Answer, variables: &[String]) -> Result<(), Stop> {
    let error = object_of(answer)?;
    Stop::skip_if(error.code != 4, format!("its code is {}, not 4", error.code))?;
    let says_one = variables.iter().any(|name| error.msg.contains(name));
    Finding::unless(says_one, format!("{} in msg", variables.join(" or ")), format!("it printed {}", error.object))
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
    let unreadable = unreadable.map_err(|error| Stop::not_here(format!("cannot open /proc/self/mem: {error}")))?;
    let mut command = Command::new(executable);
    command.env_clear().envs(variables).stdin(unreadable).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| Stop::not_here(format!("cannot start the plugin: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let output = Output { status: output.status, stdout, stderr, elapsed: std::time::Duration::ZERO };
    testbed.record(&call, Some(&output))?.fails_with(5).map(drop)
}

fn bad_name_answer(testbed: &Testbed) -> Result<Answer, Stop> {
    let attachment = testbed.pod().attachment();
    let mut config = testbed.config_for(Verb::Add, &attachment);
    config["name"] = json!("a/b");
    let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    Ok(answer.refused_by("configuration.name-is-a-name"))
}
