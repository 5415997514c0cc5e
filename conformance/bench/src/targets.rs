//! The targets, and how near the measurements came. Nothing fails by them: time never decides a test.

use std::collections::BTreeSet;

use crate::callers::Init;
use crate::report::{Burst, Figures, Report, TraceCounts};

/// The subject that the targets are about: what `cargo bench` has built.
pub(crate) const OURS: &str = "ours";
const FLOOR: &str = "floor";

/// A line of the table of targets.
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) bound: Bound,
    /// Of a subject.
    measure: Measure,
    /// Whether the floor's value shows the kernel's share of it.
    is_of_floor: bool,
}

/// The value that is allowed, and its unit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64, &'static str),
    AtLeast(f64, &'static str),
}

/// The targets, all ratios within one run.
pub(crate) const TARGETS: &[Target] = &[
    at_most("bridge + host-local ADD, p50, against the floor", 1.35, "x", |report, who| {
        ratio(p50(report, "bridge", "ADD", who), p50(report, "bridge", "ADD", FLOOR))
    }),
    at_most("CPU time of a bridge ADD, p50, against the floor", 1.35, "x", |report, who| {
        ratio(cpu(report, "bridge", "ADD", who), cpu(report, "bridge", "ADD", FLOOR))
    }),
    at_most("bridge DEL, p50, against the floor, neither waits", 1.25, "x", |report, who| {
        ratio(p50(report, "bridge", "DEL", who), p50(report, "bridge", "DEL", FLOOR))
    }),
    at_most("bridge DEL, p50, against the floor that waits", 0.2, "x", |report, who| {
        ratio(p50(report, "bridge", "DEL", who), p50(report, "bridge", "DEL", "floor, waits"))
    }),
    with_floor(at_most("ipMasq: what ADD costs more, p50", 0.6, " ms", |report, who| {
        more_with_masquerade(report, who, "ADD")
    })),
    with_floor(at_most("ipMasq: what DEL costs more, p50", 0.6, " ms", |report, who| {
        more_with_masquerade(report, who, "DEL")
    })),
    at_most("ipMasq: child processes of ADD", 0.0, "", |report, who| children(report, who, "ADD")),
    at_most("ipMasq: programs that DEL starts", 0.0, "", |report, who| {
        Some(counts(report, who, "bridge-masq", "DEL")?.execs as f64)
    }),
    with_floor(at_most("loopback ADD, p50, against an empty program", 2.5, "x", |report, who| {
        ratio(p50(report, "loopback", "ADD", who), p50(report, "loopback", "ADD", "empty"))
    })),
    at_most("VERSION, p50, against an empty program", 2.0, "x", |report, who| {
        ratio(p50(report, "version", "VERSION", who), p50(report, "version", "VERSION", "empty"))
    }),
    with_floor(at_most("CPU time of a bridge ADD, p50", 2.0, " ms", |report, who| cpu(report, "bridge", "ADD", who))),
    at_most("ptp + host-local ADD, p50, against the floor", 1.5, "x", |report, who| {
        ratio(p50(report, "ptp", "ADD", who), p50(report, "ptp", "ADD", FLOOR))
    }),
    at_most("ptp DEL, p50, against the floor that waits", 0.2, "x", |report, who| {
        ratio(p50(report, "ptp", "DEL", who), p50(report, "ptp", "DEL", "floor, waits"))
    }),
    with_floor(at_most("CPU time of a ptp ADD, p50", 2.0, " ms", |report, who| cpu(report, "ptp", "ADD", who))),
    at_most("macvlan + host-local ADD, p50, against the floor", 1.5, "x", |report, who| {
        ratio(p50(report, "macvlan", "ADD", who), p50(report, "macvlan", "ADD", FLOOR))
    }),
    at_most("macvlan DEL, p50, against the floor that waits", 0.2, "x", |report, who| {
        ratio(p50(report, "macvlan", "DEL", who), p50(report, "macvlan", "DEL", "floor, waits"))
    }),
    with_floor(at_most("CPU time of a macvlan ADD, p50", 2.0, " ms", |report, who| cpu(report, "macvlan", "ADD", who))),
    Target {
        what: "8 at a time: ADDs per second against the floor",
        bound: Bound::AtLeast(0.75, "x"),
        measure: |report, who| ratio(per_second(report, "ADD", who), per_second(report, "ADD", FLOOR)),
        is_of_floor: false,
    },
    Target {
        what: "8 at a time: ADDs per second against the reference",
        bound: Bound::AtLeast(5.0, "x"),
        measure: |report, who| ratio(per_second(report, "ADD", who), per_second(report, "ADD", "reference")),
        is_of_floor: true,
    },
    Target {
        what: "8 at a time: DELs per second against the floor, neither waits",
        bound: Bound::AtLeast(0.8, "x"),
        measure: |report, who| ratio(per_second(report, "DEL", who), per_second(report, "DEL", FLOOR)),
        is_of_floor: false,
    },
    at_most("bridge DELs in a row, p50, against the floor that waits", 0.2, "x", |report, who| {
        ratio(in_a_row(report, "bridge", who), in_a_row(report, "bridge", "floor, waits"))
    }),
    at_most("full-chain DELs in a row, p50, against the reference", 0.1, "x", |report, who| {
        ratio(in_a_row(report, "full-chain", who), in_a_row(report, "full-chain", "reference"))
    }),
    at_most("growth of reservations, largest against smallest, p50", 1.15, "x", |report, who| {
        growth(report, who, "reservations")
    }),
    with_floor(at_most("growth of pods on one bridge, p50", 1.15, "x", |report, who| growth(report, who, "pods"))),
    with_floor(at_most("growth of nftables rules of others, p50", 1.15, "x", |report, who| {
        growth(report, who, "rules")
    })),
    with_floor(at_most("growth of masqueraded attachments, p50", 1.5, "x", |report, who| {
        growth(report, who, "attachments")
    })),
    at_most("growth of others' host ports, p50", 1.3, "x", |report, who| growth(report, who, "mappings")),
    with_floor(at_most("growth of links on the host, p50", 1.15, "x", |report, who| growth(report, who, "links"))),
    with_floor(at_most("links that come and go beside it, p99 against none", 2.0, "x", churn)),
    with_floor(at_most("peak memory of one call, any of them", 2.5, " MB", |report, who| {
        let plugins = report.rows.iter().filter(|row| row.subject == who && !row.scene.contains("chain"));
        let peaks = plugins.filter_map(|row| Some(row.outcome.figures()?.counts?.peak_kib));
        peaks.max().map(|kib| kib as f64 * 1024.0 / 1e6)
    })),
    at_most("cnitool ADD of bridge and four noops against five bare execs, p50", 1.3, "x", |report, who| {
        ratio(p50(report, "chain", "ADD", who), p50(report, "chain", "ADD", "five execs"))
    }),
    at_most(
        "chain of bridge, portmap, firewall, tuning, bandwidth: ADD, p50, against the reference",
        0.12,
        "x",
        |report, who| full_chain(report, who, "ADD"),
    ),
    at_most("the same, ADD, p50", 10.0, " ms", |report, who| p50(report, "full-chain", "ADD", who)),
    at_most("the same, ADD with a mapped port, p50", 10.0, " ms", |report, who| {
        p50(report, "full-chain-ports", "ADD", who)
    }),
    at_most("the same, CHECK, p50, against the reference", 0.13, "x", |report, who| full_chain(report, who, "CHECK")),
    at_most("the same, CHECK, p50", 6.0, " ms", |report, who| p50(report, "full-chain", "CHECK", who)),
    at_most("the same, DEL, p50, against the reference", 0.06, "x", |report, who| full_chain(report, who, "DEL")),
    at_most("the same, DEL, p50", 14.0, " ms", |report, who| p50(report, "full-chain", "DEL", who)),
];

