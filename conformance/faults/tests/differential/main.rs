//! The reference's plugins and ours side by side: random configurations on random nodes.
//!
//! A [`case::Case`] is a node's history as shell commands, and one configuration. It [runs](run) on two fresh nodes:
//! on one the reference adds two pods, on the other our plugins do; each checks and deletes one pod itself and leaves
//! the other pod to its counterpart. The replies and the states of the nodes have to be [equal](compare), except for
//! the differences that [`tolerances`] lists with their rows of the plugins' pages. A case that differs is shown as JSON, and
//! [`one_case`] tries it again, or a part of it.
//!
//! The interface plugins tap and dummy are missing. ipvlan and vlan need a kernel that has them, such as that of `conformance/full-kernel`.
//!
//! Chained plugins run behind bridge, as [`keys::CHAIN`].
//!
//! To add a plugin, add a line to `keys.json` and its name to `ALL`, and to `SETTLED` when a long run shows no difference.
//! A long run, 5000 cases from the given seed on (`DIFFERENTIAL_PLUGINS=static,ptp`: of these plugins):
//! `DIFFERENTIAL_SEED=7 DIFFERENTIAL_CASES=5000 cargo test -p faults --test differential -- --ignored --nocapture`. One case again:
//! `DIFFERENTIAL_CASE='{"plugin": ...}' cargo test -p faults --test differential one_case -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod case;
mod keys;

mod run;

mod compare;
mod tolerances;

use case::Case;
use compare::Verdict;
use faults::settings::{number_or, text};
use faults::subjects::{Who, has_reference};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testns::Feature;

/// How many cases run at once. They mostly wait for the kernel.
const WORKERS: usize = 6;

/// The plugins that the short run compares everywhere.
const SETTLED: &[&str] = &["bridge", "ptp", "macvlan", "host-local", "host-device", "static", keys::CHAIN];
const ALL: &[&str] =
    &["bridge", "ptp", "macvlan", "ipvlan", "vlan", "host-local", "host-device", "static", keys::CHAIN];
/// Plugins that need a feature of the kernel.
const FEATURES: [(&str, Feature); 3] =
    [("macvlan", Feature::Macvlan), ("ipvlan", Feature::Ipvlan), ("vlan", Feature::Vlan)];

const SHOWN: usize = 12;

