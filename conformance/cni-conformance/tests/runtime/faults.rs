//! Each fault of the runtime in small, and the rules that it breaks: the first is the one that it is there for, and
//! the others cannot be kept while that is broken.

use crate::run_kit::{check, check_program};
use std::collections::BTreeSet;

/// Rules that a fault is there for, by which the fault is named; and what else it breaks.
fn faults() -> Vec<(&'static str, Vec<&'static str>)> {
    serde_json::from_str(include_str!("faults.json")).unwrap()
}

/// Seconds that a run of the runtime may take: it gives up on a plugin after 6.
const PATIENCE: [&str; 4] = ["--patience", "12", "--call-deadline", "12"];

fn fault_of(rule: &str) -> &str {
    rule.split_once('.').unwrap().1
}

#[test]
fn each_rule_has_its_fault() {
    let faults: BTreeSet<_> = faults().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(faults, cni_conformance::runtime::rules::all().map(|rule| rule.id).collect());
}

#[test]
fn each_fault_is_caught_by_its_rule() {
    let mut missed: Vec<_> = faults().into_iter().map(|(rule, _)| rule).collect();
    missed.retain(|rule| {
        let checked = check(fault_of(rule), &[&["--rule", rule], &PATIENCE[..]].concat());
        !checked.rules("fail").contains(*rule) || !checked.rules("broken").is_empty()
    });
    assert_eq!(missed, Vec::<&str>::new());
}

#[test]
fn each_other_form_of_a_fault_is_caught_by_the_same_rule() {
    let forms = [
        ("chain.check-has-result", "result-of-another-version"),
        ("chain.check-has-result", "result-without-version"),
        ("chain.del-has-result", "result-of-another-version"),
        ("derive.result-keys-pass", "result-of-known-keys"),
        ("lifecycle.result-is-of-attachment", "result-is-of-container"),
    ];
    for (rule, fault) in forms {
        let checked = check(fault, &[&["--rule", rule], &PATIENCE[..]].concat());
        assert!(checked.rules("fail").contains(rule), "{fault}: {}", checked.failures());
    }
}

#[test]
#[ignore = "sixty runs of all rules take a quarter of an hour: cargo test --test runtime -- --ignored; TEST_FAULTS=chain. for some"]
fn each_fault_is_caught_by_no_rule_that_it_does_not_break() {
    #[expect(clippy::disallowed_methods, reason = "a choice of rules for this run")]
    let only = std::env::var("TEST_FAULTS").unwrap_or_default();
    let mut wrong = String::new();
    for (rule, others) in faults().iter().filter(|(rule, _)| only.split(',').any(|part| rule.contains(part))) {
        let checked = check(fault_of(rule), &PATIENCE);
        let expected: BTreeSet<_> = others.iter().chain([rule]).map(|rule| (*rule).to_owned()).collect();
        if checked.rules("fail") != expected || !checked.rules("broken").is_empty() {
            wrong += &format!("{rule}: {:?}\n{}\n", checked.rules("fail"), checked.failures());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_honest_runtime_keeps_every_rule() {
    keeps_every_rule("");
}

#[test]
fn a_runtime_that_repeats_calls_keeps_every_rule() {
    keeps_every_rule("repeats");
}

fn keeps_every_rule(kind: &str) {
    let checked = check(kind, &["--patience", "20"]);
    assert_eq!(checked.status, Some(0), "{}{}", checked.failures(), checked.stderr);
    assert_eq!(checked.failures(), "");
    // Of each rule something was tried, and what was not is about versions.
    let passed = checked.rules("pass");
    let known: Vec<_> = cni_conformance::runtime::rules::all().map(|rule| rule.id).collect();
    let untried: Vec<_> = known.into_iter().filter(|id| !passed.contains(*id)).collect();
    assert_eq!(untried, Vec::<&str>::new());
}

/// Many rules say what must not be called, or must fail: no runtime is to keep them by idleness.
#[test]
fn a_runtime_that_does_nothing_keeps_no_rule() {
    for program in ["/bin/true", "/bin/false"] {
        let checked = check_program(program, "", &["--patience", "1"]);
        assert_eq!(checked.status, Some(1), "{program}: {}", checked.stderr);
        assert_eq!(checked.rules("pass"), std::collections::BTreeSet::new(), "{program}");
    }
}