type Measure = fn(&Report, &str) -> Option<f64>;

const fn at_most(what: &'static str, most: f64, unit: &'static str, measure: Measure) -> Target {
    Target { what, bound: Bound::AtMost(most, unit), measure, is_of_floor: false }
}

const fn with_floor(target: Target) -> Target {
    Target { is_of_floor: true, ..target }
}

impl Target {
    /// Returns the measured value, if all that it takes was measured.
    pub(crate) fn measured(&self, report: &Report) -> Option<f64> {
        (self.measure)(report, OURS)
    }

    /// The floor's, where that is the kernel's share.
    pub(crate) fn of_floor(&self, report: &Report) -> Option<f64> {
        self.is_of_floor.then(|| (self.measure)(report, FLOOR)).flatten()
    }

    /// Returns whether the measured value meets the target.
    pub(crate) fn is_met(&self, measured: f64) -> bool {
        match self.bound {
            Bound::AtMost(most, _) => measured <= most,
            Bound::AtLeast(least, _) => measured >= least,
        }
    }
}

fn figures<'a>(report: &'a Report, scene: &str, verb: &str, subject: &str) -> Option<&'a Figures> {
    let is_it = |found: (&str, &str, &str)| found == (scene, verb, subject);
    report.rows.iter().find(|row| is_it((&row.scene, &row.verb, &row.subject)))?.outcome.figures()
}

fn p50(report: &Report, scene: &str, verb: &str, subject: &str) -> Option<f64> {
    figures(report, scene, verb, subject).map(|figures| figures.wall_ms.p50)
}

fn cpu(report: &Report, scene: &str, verb: &str, subject: &str) -> Option<f64> {
    figures(report, scene, verb, subject).map(|figures| figures.cpu_ms.p50)
}

fn counts(report: &Report, who: &str, scene: &str, verb: &str) -> Option<TraceCounts> {
    figures(report, scene, verb, who)?.counts
}

fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    value.zip(base).filter(|(_, base)| *base > 0.0).map(|(value, base)| value / base)
}

fn full_chain(report: &Report, who: &str, verb: &str) -> Option<f64> {
    ratio(p50(report, "full-chain", verb, who), p50(report, "full-chain", verb, "reference"))
}

