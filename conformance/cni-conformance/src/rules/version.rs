//! SPEC 2, VERSION, and the versions of SPEC 1 and 5.

use super::cases::{each, newest};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::form;
use crate::profile::Role;
use crate::rule::{Proof, Rule, Source};
use serde_json::{Value, json};
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "version.lists-versions",
        source: Source::Spec(&["version/keys"]),
        sentence: "VERSION prints cniVersion and supportedVersions, a list of the versions that the plugin speaks.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("", lists_versions)]),
    },
    Rule {
        id: "version.echoes",
        source: Source::Spec(&["version/keys"]),
        sentence: "cniVersion of VERSION's answer is that of its input.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("", echoes)]),
    },
    Rule {
        id: "version.needs-the-command-only",
        source: Source::Spec(&["version/input"]),
        sentence: "VERSION needs no variable but CNI_COMMAND, and of its input cniVersion alone.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("", needs_the_command_only)]),
    },
    Rule {
        id: "version.same-list-for-any-input",
        source: Source::Spec(&["version/keys"]),
        sentence: "The list of supported versions is the plugin's, whichever of them the input has.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("known", same_list)]),
    },
    Rule {
        id: "version.answers-a-newer-one",
        source: Source::Relied("runtimes that are newer than a plugin, and ask in their own version"),
        sentence: "VERSION in a version that the plugin does not know has the same list.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("", same_list_for_a_newer_one)]),
    },
    Rule {
        id: "version.serves-what-it-lists",
        source: Source::Spec(&["versions/plugins"]),
        sentence: "A config in any version that the plugin lists is served.",
        roles: Role::ALL,
        proof: Proof::Cases(&[each("", serves_what_it_lists)]),
    },
    Rule {
        id: "version.negotiation",
        source: Source::Spec(&["versions/highest"]),
        sentence: "Of the versions of a network the highest that runtime and plugin know is used.",
        roles: Role::ALL,
        proof: Proof::Untestable("the runtime chooses: a plugin gets one version; `runtime` tries it"),
    },
];

fn lists_versions(bench: &Bench) -> Result<(), Stop> {
    let answer = ask(bench, &bench.config())?;
    let list = answer.get("supportedVersions").and_then(Value::as_array);
    let is_version = |version: &Value| {
        let parts = version.as_str().into_iter().flat_map(|text| text.split('.'));
        parts.map(str::parse::<u32>).filter(Result::is_ok).count() == 3
    };
    let is_right = list.is_some_and(|list| list.contains(&json!(bench.version)) && list.iter().all(is_version));
    Finding::unless(
        is_right && answer.get("cniVersion").is_some_and(Value::is_string),
        format!("cniVersion, and {} in supportedVersions", bench.version),
        format!("it printed {answer}"),
    )
}

fn echoes(bench: &Bench) -> Result<(), Stop> {
    for version in form::VERSIONS {
        let answer = ask(bench, &json!({ "cniVersion": version }))?;
        let is_right = answer.get("cniVersion") == Some(&json!(version));
        Finding::unless(is_right, format!("cniVersion {version}"), format!("it printed {answer}"))?;
    }
    Ok(())
}

fn needs_the_command_only(bench: &Bench) -> Result<(), Stop> {
    let answer = ask(bench, &json!({ "cniVersion": bench.version }))?;
    let has_list = answer.get("supportedVersions").is_some_and(Value::is_array);
    Finding::unless(has_list, "supportedVersions", format!("it printed {answer}"))
        .map_err(|stop| stop.based_on("version.lists-versions"))
}

fn same_list(bench: &Bench) -> Result<(), Stop> {
    form::VERSIONS.iter().try_for_each(|version| same_list_as_for(bench, version))
}

fn same_list_for_a_newer_one(bench: &Bench) -> Result<(), Stop> {
    same_list_as_for(bench, "99.0.0")
}

fn same_list_as_for(bench: &Bench, version: &str) -> Result<(), Stop> {
    let newest = ask(bench, &json!({ "cniVersion": "1.1.0" }))?;
    let other = ask(bench, &json!({ "cniVersion": version }))?;
    let list = |answer: &Value| answer.get("supportedVersions").cloned().unwrap_or_default();
    Finding::unless(
        list(&newest) == list(&other),
        format!("the same list for 1.1.0 and {version}"),
        format!("they are {} and {}", list(&newest), list(&other)),
    )
}

fn serves_what_it_lists(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    let result = bench.add(&pod)?;
    bench.del(&pod, &result)
}

fn ask(bench: &Bench, input: &Value) -> Result<Value, Stop> {
    bench.make(&bench.call_with(Verb::Version, input, Attachment::none()))?.succeeds()
}
