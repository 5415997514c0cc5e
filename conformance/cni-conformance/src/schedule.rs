//! The trials of a run, and running them side by side.

use crate::finding::Basis;
use crate::machine_features::MachineFeatures;
use crate::profile::Profile;
use crate::rule::{Rule, Versions, unbound};
use crate::spec_version::{is_from, rank};
use crate::stress;
use crate::subject::Subject;
use crate::trial::{HIDDEN, NOT_HERE, Report, Trial, Verdict};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A planned trial, or its verdict if it is not run.
#[derive(Debug, Clone)]
pub struct Planned<T = Trial> {
    pub trial: T,
    /// The verdict of the trial, if it is not run.
    pub instead: Option<Verdict>,
}

/// A subject and how one of its executables is to be used.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub subject: Subject,
    /// The profile with which the executable is used.
    pub profile: Profile,
    /// Versions that it speaks, oldest first; not empty.
    pub versions: Vec<String>,
}

/// The rules, cases and settings of a run.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rules, each with the names of the cases that are to be tried.
    pub rules: Vec<&'static Rule>,
    /// Names of cases; all of them if there are none.
    pub cases: Vec<String>,
    pub seed: u64,
    /// The number of runs of each trial, the seed growing by one.
    pub repeat: u64,
    /// The number of seconds that a call may take.
    pub call_seconds: u64,
    /// Whether a call is disturbed at every point, however many there are.
    pub every_point: bool,
}

pub fn trials(candidate: &Candidate, wanted: &Wanted, machine: &MachineFeatures) -> Vec<Planned> {
    let Candidate { subject, profile, versions } = candidate;
    let lacks = machine.lacks(&profile.needs).map(|feature| format!("{NOT_HERE}the kernel has no {feature}"));
    let mut planned = Vec::new();
    for rule in wanted.rules.iter().filter(|rule| rule.roles.contains(&profile.role)) {
        let spoken: Vec<String> = versions.iter().filter(|version| rule.is_of(version)).cloned().collect();
        let is_wanted = |name: &str| match wanted.cases.is_empty() {
            true => !stress::is_on_request(name),
            false => wanted.cases.iter().any(|case| case == name),
        };
        for case in rule.cases.iter().filter(|case| is_wanted(case.name)) {
            let (chosen, none) = match chosen(case.versions, &spoken) {
                chosen if chosen.is_empty() => (versions.last().into_iter().collect(), no_version(rule, case.versions)),
                chosen => (chosen, None),
            };
            let exempt = unbound(&profile.unbound, rule.id, case.name);
            let exempt = exempt.map(|why| Verdict::Exempt { why: why.to_owned() });
            for (version, repetition) in
                chosen.into_iter().flat_map(|version| (0..wanted.repeat).map(move |n| (version, n)))
            {
                let trial = Trial {
                    rule: rule.id.to_owned(),
                    case: case.name.to_owned(),
                    subject: subject.clone(),
                    profile: profile.clone(),
                    version: version.clone(),
                    seed: wanted.seed.wrapping_add(repetition),
                    call_seconds: wanted.call_seconds,
                    every_point: wanted.every_point,
                };
                let skip = lacks.clone().or(none.clone()).map(|why| Verdict::Skip { why });
                planned.push(Planned { trial, instead: skip.or(exempt.clone()) });
            }
        }
    }
    planned
}

/// The versions with which a case is tried, out of those that the subject speaks.
pub(crate) fn chosen(which: Versions, spoken: &[String]) -> Vec<&String> {
    let newest = |allowed: &dyn Fn(&str) -> bool| spoken.iter().rfind(|version| allowed(version)).into_iter().collect();
    match which {
        Versions::Each => spoken.iter().collect(),
        Versions::Newest => newest(&|_| true),
        Versions::From(oldest) => newest(&|version| is_from(version, oldest)),
        Versions::Before(limit) => newest(&|version| rank(version) < rank(limit)),
    }
}

fn no_version(rule: &Rule, which: Versions) -> Option<String> {
    match which {
        Versions::Each | Versions::Newest => Some(format!("its versions do not have what {} says", rule.section())),
        Versions::From(oldest) => Some(format!("it speaks no version from {oldest} on")),
        Versions::Before(limit) => Some(format!("it speaks no version before {limit}")),
    }
}

#[derive(Debug)]
pub enum News<'a> {
    Starts(&'a str),
    Ends(&'a str, &'a Verdict),
    /// A second passed without either.
    Nothing,
}