fn more_with_masquerade(report: &Report, who: &str, verb: &str) -> Option<f64> {
    Some(p50(report, "bridge-masq", verb, who)? - p50(report, "bridge", verb, who)?)
}

fn children(report: &Report, who: &str, verb: &str) -> Option<f64> {
    let counts = counts(report, who, "bridge-masq", verb)?;
    Some((counts.forks + counts.execs) as f64)
}

/// Bridge, 8 at a time.
fn per_second(report: &Report, verb: &str, subject: &str) -> Option<f64> {
    let burst = burst(report, "bridge", verb, subject, 8)?;
    burst.outcome.figures().map(|_| burst.per_second)
}

/// The p50 of DEL, one after the other.
fn in_a_row(report: &Report, scene: &str, subject: &str) -> Option<f64> {
    burst(report, scene, "DEL", subject, 1)?.outcome.figures().map(|figures| figures.wall_ms.p50)
}

/// With a PID 1 that waits for orphans, as on a node.
fn burst<'a>(report: &'a Report, scene: &str, verb: &str, subject: &str, at_once: usize) -> Option<&'a Burst> {
    let is_it = |burst: &&Burst| {
        (burst.scene.as_str(), burst.verb.as_str(), burst.subject.as_str()) == (scene, verb, subject)
            && (burst.at_once, burst.init) == (at_once, Init::Reaps)
    };
    report.bursts.iter().find(is_it)
}

/// The worst verb's growth from the smallest to the largest size.
fn growth(report: &Report, who: &str, dimension: &str) -> Option<f64> {
    worst(report, who, |verb| {
        let points = points(report, who, dimension, verb)?;
        ratio(
            points.last().map(|(_, figures)| figures.wall_ms.p50),
            points.first().map(|(_, figures)| figures.wall_ms.p50),
        )
    })
}

/// The worst verb's p99 at the most links beside which others come and go, against its p99 on a quiet host without any.
fn churn(report: &Report, who: &str) -> Option<f64> {
    worst(report, who, |verb| {
        let (quiet, busy) = (points(report, who, "links", verb)?, points(report, who, "links, churn", verb)?);
        ratio(
            busy.last().map(|(_, figures)| figures.wall_ms.p99),
            quiet.first().map(|(_, figures)| figures.wall_ms.p99),
        )
    })
}

/// `None` if any verb has none: a part of the verbs does not meet a target.
fn worst(report: &Report, who: &str, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let own = report.growth.iter().filter(|point| point.subject == who);
    let verbs: BTreeSet<_> = own.map(|point| point.verb.as_str()).collect();
    let all: Option<Vec<f64>> = verbs.into_iter().map(of).collect();
    all?.into_iter().reduce(f64::max)
}

/// Of a subject, by size; `None` if one failed or there are none.
fn points<'a>(report: &'a Report, who: &str, dimension: &str, verb: &str) -> Option<Vec<(usize, &'a Figures)>> {
    let is_it = |found: (&str, &str, &str)| found == (dimension, verb, who);
    let points = report.growth.iter().filter(|point| is_it((&point.dimension, &point.verb, &point.subject)));
    let mut points: Vec<_> = points.map(|point| Some((point.size, point.outcome.figures()?))).collect::<Option<_>>()?;
    points.sort_by_key(|(size, _)| *size);
    Some(points).filter(|points| !points.is_empty())
}

#[cfg(test)]
mod tests {
    use super::TARGETS;
    use crate::report::{Outcome, made_up};

    #[test]
    fn targets_are_measured_within_one_report() {
        let report = made_up::report();
        let measured: Vec<_> = TARGETS
            .iter()
            .filter_map(|target| {
                let measured = target.measured(&report)?;
                Some(format!("{}: {measured:.2}, {}", target.what, target.is_met(measured)))
            })
            .collect();
        assert_eq!(
            measured,
            [
                "bridge + host-local ADD, p50, against the floor: 1.50, false",
                "CPU time of a bridge ADD, p50, against the floor: 1.00, true",
                "bridge DEL, p50, against the floor that waits: 0.25, false",
                "CPU time of a bridge ADD, p50: 1.00, true",
                "8 at a time: ADDs per second against the reference: 5.56, true",
                "growth of pods on one bridge, p50: 2.00, false",
                "peak memory of one call, any of them: 2.10, true",
            ]
        );
    }

    #[test]
    fn what_failed_meets_nothing() {
        let mut report = made_up::report();
        report.rows.iter_mut().for_each(|row| row.outcome = Outcome::Failed(String::new()));
        report.bursts.iter_mut().for_each(|burst| burst.outcome = Outcome::Failed(String::new()));
        report.growth.truncate(1);
        report.growth.iter_mut().for_each(|point| point.outcome = Outcome::Failed(String::new()));
        let measured: Vec<_> = TARGETS.iter().filter(|target| target.measured(&report).is_some()).collect();
        assert_eq!(measured.iter().map(|target| target.what).collect::<Vec<_>>(), [""; 0]);
    }
}
