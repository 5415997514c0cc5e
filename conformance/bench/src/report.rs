//! The measurements, as data: everything that is printed comes from it.

mod conditions;
mod counts;
mod json;
#[cfg(test)]
pub(crate) mod made_up;
mod table;

use serde::{Deserialize, Serialize};

use crate::call::Cost;
use crate::callers::Init;

pub(crate) use conditions::Conditions;
pub(crate) use json::{read, write};
pub(crate) use table::tables;

/// A run of the benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) made: Conditions,
    pub(crate) subjects: Vec<Described>,
    /// Calls one at a time.
    pub(crate) rows: Vec<Row>,
    /// Several at a time.
    pub(crate) bursts: Vec<Burst>,
    /// Calls one at a time while something grows.
    pub(crate) growth: Vec<Growth>,
    /// Notes for the reader: subjects that were left out, failures outside of calls.
    pub(crate) notes: Vec<String>,
}

/// A subject, as the tables have it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    /// All executables together.
    pub(crate) bytes: u64,
    /// Plugins in them.
    pub(crate) plugins: usize,
}

/// A verb of a subject in a scene.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scene: String,
    pub(crate) verb: String,
    pub(crate) subject: String,
    pub(crate) outcome: Outcome,
}

/// A row while so many calls are made at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Burst {
    pub(crate) scene: String,
    pub(crate) verb: String,
    pub(crate) subject: String,
    pub(crate) at_once: usize,
    /// The way PID 1 treats orphans. The runs before there was a choice had none that waited before a round's end.
    #[serde(default = "leaves")]
    pub(crate) init: Init,
    /// Calls that came to their end per second; 0 when one failed.
    pub(crate) per_second: f64,
    /// From the last answers until nothing of the processes was left, in ms, all rounds together.
    pub(crate) left_ms: f64,
    pub(crate) outcome: Outcome,
}

/// A row at one size of what grows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// `reservations`, `pods`, `rules`, `links`.
    pub(crate) dimension: String,
    pub(crate) size: usize,
    /// Links that were made, and removed, per second meanwhile; 0 if none were.
    pub(crate) churn: f64,
    pub(crate) scene: String,
    pub(crate) verb: String,
    pub(crate) subject: String,
    pub(crate) outcome: Outcome,
}

/// Figures, or why there are none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Measured(Box<Figures>),
    /// The error of the first call that failed: a failure is not timed.
    Failed(String),
}

/// The cost of calls.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Until a runtime knows the answer, in ms.
    pub(crate) wall_ms: Spread,
    /// Until nothing of its processes is left, in ms.
    pub(crate) gone_ms: Spread,
    /// User and system time of its processes, in ms.
    pub(crate) cpu_ms: Spread,
    /// Context switches of its processes.
    pub(crate) switches: Spread,
    /// TraceCounts of other calls, under trace.
    pub(crate) counts: Option<TraceCounts>,
    /// Each call's wall-clock time in ms, in the order of the calls.
    pub(crate) samples_ms: Vec<f64>,
}

/// Percentiles of some samples; nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles and extremes")]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// TraceCounts that do not depend on the clock; medians of some traced calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceCounts {
    /// System calls of all of its processes and threads.
    pub(crate) syscalls: u64,
    /// Netlink messages that ask for a change.
    pub(crate) messages: u64,
    /// Child processes that stayed the program they were.
    pub(crate) forks: u64,
    /// Child processes that became another program.
    pub(crate) execs: u64,
    /// Threads beside the first of each process.
    pub(crate) threads: u64,
    /// ComparisonState of its largest process, in KiB.
    pub(crate) peak_kib: u64,
}

fn leaves() -> Init {
    Init::Leaves
}

impl Report {
    /// Calls that failed, and what was said.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let rows = self.rows.iter().map(|row| (&row.scene, &row.verb, &row.subject, &row.outcome));
        let bursts = self.bursts.iter().map(|row| (&row.scene, &row.verb, &row.subject, &row.outcome));
        let growth = self.growth.iter().map(|row| (&row.dimension, &row.verb, &row.subject, &row.outcome));
        rows.chain(bursts).chain(growth).filter_map(|(scene, verb, subject, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{subject}, {scene} {verb}: {why}")),
            Outcome::Measured(_) => None,
        })
    }
}

impl Spread {
    /// Of at least one sample.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or(most)
        };
        Some(Self { p50: percentile(50), p90: percentile(90), p99: percentile(99), least, most })
    }
}

impl Figures {
    /// Of at least one call.
    pub(crate) fn of(costs: &[Cost], counts: Option<TraceCounts>) -> Option<Self> {
        let all = |read: fn(&Cost) -> f64| costs.iter().map(read).collect::<Vec<_>>();
        let samples_ms = all(|cost| ms(cost.wall));
        Some(Self {
            wall_ms: Spread::of(&samples_ms)?,
            gone_ms: Spread::of(&all(|cost| ms(cost.gone)))?,
            cpu_ms: Spread::of(&all(|cost| ms(cost.cpu)))?,
            switches: Spread::of(&all(|cost| cost.switches as f64))?,
            counts,
            samples_ms,
        })
    }
}

impl Outcome {
    pub(crate) fn figures(&self) -> Option<&Figures> {
        match self {
            Self::Measured(figures) => Some(figures),
            Self::Failed(_) => None,
        }
    }
}

/// Milliseconds, to the microsecond.
pub(crate) fn ms(time: std::time::Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<_> = (1..=200).rev().map(f64::from).collect();
        let spread = Spread::of(&samples).unwrap();
        assert_eq!(spread, Spread { p50: 100.0, p90: 180.0, p99: 198.0, least: 1.0, most: 200.0 });
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!(one, Spread { p50: 7.0, p90: 7.0, p99: 7.0, least: 7.0, most: 7.0 });
        assert_eq!(Spread::of(&[]), None);
    }
}
