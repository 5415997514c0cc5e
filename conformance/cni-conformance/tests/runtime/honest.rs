//! The honest runtime, and those that do nothing.

use crate::run_kit::{check, check_program};

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
