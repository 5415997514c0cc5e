//! The tables of mutants and of rules.

use cni_conformance::rule::{Level, Proof, Rule};
use cni_conformance::runtime::RuntimeBench;
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

/// LEVELS.md has each rule with the level and the source that it has in the code, and names no other.
#[test]
fn levels_that_changed_are_those_of_the_rules() {
    let document = include_str!("../../../cni-conformance/LEVELS.md");
    let all = || {
        let plugins = rules::all().chain(stress::rules()).map(|rule| (rule.id, rule.level(), rule.section()));
        plugins.chain(runtime::rules::all().map(|rule| (rule.id, rule.level(), rule.section())))
    };
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    for row in rows.filter(|row| row[0] != "Rule") {
        let find = |id: &str| all().find(|rule| rule.0 == id).unwrap_or_else(|| panic!("there is no rule {id}"));
        if let [id, _, level, source] = &*row {
            let rule = find(id);
            assert_eq!((rule.1.to_string(), rule.2), ((*level).to_owned(), (*source).to_owned()), "{id}");
        } else {
            row[0].split(", ").for_each(|id| drop(find(id)));
            row[2].split("; ").filter(|id| !id.starts_with("not asked")).for_each(|id| drop(find(id)));
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

/// COVERAGE.md has each MUST and SHOULD of the specification, its rules, and what shows that they can fail.
#[test]
fn the_coverage_is_that_of_sentences_and_rules() {
    expect_test::expect_file!["../../../COVERAGE.md"].assert_eq(&coverage());
}

fn coverage() -> String {
    let mut text = String::from(COVERAGE_HEAD);
    let mut section = "";
    for sentence in sentences::all().iter().filter(|sentence| [Level::Must, Level::Should].contains(&sentence.level()))
    {
        if sentence.section != section {
            section = &sentence.section;
            text.push_str(&format!("\n## {section}\n\n{COVERAGE_COLUMNS}"));
        }
        let shown = match &sentence.unasked {
            Some(why) => format!("| none: {why} | |"),
            None => {
                let rules = sentence.rules();
                let shown: Vec<_> = rules.iter().map(|id| shown_by(id)).filter(|shown| !shown.is_empty()).collect();
                format!("| {} | {} |", rules.join(", "), shown.join(", "))
            }
        };
        text.push_str(&format!("| {} | {} {shown}\n", sentence.level(), sentence.says));
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

const COVERAGE_HEAD: &str = "# The specification and what tests it\n
Every MUST and SHOULD of the CNI specification, in our words; the rules of `cni-conformance` that ask for it (RULES.md there has their
cases), and the wrong plugins or faults of a small runtime that show that those rules can fail. `UPDATE_EXPECT=1 cargo test -p mutants
coverage` writes this file.\n";

const COVERAGE_COLUMNS: &str = "| Level | Says | Rules | Shown by |\n|---|---|---|---|\n";

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
