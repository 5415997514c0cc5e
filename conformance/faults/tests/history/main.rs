//! Random histories of a node whose pods exchange packets all the time: what does not address an attachment leaves it alone.
//!
//! A [`step::History`] is a sequence of ADD, DEL, GC, `cnitool doctor --fix` and kills, by `cnitool`, by raw calls of our
//! plugins and of the reference's. It [runs](run) on a fresh node, on networks of bridge, ptp and macvlan with
//! [chained plugins](network), while [packets](traffic) of all living pods are counted; some pods hand their addresses over to a virtual
//! machine. After each step the [rules] have to hold: no packet of a pod is lost that no call has addressed, no address is held
//! twice or free while a pod has it, CHECK passes; at the end nothing is left. A history that breaks a rule is
//! reduced before it is shown.
//!
//! An hour of other histories: `HISTORY_SECONDS=3600 cargo test -p faults --test history`; `HISTORY_CALLS=10000`: until so many calls were made. Further variables:
//! `HISTORY_SEED`, the first seed; `HISTORY_STEPS`, how long a history is; `HISTORY_ONLY=3,7`, these steps of it only;
//! `HISTORY_WITHOUT=Die,KilledAdd`, no such steps; `HISTORY_SHRINK_SECONDS`.

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
/// The line that reports the calls of a history.
const CALLS: &str = "CALLS ";

#[test]
fn no_history_harms_a_container_that_it_does_not_address() {
    let has_reference = testns::reference_or_skip(TEST).is_some();
    if let Some(seed) = number(INSIDE) {
        history(seed, has_reference);
        let (all, checks) = calls::count();
        return testns::note(&format!("{CALLS}{all} {checks}"));
    }
    let (start, seconds, least) = (Instant::now(), number("HISTORY_SECONDS"), number("HISTORY_CALLS"));
    let by_time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1000;
    let seeds: Box<dyn Iterator<Item = u64> + Send> = match (seconds.or(least), number("HISTORY_SEED")) {
        (Some(_), seed) => Box::new(seed.unwrap_or_else(by_time)..),
        (None, Some(seed)) => Box::new(std::iter::once(seed)),
        (None, None) => Box::new(SEEDS.iter().copied()),
    };
    let (seeds, done) = (Mutex::new(seeds), Mutex::new(Done::default()));
    let next = || {
        let done = done.lock().unwrap();
        let is_over = seconds.is_some_and(|seconds| start.elapsed() >= Duration::from_secs(seconds))
            || least.is_some_and(|least| done.calls >= least)
            || !done.failed.is_empty();
        if is_over { None } else { seeds.lock().unwrap().next() }
    };
    let work = || {
        while let Some(seed) = next() {
            let (is_right, said) = in_own_namespaces(seed);
            done.lock().unwrap().note(is_right, &said);
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let Done { histories, calls, checks, failed } = done.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let seconds = start.elapsed().as_secs();
    testns::note(&format!("HISTORIES {histories} of {calls} calls, {checks} of them CHECK, in {seconds} s"));
}

#[derive(Default)]
struct Done {
    histories: usize,
    calls: u64,
    checks: u64,
    failed: Vec<String>,
}

impl Done {
    fn note(&mut self, is_right: bool, said: &str) {
        let counts = said.lines().find_map(|line| line.split_once(CALLS)?.1.split_once(' '));
        match counts.filter(|_| is_right) {
            Some((all, checks)) => {
                self.histories += 1;
                self.calls += all.parse::<u64>().unwrap();
                self.checks += checks.parse::<u64>().unwrap();
            }
            None => self.failed.push(said.to_owned()),
        }
    }
}

/// Runs the history of a seed in PID namespaces of its own, as the first process: GC and doctor look for living containers in the
/// namespaces of all processes, so they must see those of no other history.
fn in_own_namespaces(seed: u64) -> (bool, String) {
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture", "--test-threads", "1"]).env(INSIDE, seed.to_string());
    let output = command.output().expect("start unshare");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// Runs a seed's history; panics with a smaller one if it breaks a rule.
fn history(seed: u64, has_reference: bool) {
    let length = usize::try_from(number_or("HISTORY_STEPS", STEPS)).unwrap();
    let whole = History::of_seed(seed, length, has_reference);
    let without = text("HISTORY_WITHOUT").unwrap_or_default();
    let is_left_out = |at: &usize| {
        without.split(',').any(|kind| !kind.is_empty() && format!("{:?}", whole.steps[*at]).starts_with(kind))
    };
    let mut kept: Vec<usize> = (0..length).filter(|at| !is_left_out(at)).collect();
    if let Some(text) = text("HISTORY_ONLY") {
        kept = text.split(',').map(|number| number.parse::<usize>().unwrap() - 1).collect();
    }
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
