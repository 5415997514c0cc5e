//! SPEC 2, VERSION, and the versions of SPEC 1 and 5.

use crate::rules::prelude::*;
use crate::spec_version;

pub(super) const CASES: &[Code] = &[
    ("version.lists-versions", lists_versions),
    ("version.same-list-for-any-input/known", |testbed| {
        spec_version::VERSIONS.iter().try_for_each(|version| same_list_as_for(testbed, version))
    }),
    ("version.answers-a-newer-one", |testbed| same_list_as_for(testbed, "99.0.0")),
    ("version.serves-what-it-lists/refused", refuses_no_listed_version),
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

pub(super) fn has_list(answer: &Value) -> Result<(), Stop> {
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

fn refuses_no_listed_version(testbed: &Testbed) -> Result<(), Stop> {
    let answer = ask(testbed, &testbed.config())?;
    for version in answer["supportedVersions"].as_array().into_iter().flatten() {
        let mut config = testbed.config();
        config["cniVersion"] = version.clone();
        let answer = testbed.make(&testbed.call_with(Verb::Add, config, &testbed.pod()))?;
        let is_refused = answer.fails().is_ok_and(|error| error.code == 1);
        Finding::unless(!is_refused, format!("ADD in {version}, which is listed"), "it has code 1")?;
    }
    Ok(())
}

fn ask(testbed: &Testbed, input: &Value) -> Result<Value, Stop> {
    testbed.make(&testbed.call_with(Verb::Version, input, Attachment::none()))?.succeeds()
}