/// Compares the cases from `seed` on until `count` cases are done or the time is over. Panics with those that differ,
/// one of a kind. Returns how often each tolerance was needed.
fn compare_cases(names: &[&str], seed: u64, count: u64, time: Duration) -> BTreeMap<&'static str, u64> {
    let (next, start) = (AtomicU64::new(seed), Instant::now());
    let found: Mutex<BTreeMap<String, (u64, Case)>> = Mutex::default();
    let tolerated: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let work = || {
        loop {
            let seed_now = next.fetch_add(1, Ordering::Relaxed);
            if seed_now >= seed + count || start.elapsed() > time {
                return;
            }
            let case = Case::random(seed_now, names);
            let Verdict { differences, tolerances } = compare::compare(&case);
            for name in tolerances {
                *tolerated.lock().unwrap().entry(name).or_default() += 1;
            }
            if let Some(difference) = differences.first() {
                found.lock().unwrap().entry(difference.kind()).or_insert((seed_now, case));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let through = next.load(Ordering::Relaxed).saturating_sub(seed).min(count);
    testns::note(&format!("CASES {through} in {} s", start.elapsed().as_secs()));
    let tolerated = tolerated.into_inner().unwrap();
    testns::note(&format!("TOLERATED {tolerated:?}"));
    let found = found.into_inner().unwrap();
    let texts: Vec<_> = found.iter().take(SHOWN).map(|(kind, (seed, case))| describe(kind, *seed, case)).collect();
    assert!(texts.is_empty(), "{} kinds of differences\n\n{}", found.len(), texts.join("\n"));
    tolerated
}

/// Returns the plugins that the kernel has links for. The others are reported as skipped.
fn of_this_kernel<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let is_here = |name: &&str| FEATURES.iter().all(|(of, feature)| of != name || feature.or_skip());
    names.iter().copied().filter(is_here).collect()
}

fn describe(kind: &str, seed: u64, case: &Case) -> String {
    let mut text = format!("seed {seed}, {kind}: DIFFERENTIAL_CASE='{case}'\n");
    const LINES: usize = 12;
    for difference in compare::compare(case).differences.iter().take(LINES) {
        write!(text, "{difference}").unwrap();
    }
    text
}

/// Some seeds, the same in every run.
#[test]
fn ours_and_the_references_are_the_same_to_a_node() {
    if has_reference() {
        compare_briefly(&of_this_kernel(SETTLED), 20);
    }
}

/// The links that this machine's kernel may lack, in an emulated processor mostly. More cases on a kernel that has them:
/// `conformance/full-kernel/run --package faults --iptables --env DIFFERENTIAL_SECONDS=200 ipvlan_and_vlan`.
#[test]
fn ipvlan_and_vlan_are_the_references_to_a_node() {
    let names = of_this_kernel(&["ipvlan", "vlan"]);
    if !names.is_empty() && has_reference() {
        compare_briefly(&names, 40);
    }
}

fn compare_briefly(names: &[&str], seconds: u64) {
    let time = Duration::from_secs(number_or("DIFFERENTIAL_SECONDS", seconds));
    compare_cases(names, number_or("DIFFERENTIAL_SEED", 1), number_or("DIFFERENTIAL_CASES", u64::MAX / 2), time);
}

#[test]
fn every_tolerance_is_a_named_difference() {
    let pages = ["", "main/bridge", "main/ptp", "main/macvlan", "main/host-device", "ipam/host-local", "ipam/static"];
    let pages = pages.into_iter().chain(["meta/bandwidth", "meta/firewall"]);
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let read = |page: &str| std::fs::read_to_string(plugins.join(page).join("README.md")).unwrap();
    let named: String = pages.map(read).collect();
    let unnamed: Vec<_> = tolerances::ALL.iter().filter(|all| !named.contains(all.row)).map(|all| all.name).collect();
    assert!(unnamed.is_empty(), "no page of the plugins names {unnamed:#?}");
}

/// Runs any number of cases. A tolerance that a long run never needs is out of date.
#[test]
#[ignore = "runs for as long as DIFFERENTIAL_CASES asks"]
fn ours_and_the_references_are_the_same_to_a_node_for_long() {
    let only = text("DIFFERENTIAL_PLUGINS");
    let names = of_this_kernel(&only.as_deref().map_or(ALL.to_vec(), |only| only.split(',').collect()));
    let tolerated = compare_cases(
        &names,
        number_or("DIFFERENTIAL_SEED", 1000),
        number_or("DIFFERENTIAL_CASES", 2000),
        Duration::MAX,
    );
    if only.is_some() {
        return;
    }
    let mut unused = Vec::new();
    for tolerance in tolerances::ALL {
        let count = tolerated.get(tolerance.name).copied().unwrap_or_default();
        eprintln!("{count:6} {}", tolerance.name);
        unused.extend((count == 0).then_some(tolerance.name));
    }
    assert!(unused.is_empty(), "tolerances that nothing needed: {unused:#?}");
}

/// Runs the case of `DIFFERENTIAL_CASE`, in the form that a failure prints, and shows all that both runs observed.
#[test]
#[ignore = "needs a case"]
fn one_case() {
    let case = Case::parse(&text("DIFFERENTIAL_CASE").unwrap());
    for who in [Who::Ours, Who::Reference] {
        eprintln!("== {who:?}");
        let lines = run::run(&case, who);
        lines.iter().filter(|line| !line.text.contains(" sysctl ")).for_each(|line| eprintln!("{line}"));
    }
    let Verdict { differences, tolerances } = compare::compare(&case);
    eprintln!("tolerated: {tolerances:#?}");
    assert!(differences.is_empty(), "{}", differences.iter().map(ToString::to_string).collect::<String>());
}
