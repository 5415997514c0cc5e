//! SPEC 2, VERSION.

use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Case, Level, Proof, Rule, Versions};
use serde_json::Value;
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "version.lists-versions",
    section: "SPEC 2, VERSION",
    level: Level::Must,
    sentence: "VERSION prints cniVersion and supportedVersions, a list of the versions that the plugin speaks.",
    roles: Role::PLUGINS,
    proof: Proof::Cases(&[Case { name: "", versions: Versions::Each, run: lists_versions }]),
}];

fn lists_versions(bench: &Bench) -> Result<(), Stop> {
    let answer = bench.make(&bench.call(Verb::Version, Attachment::none()))?.succeeds()?;
    let list = answer.get("supportedVersions").and_then(Value::as_array);
    let is_listed = list.is_some_and(|list| list.iter().any(|version| version == &bench.version));
    match is_listed && answer.get("cniVersion").is_some_and(Value::is_string) {
        true => Ok(()),
        false => Err(Finding::new(
            format!("cniVersion, and {} in supportedVersions", bench.version),
            format!("it printed {answer}"),
        )
        .into()),
    }
}
