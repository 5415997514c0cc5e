//! The tables of mutants and of rules.

use cni_conformance::rule::{Level, Proof, Rule};
use cni_conformance::runtime::RuntimeBench;
use cni_conformance::sentences::Force;
use cni_conformance::{Profile, rules, runtime, sentences, stress};
use mutants::{excused, known, wrong};

/// Each rule has a mutant that breaks it, or a reason why none can.
#[test]
fn every_rule_has_a_mutant_or_an_excuse() {
    let mut faults = Vec::new();
    for rule in rules::all().chain(stress::rules()) {
        let mutants = wrong::all().filter(|mutant| mutant.rule == rule.id).count();
        let excuses = excused::RULES.iter().filter(|(id, _)| *id == rule.id).count();
        match (rule.cases().is_empty(), mutants, excuses) {
            (true, 0, 0) | (false, 1.., 0) | (false, 0, 1) => {}
            (true, ..) => faults.push(format!("{} has no case, but a mutant or an excuse", rule.id)),
            (false, 0, 0) => faults.push(format!("{} has neither a mutant nor an excuse", rule.id)),
            (false, ..) => faults.push(format!("{} has both, or two excuses", rule.id)),
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
    assert!(missing.is_empty(), "no profile in cni-conformance/src/profile/built_in.rs: {missing:?}");
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
    for (id, _) in excused::RULES {
        assert!(is_rule(id), "there is no rule {id} to excuse");
    }
}

/// Each known fault is found by one case of a rule, and has a mutant, or the small runtime's fault, that is tried with
/// just that case.
#[test]
fn known_faults_are_found_by_a_case_that_has_a_mutant() {
    for known::Fault { what, rule, case, mutants } in known::FAULTS {
        let of_runtimes = runtime::rules::all().find(|other| other.id == *rule);
        if let Some(rule) = of_runtimes {
            assert!(mutants.is_empty() && rule.cases().iter().any(|other| other.name == *case), "{what}: {}", rule.id);
            continue;
        }
        let cases = rules::rule(rule).unwrap_or_else(|| panic!("{what}: there is no rule {rule}")).cases();
        assert!(cases.iter().any(|other| other.name == *case), "{what}: {rule} has no case {case:?}");
        assert!(!mutants.is_empty(), "{what}: no mutant");
        for name in *mutants {
            let mutant = wrong::all().find(|mutant| mutant.name == *name);
            let mutant = mutant.unwrap_or_else(|| panic!("{what}: there is no mutant {name}"));
            let is_of_case = cases.len() == 1 || mutant.cases == [*case];
            assert!(mutant.rule == *rule && is_of_case, "{what}: {name} is one of {} {:?}", mutant.rule, mutant.cases);
        }
    }
}

/// RULES.md has each rule as the code has it.
#[test]
fn the_document_is_the_codes() {
    expect_test::expect_file!["../../../cni-conformance/RULES.md"].assert_eq(&document());
}

fn document() -> String {
    let mut text = String::from(HEAD);
    sections(&mut text, COLUMNS, rules::all().chain(stress::rules()), |rule| row(rule, &mutants_of(rule.id)));
    text.push_str(RUNTIMES_HEAD);
    sections(&mut text, RUNTIMES_COLUMNS, runtime::rules::all(), runtime_row);
    text.push_str(KNOWN_HEAD);
    for known::Fault { what, rule, case, mutants } in known::FAULTS {
        let of_runtimes = runtime::rules::all().find(|other| other.id == *rule);
        let (level, shown) = match of_runtimes {
            Some(rule) => (rule.level(), fault_of(rule).to_owned()),
            None => (rules::rule(rule).map(Rule::level).expect("a rule"), mutants.join(", ")),
        };
        text.push_str(&format!("| {what} | {rule} | {case} | {level} | {shown} |\n"));
    }
    text
}

/// SENTENCES.md has each sentence of the specification, its rules, and what shows that they can fail; then rules of which no
/// sentence speaks.
#[test]
fn the_sentences_are_those_of_the_code() {
    expect_test::expect_file!["../../../cni-conformance/SENTENCES.md"].assert_eq(&sentences());
}

fn sentences() -> String {
    let mut text = String::from(SENTENCES_HEAD);
    for sentence in sentences::all() {
        let sentences::Sentence { id, section, since, until, force, binds, says, unasked, .. } = sentence;
        let editions = match (since, until) {
            (None, None) => "all".to_owned(),
            (Some(since), None) => format!("from {since}"),
            (None, Some(until)) => format!("to {until}"),
            (Some(since), Some(until)) => format!("{since} to {until}"),
        };
        let force = if *force == Force::Plain { String::new() } else { format!("{force:?}").to_uppercase() };
        let binds = format!("{binds:?}").to_lowercase();
        let asked = match unasked {
            Some(why) => format!("none: {why} |"),
            None => {
                let rules = sentence.rules();
                let shown: Vec<_> = rules.iter().map(|id| shown_by(id)).filter(|shown| !shown.is_empty()).collect();
                format!("{} | {}", rules.join(", "), shown.join(", "))
            }
        };
        text.push_str(&format!("| {id} | {section} | {editions} | {force} | {binds} | {says} | {asked} |\n"));
    }
    text.push_str(UNSAID_HEAD);
    let plugins =
        rules::all().chain(stress::rules()).map(|rule| (rule.id, rule.level(), rule.section(), rule.sentence));
    let all = plugins.chain(runtime::rules::all().map(|rule| (rule.id, rule.level(), rule.section(), rule.sentence)));
    for (id, level, whom, says) in all.filter(|(_, level, ..)| [Level::Relied, Level::Robustness].contains(level)) {
        text.push_str(&format!("| {id} | {level} | {whom} | {says} | {} |\n", shown_by(id)));
    }
    text
}

/// The mutants that break a rule, or the fault of the small runtime.
fn shown_by(id: &str) -> String {
    let of_runtimes = runtime::rules::all().find(|rule| rule.id == id);
    of_runtimes.map_or_else(|| mutants_of(id), |rule| fault_of(rule).to_owned())
}

/// A table for each family of rules: what stands before the dot.
fn sections<B: 'static>(
    text: &mut String,
    columns: &str,
    rules: impl Iterator<Item = &'static Rule<B>>,
    row: impl Fn(&Rule<B>) -> String,
) {
    let mut family = "";
    for rule in rules {
        let (own, _) = rule.id.split_once('.').unwrap_or((rule.id, ""));
        if own != family {
            family = own;
            text.push_str(&format!("\n## {family}\n\n{columns}"));
        }
        text.push_str(&row(rule));
    }
}

const HEAD: &str = "# Rules\n
Each sentence of the CNI specification, of CONVENTIONS, and of what runtimes and others depend on, that a plugin can keep to or
break, as binding as that sentence ([STATED](SENTENCES.md) where it has no word of force); how `cni-conformance plugin` finds out, and the mutant (crate `mutants`) that shows that it does: a plugin of
ours that breaks just this rule and has to be caught. [Those for runtimes](#rules-for-runtimes) come after them.
[SENTENCES.md](SENTENCES.md) goes the other way: from each sentence of the specification to its rules.
Those about ROBUSTNESS, which no sentence asks for, are tried by `cni-conformance stress`.
`UPDATE_EXPECT=1 cargo test -p mutants document` writes this file.\n";

const SENTENCES_HEAD: &str = "# The specification, sentence by sentence\n
What CNI SPEC 1.1.0, as it stands since library 1.3, and CONVENTIONS say, in our own words, with what 1.0.0 and 0.4.0 said
otherwise; in which editions, how bindingly and to whom; which of the [rules](RULES.md) ask for it, and the wrong plugins or faults of a
small runtime that show that those can fail. A row without a word of force is a definition or a step of a procedure. A rule is as
binding as the sentence that it cites, with every case, and is tried only with versions of an edition that has the sentence.
The values of a result's keys are a MUST, as the list of keys is. [What no sentence says](#what-no-sentence-says) comes after them.
`UPDATE_EXPECT=1 cargo test -p mutants --test caught sentences` writes this file.\n
| Sentence | Section | Editions | Force | Binds | Says | Asked by | Shown by |\n|---|---|---|---|---|---|---|---|\n";

const UNSAID_HEAD: &str = "\n# What no sentence says\n
RELIED ON: written nowhere, with those who depend on it. ROBUSTNESS is tried by `cni-conformance stress`.\n
| Rule | Level | Who depends on it | Says | Shown by |\n|---|---|---|---|---|\n";

const COLUMNS: &str = "| Rule | Section | Level | Says | Binds | Cases | Mutants |\n|---|---|---|---|---|---|---|\n";

const RUNTIMES_HEAD: &str = "\n# Rules for runtimes\n
The same of what a runtime can keep to or break; how `cni-conformance runtime` finds out, and the fault (`tests/runtime`) of
a small runtime that breaks this rule and has to be caught. What else a fault breaks stands in `tests/runtime/faults.rs`.\n";

const KNOWN_HEAD: &str = "\n# Known faults\n
What plugins and runtimes are known to get wrong, the reference and its library first: the case that finds it, and the mutants, or the
small runtime's fault, that are tried with just that case and have to be caught by it (`mutants/src/known.rs`).\n
| Fault | Rule | Case | Level | Shown by |\n|---|---|---|---|---|\n";

const RUNTIMES_COLUMNS: &str = "| Rule | Section | Level | Says | Cases | Fault |\n|---|---|---|---|---|---|\n";

fn row(rule: &Rule, mutants: &str) -> String {
    let Rule { id, sentence, roles, .. } = rule;
    let (section, level) = (rule.section(), rule.level());
    let roles: Vec<_> = roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
    let (cases, mutants) = (cases(rule), if rule.cases().is_empty() { "" } else { mutants });
    format!("| {id} | {section} | {level} | {sentence} | {} | {cases} | {mutants} |\n", roles.join(", "))
}

/// A rule's fault has the name of the rule within its family, which a test of `tests/runtime` checks.
fn runtime_row(rule: &Rule<RuntimeBench>) -> String {
    let Rule { id, sentence, .. } = rule;
    let (section, level) = (rule.section(), rule.level());
    let fault = fault_of(rule);
    format!("| {id} | {section} | {level} | {sentence} | {} | {fault} |\n", cases(rule))
}

fn fault_of(rule: &Rule<RuntimeBench>) -> &'static str {
    rule.id.split_once('.').filter(|_| !rule.cases().is_empty()).map_or("", |(_, fault)| fault)
}

fn cases<B>(rule: &Rule<B>) -> String {
    match rule.proof {
        Proof::Untestable(why) => format!("none: {why}"),
        Proof::Cases([case]) if case.name.is_empty() => "one".to_owned(),
        Proof::Cases(cases) => cases.iter().map(|case| case.name).collect::<Vec<_>>().join(", "),
    }
}

fn mutants_of(id: &str) -> String {
    let mutants: Vec<_> = wrong::all().filter(|mutant| mutant.rule == id).map(|mutant| mutant.name).collect();
    let excuse = excused::RULES.iter().find(|(rule, _)| *rule == id);
    excuse.map_or_else(|| mutants.join(", "), |(_, why)| format!("none: {why}"))
}
