//! SPEC 2, VERSION, and the versions of SPEC 1 and 5.

use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, each, newest, relied, spec};
use crate::spec_version;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("version.lists-versions", &["version/keys"], Role::PLUGINS)
        .says("VERSION prints cniVersion and supportedVersions, a list of the versions that the plugin speaks.")
        .by(&[newest("", lists_versions).does("VERSION; the list has to have the version that is tried.")]),
    spec("version.echoes", &["version/keys"], Role::PLUGINS)
        .says("cniVersion of VERSION's answer is that of its input.")
        .by(&[newest("", echoes).does("VERSION with each version there is as its input.")]),
    spec("version.needs-the-command-only", &["version/input"], Role::PLUGINS)
        .says("VERSION needs no variable but CNI_COMMAND, and of its input cniVersion alone.")
        .by(&[newest("", needs_the_command_only).does("VERSION with no other variable.")]),
    spec("version.same-list-for-any-input", &["version/keys"], Role::PLUGINS)
        .says("The list of supported versions is the plugin's, whichever of them the input has.")
        .by(&[newest("known", |testbed| {
            spec_version::VERSIONS.iter().try_for_each(|version| same_list_as_for(testbed, version))
        })
        .does("VERSION with each version there is as its input; the lists are compared.")]),
    relied(
        "version.answers-a-newer-one",
        "runtimes that are newer than a plugin, and ask in their own version",
        Role::PLUGINS,
    )
    .says("VERSION in a version that the plugin does not know has the same list.")
    .by(&[newest("", |testbed| same_list_as_for(testbed, "99.0.0"))
        .does("VERSION with 99.0.0; the list is compared with that of 1.1.0.")]),
    spec("version.serves-what-it-lists", &["versions/plugins"], Role::ALL)
        .says("A config in any version that the plugin lists is served.")
        .by(&[each("", serves_what_it_lists).does("ADD and DEL.")]),
];

fn lists_versions(testbed: &Testbed) -> Result<(), Stop> {
    let answer = ask(testbed, &testbed.config())?;
    let list = answer.get("supportedVersions").and_then(Value::as_array);
    let is_version = |version: &Value| {
        let parts = version.as_str().into_iter().flat_map(|text| text.split('.'));
        parts.map(str::parse::<u32>).filter(Result::is_ok).count() == 3
    };
    let is_right = list.is_some_and(|list| list.contains(&json!(testbed.version)) && list.iter().all(is_version));
    Finding::unless(
        is_right && answer.get("cniVersion").is_some_and(Value::is_string),
        format!("cniVersion, and {} in supportedVersions", testbed.version),
        format!("it printed {answer}"),
    )
}

fn echoes(testbed: &Testbed) -> Result<(), Stop> {
    for version in spec_version::VERSIONS {
        let answer = ask(testbed, &json!({ "cniVersion": version }))?;
        let is_right = answer.get("cniVersion") == Some(&json!(version));
        Finding::unless(is_right, format!("cniVersion {version}"), format!("it printed {answer}"))?;
    }
    Ok(())
}

fn needs_the_command_only(testbed: &Testbed) -> Result<(), Stop> {
    let answer = ask(testbed, &json!({ "cniVersion": testbed.version }))?;
    let has_list = answer.get("supportedVersions").is_some_and(Value::is_array);
    Finding::unless(has_list, "supportedVersions", format!("it printed {answer}"))
        .map_err(|stop| stop.based_on("version.lists-versions"))
}

fn same_list_as_for(testbed: &Testbed, version: &str) -> Result<(), Stop> {
    let newest = ask(testbed, &json!({ "cniVersion": "1.1.0" }))?;
    let other = ask(testbed, &json!({ "cniVersion": version }))?;
    let list = |answer: &Value| answer.get("supportedVersions").cloned().unwrap_or_default();
    Finding::unless(
        list(&newest) == list(&other),
        format!("the same list for 1.1.0 and {version}"),
        format!("they are {} and {}", list(&newest), list(&other)),
    )
}

fn serves_what_it_lists(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result = testbed.add(&pod)?;
    testbed.del(&pod, &result)
}

fn ask(testbed: &Testbed, input: &Value) -> Result<Value, Stop> {
    testbed.make(&testbed.call_with(Verb::Version, input, Attachment::none()))?.succeeds()
}
