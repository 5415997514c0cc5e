//! A report for tests, in which everything is known.

use std::time::Duration;

use super::{Burst, Conditions, Described, Figures, Growth, Outcome, Report, Row, TraceCounts};
use crate::call::Cost;
use crate::callers::Init;

/// So many milliseconds for each call.
pub(crate) fn figures(wall_ms: u64) -> Outcome {
    let cost = |ms| Cost {
        wall: Duration::from_millis(ms),
        gone: Duration::from_millis(ms + 20),
        cpu: Duration::from_millis(1),
        switches: 3,
    };
    let counts = TraceCounts { syscalls: 100, messages: 6, forks: 0, execs: 0, threads: 1, peak_kib: 2048 };
    Outcome::Measured(Box::new(Figures::of(&[cost(wall_ms), cost(wall_ms), cost(wall_ms * 3)], Some(counts)).unwrap()))
}

/// ADD and DEL of ours, which takes 3 ms, the floor (2 ms) and the floor that waits (20 ms), and a reference that fails.
pub(crate) fn report() -> Report {
    let row = |verb: &str, subject: &str, outcome| Row {
        scene: "bridge".into(),
        verb: verb.into(),
        subject: subject.into(),
        outcome,
    };
    let growth = |size, verb: &str, outcome| Growth {
        dimension: "pods".into(),
        size,
        churn: 0.0,
        scene: "bridge".into(),
        verb: verb.into(),
        subject: "ours".into(),
        outcome,
    };
    let burst = |at_once, subject: &str, per_second, outcome| Burst {
        scene: "bridge".into(),
        verb: "ADD".into(),
        subject: subject.into(),
        at_once,
        init: Init::Reaps,
        per_second,
        left_ms: 0.0,
        outcome,
    };
    let failed = || Outcome::Failed("it said <no> & \"never\"".into());
    let described = |name: &str, bytes| Described { name: name.into(), bytes, plugins: 4 };
    Report {
        made: Conditions {
            date: "2026-11-21".into(),
            kernel: "6.1".into(),
            processor: "one <fast> & cheap".into(),
            processors: 2,
            load: 0.0,
            cpuid_ns: Some(70),
            command: vec!["--pods".into(), "3".into()],
        },
        subjects: vec![described("ours", 3_000_000), described("reference", 40_000_000)],
        rows: vec![
            row("ADD", "floor", figures(2)),
            row("ADD", "ours", figures(3)),
            row("ADD", "reference", failed()),
            row("DEL", "floor, waits", figures(20)),
            row("DEL", "ours", figures(5)),
        ],
        bursts: vec![
            burst(8, "ours", 500.0, figures(4)),
            burst(8, "reference", 90.0, figures(4)),
            burst(8, "before", 400.0, figures(4)),
            burst(1, "before", 0.0, failed()),
            burst(1, "ours", 200.0, figures(4)),
        ],
        growth: vec![
            growth(0, "ADD", figures(3)),
            growth(1_000, "ADD", figures(6)),
            growth(0, "DEL", figures(3)),
            growth(1_000, "DEL", figures(3)),
        ],
        notes: vec!["A note.".into()],
    }
}
