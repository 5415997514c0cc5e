//! Random histories of a node whose pods exchange packets all the time: what does not address an attachment leaves it alone.
//!
//! A [`step::History`] is a sequence of ADD, DEL, GC, `cnitool doctor --fix` and kills, by `cnitool`, by raw calls of our
//! plugins and of the reference's. It [runs](run) on a fresh node, on networks of bridge, ptp and macvlan with
//! [chained plugins](network), while [packets](traffic) of all living pods are counted; some pods hand their addresses over to a virtual
//! machine. After each step the [rules] have to hold: no packet of a pod is lost that no call has addressed, no address is held
//! twice or free while a pod has it, CHECK passes; at the end nothing is left. A history that breaks a rule is
//! reduced before it is shown.
//!
//! An hour of other histories: `HISTORY_SECONDS=3600 cargo test -p faults --test history`. Further variables:
//! `HISTORY_SEED`, the first seed; `HISTORY_STEPS`, how long a history is; `HISTORY_ONLY=3,7`, these steps of it only;
//! `HISTORY_SHRINK_SECONDS`.

#![expect(clippy::disallowed_methods, reason = "the length of a run is asked for by variables")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod step;

mod network;

mod calls;
mod traffic;

mod held_resources;
mod pod;
mod rules;
mod run;

use std::fmt::Write;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use faults::settings::{number, number_or, text};
use run::Fault;
use step::History;

/// The seeds that find each rule about living containers that was broken on purpose.
const SEEDS: &[u64] = &[1, 2, 3, 4, 5, 6];

const STEPS: u64 = 25;

const AT_ONCE: usize = 4;

const TEST: &str = "no_history_harms_a_container_that_it_does_not_address";
/// The variable by which the test knows that it runs one history, in namespaces of its own.
const INSIDE: &str = "HISTORY_INSIDE";

#[test]
fn no_history_harms_a_container_that_it_does_not_address() {
    let has_reference = testns::reference_or_skip(TEST).is_some();
    if let Some(seed) = number(INSIDE) {
        return history(seed, has_reference);
    }
    let (start, seconds) = (Instant::now(), number("HISTORY_SECONDS"));
    let by_time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1000;
    let seeds: Box<dyn Iterator<Item = u64> + Send> = match (seconds, number("HISTORY_SEED")) {
        (Some(_), seed) => Box::new(seed.unwrap_or_else(by_time)..),
        (None, Some(seed)) => Box::new(std::iter::once(seed)),
        (None, None) => Box::new(SEEDS.iter().copied()),
    };
    let (seeds, failed) = (Mutex::new(seeds), Mutex::new(Vec::new()));
    let is_over = || {
        let is_late = seconds.is_some_and(|seconds| start.elapsed() >= Duration::from_secs(seconds));
        is_late || !failed.lock().unwrap().is_empty()
    };
    let next = || if is_over() { None } else { seeds.lock().unwrap().next() };
    let work = || {
        while let Some(seed) = next() {
            failed.lock().unwrap().extend(fault_in_own_namespaces(seed));
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs the history of a seed in PID namespaces of its own, as the first process: GC and doctor look for living containers in the
/// namespaces of all processes, so they must see those of no other history.
fn fault_in_own_namespaces(seed: u64) -> Option<String> {
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture", "--test-threads", "1"]).env(INSIDE, seed.to_string());
    let output = command.output().expect("start unshare");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (!output.status.success()).then(|| text(&output.stdout) + &text(&output.stderr))
}

/// Runs a seed's history; panics with a smaller one if it breaks a rule.
fn history(seed: u64, has_reference: bool) {
    let length = usize::try_from(number_or("HISTORY_STEPS", STEPS)).unwrap();
    let whole = History::of_seed(seed, length, has_reference);
    let mut kept: Vec<usize> = match text("HISTORY_ONLY") {
        Some(text) => text.split(',').map(|number| number.parse::<usize>().unwrap() - 1).collect(),
        None => (0..length).collect(),
    };
    let Err(fault) = run::run(&whole.only(&kept), has_reference) else { return };
    let first = describe(&whole.only(&kept), &fault);
    testns::note(&format!("seed {seed}: {first}"));
    // The steps behind the fault are not needed for it.
    kept.truncate(fault.at.saturating_add(1));
    let deadline = Instant::now() + Duration::from_secs(number_or("HISTORY_SHRINK_SECONDS", 120));
    for place in (0..kept.len()).rev() {
        let without = [&kept[..place], &kept[place + 1..]].concat();
        if Instant::now() < deadline && run::run(&whole.only(&without), has_reference).is_err() {
            kept = without;
        }
    }
    let history = whole.only(&kept);
    let text = match run::run(&history, has_reference) {
        Err(fault) => describe(&history, &fault),
        Ok(()) => format!("this does not fail each time; before it was reduced it failed {first}"),
    };
    let numbers: Vec<_> = kept.iter().map(|at| (at + 1).to_string()).collect();
    panic!("seed {seed}: HISTORY_SEED={seed} HISTORY_STEPS={length} HISTORY_ONLY={}\n{text}", numbers.join(","));
}

fn describe(history: &History, fault: &Fault) -> String {
    let mut text = String::new();
    for (at, step) in history.steps.iter().enumerate().take(fault.at.saturating_add(1)) {
        writeln!(text, "{:3}  {step:?}", at + 1).unwrap();
    }
    let place = if fault.at >= history.steps.len() { "at the end" } else { "after the last step shown" };
    format!("{place}: {}\n{text}", fault.words)
}
