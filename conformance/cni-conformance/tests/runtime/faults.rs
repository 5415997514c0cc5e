//! Each fault of the runtime in small, and the rules that it breaks: the first is the one that it is there for, and
//! the others cannot be kept while that is broken.

use crate::run_kit::check;
use std::collections::BTreeSet;

/// Rule that a fault is there for, by which the fault is named; and what else it breaks.
const FAULTS: &[(&str, &[&str])] = &[
    ("config.newest-version", &[]),
    ("config.unknown-keys", &[]),
    ("config.plugins-aside", &[]),
    ("config.aside-come-last", &["config.plugins-aside"]),
    ("config.aside-is-validated", &[]),
    ("config.only-inlined", &[]),
    ("config.type-is-no-path", &[]),
    ("config.names-are-checked", &[]),
    ("config.container-ids-are-checked", &[]),
    ("config.ifnames-are-checked", &["config.ifnames-in-0.4.0"]),
    ("config.ifnames-in-0.4.0", &[]),
    ("config.search-order", &[]),
    ("config.missing-executable", &[]),
    ("config.broken-neighbour", &[]),
    ("call.command", &[]),
    ("call.command-of-status", &["chain.status-asks-each", "chain.status-fails"]),
    ("call.container-id", &[]),
    ("call.netns", &[]),
    ("call.netns-of-del", &["chain.del-without-namespace"]),
    ("call.ifname", &[]),
    ("call.args", &["call.args-of-check", "call.args-of-del"]),
    ("call.args-of-check", &[]),
    ("call.args-of-del", &[]),
    ("call.path", &[]),
    ("call.nothing-stale", &[]),
    ("call.one-object", &[]),
    ("call.same-environment-in-0.4.0", &[]),
    (
        "call.stdin-in-0.4.0",
        &[
            "chain.add-gives-last-result",
            "chain.check-has-result",
            "chain.del-has-result",
            "chain.ends-at-error-in-0.4.0",
            "chain.order-in-0.4.0",
            "derive.name-and-version-to-1.0.0",
            "lifecycle.result-is-forgotten-in-0.4.0",
        ],
    ),
    ("call.in-own-namespace", &[]),
    ("call.no-other-files", &[]),
    ("lifecycle.one-at-a-time", &[]),
    ("lifecycle.gc-alone", &[]),
    ("lifecycle.no-second-add", &["lifecycle.no-second-add-in-0.4.0"]),
    ("lifecycle.no-second-add-in-0.4.0", &[]),
    ("lifecycle.containers-in-parallel", &[]),
    ("derive.name-and-version", &["derive.name-and-version-to-1.0.0"]),
    ("derive.name-and-version-to-1.0.0", &[]),
    ("derive.keys-pass", &[]),
    ("derive.capabilities-removed", &[]),
    ("derive.runtime-config", &[]),
    ("derive.runtime-config-in-0.4.0", &[]),
    ("derive.no-first-result", &[]),
    ("derive.result-of-the-one-before", &[]),
    (
        "chain.add-in-order",
        &[
            "answers.a-child-holds-stdout",
            "answers.busy-executable",
            "answers.error-with-status-0",
            "answers.no-result",
            "answers.status-counts",
            "chain.add-stops-at-error",
            "chain.ends-at-error-in-0.4.0",
            "chain.order-in-0.4.0",
            "config.aside-come-last",
            "config.plugins-aside",
            "derive.name-and-version",
            "derive.name-and-version-to-1.0.0",
            "derive.runtime-config",
        ],
    ),
    ("chain.order-in-0.4.0", &["chain.ends-at-error-in-0.4.0", "derive.name-and-version-to-1.0.0"]),
    ("chain.ends-at-error-in-0.4.0", &[]),
    (
        "chain.add-stops-at-error",
        &[
            "answers.busy-executable",
            "answers.error-with-status-0",
            "answers.no-result",
            "answers.status-counts",
            "chain.ends-at-error-in-0.4.0",
        ],
    ),
    ("chain.error-is-reported", &[]),
    ("chain.add-gives-last-result", &[]),
    ("chain.check-in-order", &["chain.check-fails"]),
    ("chain.check-has-result", &[]),
    ("chain.check-fails", &[]),
    ("chain.no-check-before-0.4.0", &[]),
    ("chain.check-disabled", &[]),
    (
        "chain.del-in-reverse",
        &[
            "answers.del-prints-what-it-likes",
            "chain.del-stops-at-error",
            "chain.del-without-namespace",
            "chain.ends-at-error-in-0.4.0",
            "chain.order-in-0.4.0",
            "lifecycle.del-after-failed-add",
            "lifecycle.del-without-config",
        ],
    ),
    ("chain.del-has-result", &[]),
    ("chain.del-stops-at-error", &["chain.ends-at-error-in-0.4.0"]),
    ("chain.gc-names-valid-attachments", &[]),
    ("chain.gc-is-no-del", &[]),
    ("chain.del-is-no-gc", &["chain.del-has-result", "chain.del-in-reverse", "chain.del-stops-at-error"]),
    ("chain.gc-goes-on-after-error", &[]),
    ("chain.no-gc-before-1.1.0", &[]),
    ("chain.gc-disabled", &[]),
    ("chain.status-asks-each", &[]),
    ("chain.status-fails", &[]),
    ("chain.no-status-before-1.1.0", &[]),
    ("chain.del-without-namespace", &[]),
    ("lifecycle.del-after-failed-add", &[]),
    ("lifecycle.del-of-all-in-0.4.0", &[]),
    ("lifecycle.del-again-after-failed-del", &[]),
    ("lifecycle.result-is-forgotten", &["lifecycle.no-check-without-add", "lifecycle.result-is-forgotten-in-0.4.0"]),
    ("lifecycle.result-is-forgotten-in-0.4.0", &[]),
    (
        "lifecycle.result-is-of-attachment",
        &[
            "chain.gc-disabled",
            "chain.gc-goes-on-after-error",
            "chain.gc-names-valid-attachments",
            "chain.no-gc-before-1.1.0",
        ],
    ),
    ("lifecycle.no-check-without-add", &[]),
    ("lifecycle.del-twice", &[]),
    ("lifecycle.del-after-a-full-disk", &[]),
    ("lifecycle.del-without-config", &[]),
    ("answers.status-counts", &[]),
    ("answers.no-result", &[]),
    ("answers.error-with-status-0", &[]),
    ("answers.busy-executable", &[]),
    ("answers.del-prints-what-it-likes", &[]),
    ("answers.much-stderr", &[]),
    ("answers.stderr-is-passed", &[]),
    ("answers.a-child-holds-stdout", &[]),
    ("answers.plugin-hangs", &[]),
];

