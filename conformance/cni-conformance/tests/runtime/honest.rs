//! The honest runtime.

use crate::kit::judge;

#[test]
fn the_honest_runtime_keeps_every_rule() {
    let judged = judge("", &["--patience", "20"]);
    assert_eq!(judged.status, Some(0), "{}{}", judged.failures(), judged.stderr);
    assert_eq!(judged.failures(), "");
    // Of each rule something was tried, and what was not is about versions.
    let passed = judged.rules("pass");
    let known: Vec<_> = cni_conformance::runtime::rules::all().map(|rule| rule.id).collect();
    let untried: Vec<_> = known.into_iter().filter(|id| !passed.contains(*id)).collect();
    assert_eq!(untried, Vec::<&str>::new());
}
