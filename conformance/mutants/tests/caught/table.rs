//! The tables of mutants and of rules.

use cni_conformance::{Profile, rules, stress};
use mutants::wrong;

/// Rules with cases that no mutant breaks, and why.
const EXCUSED: &[(&str, &str)] = &[(
    "conventions.dns",
    "no plugin of the suite or of the reference has the capability, so that there is none to be made wrong",
)];

/// Each rule has a mutant that breaks it, or a reason why none can.
#[test]
fn every_rule_has_a_mutant_or_an_excuse() {
    let mut faults = Vec::new();
    for rule in rules::all().chain(stress::rules()) {
        let mutants = wrong::all().filter(|mutant| mutant.rule == rule.id).count();
        let excuses = EXCUSED.iter().filter(|(id, _)| *id == rule.id).count();
        match (mutants, excuses) {
            (1.., 0) | (0, 1) => {}
            (0, 0) => faults.push(format!("{} has neither a mutant nor an excuse", rule.id)),
            _ => faults.push(format!("{} has both, or two excuses", rule.id)),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The kit knows the reference's plugins by itself, and each of ours by one of its own profiles.
#[test]
fn each_plugin_of_the_suite_has_a_profile() {
    let profiles = Profile::built_in();
    let has_profile = |name: &str| profiles.iter().any(|profile| profile.executable == name);
    let names = cni_plugins::ENTRIES.iter().map(|entry| entry.name);
    let missing: Vec<_> = names.filter(|name| *name != "noop" && !has_profile(name)).collect();
    assert!(missing.is_empty(), "no profile in cni-conformance/src/profile/built_in.json: {missing:?}");
}

#[test]
fn mutants_name_what_there_is() {
    let is_rule = |id: &str| rules::all().chain(stress::rules()).any(|rule| rule.id == id);
    for mutant in wrong::all() {
        assert_eq!(wrong::all().filter(|other| other.name == mutant.name).count(), 1, "{}", mutant.name);
        assert!(Profile::find(mutant.profile).is_some(), "{}: {}", mutant.name, mutant.profile);
        for id in mutant.also.iter().chain([&mutant.rule]) {
            assert!(is_rule(id), "{}: there is no rule {id}", mutant.name);
        }
    }
    for (id, _) in EXCUSED {
        assert!(is_rule(id), "there is no rule {id} to excuse");
    }
}