/// Seconds that a run of the runtime may take: it gives up on a plugin after 6.
const PATIENCE: [&str; 4] = ["--patience", "12", "--call-deadline", "12"];

fn fault_of(rule: &str) -> &str {
    rule.split_once('.').unwrap().1
}

#[test]
fn each_rule_has_its_fault() {
    let faults: Vec<_> = FAULTS.iter().map(|(rule, _)| *rule).collect();
    let rules: Vec<_> = cni_conformance::runtime::rules::all().map(|rule| rule.id).collect();
    let (faults, rules): (BTreeSet<_>, BTreeSet<_>) = (faults.into_iter().collect(), rules.into_iter().collect());
    assert_eq!(faults, rules);
}

#[test]
fn each_fault_is_caught_by_its_rule() {
    let missed: Vec<_> = FAULTS
        .iter()
        .filter(|(rule, _)| {
            let checked = check(fault_of(rule), &[&["--rule", rule], &PATIENCE[..]].concat());
            !checked.rules("fail").contains(*rule) || !checked.rules("broken").is_empty()
        })
        .map(|(rule, _)| *rule)
        .collect();
    assert_eq!(missed, Vec::<&str>::new());
}

#[test]
#[ignore = "sixty runs of all rules take a quarter of an hour: cargo test --test runtime -- --ignored; TEST_FAULTS=chain. for some"]
fn each_fault_is_caught_by_no_rule_that_it_does_not_break() {
    #[expect(clippy::disallowed_methods, reason = "a choice of rules for this run")]
    let only = std::env::var("TEST_FAULTS").unwrap_or_default();
    let mut wrong = String::new();
    for (rule, others) in FAULTS.iter().filter(|(rule, _)| only.split(',').any(|part| rule.contains(part))) {
        let checked = check(fault_of(rule), &PATIENCE);
        let expected: BTreeSet<_> = others.iter().chain([rule]).map(|rule| (*rule).to_owned()).collect();
        if checked.rules("fail") != expected || !checked.rules("broken").is_empty() {
            wrong += &format!("{rule}: {:?}\n{}\n", checked.rules("fail"), checked.failures());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