/// Runs trials, `side_by_side` at a time, and reports each as it starts and ends.
///
/// The reports come back in the order of the trials. A finding that is another rule's, as its
/// [basis](crate::finding::Finding::basis) is broken by the same profile with the same version, is left to that one:
/// where no ADD succeeds, nothing is known of most rules, and it is reported once that none does.
pub fn run(
    planned: Vec<Planned>,
    machine: &MachineFeatures,
    side_by_side: usize,
    deadline: Duration,
    on_news: impl FnMut(News<'_>),
) -> Vec<Report> {
    let mut reports = all(planned, side_by_side, |trial| trial.run(machine, deadline), on_news);
    leave_to_basis(&mut reports, |Trial { rule, subject, profile, version, .. }| {
        (rule, format!("{} {} {version}", subject.label, profile.name))
    });
    reports
}

/// Skips what broke a rule because another one is broken, which the finding names: `what` tells a trial's rule, and the subject with
/// its version.
pub(crate) fn leave_to_basis<T>(reports: &mut [Report<T>], what: impl Fn(&T) -> (&String, String)) {
    let key = |report: &Report<T>, rule: &str| (what(&report.trial).1, rule.to_owned());
    // Each broken rule, and again if it is by a call that should have succeeded.
    let mut broken = BTreeSet::new();
    for report in reports.iter() {
        let rule = what(&report.trial).0;
        if let Some(finding) = report.verdict.finding() {
            let by_call = finding.basis.as_ref().is_some_and(|basis| basis.call && basis.rule == *rule);
            broken.extend([(key(report, rule), false), (key(report, rule), by_call)]);
        }
    }
    let of_others = |report: &Report<T>| {
        let Basis { rule, call } = report.verdict.finding()?.basis.as_ref()?;
        let is_its = rule != what(&report.trial).0 && broken.contains(&(key(report, rule), *call));
        is_its.then(|| format!("{HIDDEN}{rule}"))
    };
    let reasons: Vec<_> = reports.iter().map(of_others).collect();
    for (report, why) in reports.iter_mut().zip(reasons) {
        if let Some(why) = why {
            report.verdict = Verdict::Skip { why };
        }
    }
}

/// The time after which it is reported that nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Runs trials of any kind, so many at a time, and reports each; what came of them, in their order.
pub(crate) fn all<T: Clone + Display + Send>(
    planned: Vec<Planned<T>>,
    side_by_side: usize,
    run: impl Fn(&T) -> Report<T> + Sync,
    mut on_news: impl FnMut(News<'_>),
) -> Vec<Report<T>> {
    let mut done: Vec<Option<Report<T>>> = planned.iter().map(|_| None).collect();
    let queue: Mutex<VecDeque<(usize, Planned<T>)>> = Mutex::new(planned.into_iter().enumerate().collect());
    let (news, events) = channel();
    thread::scope(|scope| {
        for _ in 0..side_by_side.max(1) {
            let (news, queue, run) = (news.clone(), &queue, &run);
            scope.spawn(move || {
                let next = || queue.lock().ok()?.pop_front();
                while let Some((index, Planned { trial, instead })) = next() {
                    let name = trial.to_string();
                    let started = news.send((name.clone(), None));
                    let report = match instead {
                        Some(verdict) => Report::new(&trial, verdict, Vec::new(), Duration::ZERO),
                        None => run(&trial),
                    };
                    let ended = news.send((name, Some((index, report))));
                    if started.is_err() || ended.is_err() {
                        return;
                    }
                }
            });
        }
        drop(news);
        loop {
            match events.recv_timeout(TICK) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => on_news(News::Nothing),
                Ok((name, None)) => on_news(News::Starts(&name)),
                Ok((name, Some((index, one)))) => {
                    on_news(News::Ends(&name, &one.verdict));
                    if let Some(place) = done.get_mut(index) {
                        *place = Some(one);
                    }
                }
            }
        }
    });
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::chosen;
    use crate::rules;

    #[test]
    fn each_basis_is_a_rule_for_each_kind_of_plugin() {
        for role in crate::Role::PLUGINS {
            for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
                let basis = rules::basis(verb, *role).unwrap();
                assert!(rules::all().any(|rule| rule.id == basis && rule.roles.contains(role)), "{verb} {basis}");
            }
        }
    }

    /// A case that says nothing, whatever a subject speaks, shows nothing.
    #[test]
    fn each_case_has_a_version_of_its_rules_editions() {
        let all = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
        let mut dead = Vec::new();
        for rule in rules::all() {
            let spoken: Vec<_> = all.iter().filter(|version| rule.is_of(version)).map(|v| (*v).to_owned()).collect();
            let cases = rule.cases.iter().filter(|case| chosen(case.versions, &spoken).is_empty());
            dead.extend(cases.map(|case| format!("{} {}", rule.id, case.name)));
        }
        assert_eq!(dead, Vec::<String>::new());
    }
}
