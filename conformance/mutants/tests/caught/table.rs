//! The tables of mutants and of rules, and the document that is written from them.

use cni_conformance::rule::{Proof, Rule, Source};
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

/// RULES.md has each sentence of the specification with the rules that ask for it, as the code has them.
#[test]
fn the_document_is_the_codes() {
    expect_test::expect_file!["../../../cni-conformance/RULES.md"].assert_eq(&document());
}

fn document() -> String {
    let all: Vec<_> =
        rules::all().chain(stress::rules()).map(Row::new).chain(runtime::rules::all().map(Row::new)).collect();
    let mut text = String::from(HEAD);
    let mut family = "";
    for sentence in sentences::all() {
        let (own, _) = sentence.id.split_once('/').unwrap_or((&sentence.id, ""));
        if own != family {
            family = own;
            text.push_str(&format!("\n## {family}\n\n{COLUMNS}"));
        }
        let first = |row: &&Row| row.cited.first().is_some_and(|id| *id == sentence.id);
        let (own, others): (Vec<_>, Vec<_>) =
            all.iter().filter(|row| sentence.rules().contains(&row.id)).partition(first);
        let others: Vec<_> = others.into_iter().map(|row| row.id).collect();
        text.push_str(&said(sentence, &others.join(", ")));
        own.iter().for_each(|row| text.push_str(&row.line("")));
    }
    text.push_str(UNSAID_HEAD);
    let unsaid = all.iter().filter(|row| row.cited.is_empty());
    unsaid.for_each(|row| text.push_str(&row.line(&format!("{}. ", row.whom))));
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

/// A sentence's row: how bindingly it speaks to whom, and rules in rows of other sentences that ask for it, too.
fn said(sentence: &sentences::Sentence, others: &str) -> String {
    let sentences::Sentence { id, section, since, until, force, binds, says, unasked, .. } = sentence;
    let editions = match (since, until) {
        (None, None) => String::new(),
        (Some(since), None) => format!(", from {since}"),
        (None, Some(until)) => format!(", to {until}"),
        (Some(since), Some(until)) => format!(", {since} to {until}"),
    };
    let force = if *force == Force::Plain { String::new() } else { format!("{force:?} ").to_uppercase() };
    let binds = format!("{binds:?}").to_lowercase();
    let asked = unasked.as_ref().map_or(others.to_owned(), |why| format!("none: {why}"));
    format!("| **{id}** | {force}{binds}{editions} | {says} ({section}) | {asked} | |\n")
}

/// A rule, of plugins or of runtimes.
struct Row {
    id: &'static str,
    cited: &'static [&'static str],
    whom: String,
    binds: String,
    says: &'static str,
    cases: String,
    shown_by: String,
}

impl Row {
    fn new<B>(rule: &'static Rule<B>) -> Self {
        let Rule { id, sentence, roles, source, .. } = rule;
        let cited: &[&str] = if let Source::Spec(cited) = source { cited } else { &[] };
        let roles: Vec<_> = roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
        let binds = roles.join(", ");
        let shown_by = match rule.proof {
            Proof::Untestable(_) => String::new(),
            Proof::Cases(_) if binds == "runtime" => fault_of(rule).to_owned(),
            Proof::Cases(_) => mutants_of(id),
        };
        let (whom, cases) = (rule.section(), cases(rule));
        Self { id, cited, whom, binds, says: sentence, cases, shown_by }
    }

    fn line(&self, whom: &str) -> String {
        let Self { id, binds, says, cases, shown_by, .. } = self;
        format!("| {id} | {binds} | {whom}{says} | {cases} | {shown_by} |\n")
    }
}

const HEAD: &str = "# Rules\n
What CNI SPEC 1.1.0, as it stands since library 1.3, and CONVENTIONS say, with what 1.0.0 and 0.4.0 said otherwise, sentence by sentence in
our own words (**bold**: how bindingly, to whom, in which editions; without a word of force it is a definition or a step of a procedure, STATED).
Below each are the rules that cite it: whom they bind, what they ask, their cases, and what shows that they can fail: a deliberately wrong
plugin (crate `mutants`) or a fault of a small runtime (`tests/runtime`), which breaks just this rule and has to be caught. A rule is as binding
as the sentence that it cites, with every case, and is tried only with versions of an edition that has the sentence. The values of a
result's keys are a MUST, as the list of keys is. In the row of a sentence are rules that ask for it beside another.
[What no sentence says](#what-no-sentence-says) and [known faults](#known-faults) come last.
`UPDATE_EXPECT=1 cargo test -p mutants document` writes this file.\n";

const COLUMNS: &str = "| Sentence, rules | Binds | Says | Cases | Shown by |\n|---|---|---|---|---|\n";

const UNSAID_HEAD: &str = "\n# What no sentence says\n
RELIED ON: written nowhere, with those who depend on it. ROBUSTNESS is tried by `cni-conformance stress`.\n
| Rule | Binds | Says | Cases | Shown by |\n|---|---|---|---|---|\n";

const KNOWN_HEAD: &str = "\n# Known faults\n
What plugins and runtimes are known to get wrong, the reference and its library first: the case that finds it, and the mutants, or the
small runtime's fault, that are tried with just that case and have to be caught by it (`mutants/src/known.rs`).\n
| Fault | Rule | Case | Level | Shown by |\n|---|---|---|---|---|\n";

/// A rule for runtimes: its fault has the name of the rule within its family, which a test of `tests/runtime` checks.
fn fault_of<B>(rule: &Rule<B>) -> &'static str {
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
