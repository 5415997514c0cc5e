//! Which trials there are, and running them side by side.

use crate::form::{is_from, rank};
use crate::machine::Machine;
use crate::profile::Profile;
use crate::rule::{Rule, Versions};
use crate::rules;
use crate::subject::Subject;
use crate::trial::{Report, Trial, Verdict};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A trial that is to be run, or the reason why it is not.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What is tried.
    pub trial: Trial,
    /// Why it is not.
    pub skip: Option<String>,
}

/// One subject and how one of its executables is to be used.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Whose executable.
    pub subject: Subject,
    /// How it is used.
    pub profile: Profile,
    /// Versions that it speaks, oldest first; not empty.
    pub versions: Vec<String>,
}

/// What is wanted of a run.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rules, each with the names of the cases that are to be tried.
    pub rules: Vec<&'static Rule>,
    /// Names of cases; all of them if there are none.
    pub cases: Vec<String>,
    /// For random parts.
    pub seed: u64,
    /// How often each trial is run, the seed growing by one.
    pub repeat: u64,
    /// How many seconds a call may take.
    pub call_seconds: u64,
}

/// The trials of a candidate.
#[must_use]
pub fn trials(candidate: &Candidate, wanted: &Wanted, machine: &Machine) -> Vec<Planned> {
    let Candidate { subject, profile, versions } = candidate;
    let lacks = machine.lacks(&profile.needs).map(|feature| format!("the kernel has no {feature}"));
    let mut planned = Vec::new();
    for rule in wanted.rules.iter().filter(|rule| rule.roles.contains(&profile.role)) {
        let is_wanted = |name: &str| match wanted.cases.is_empty() {
            true => !rules::is_on_request(name),
            false => wanted.cases.iter().any(|case| case == name),
        };
        for case in rule.cases().iter().filter(|case| is_wanted(case.name)) {
            let (chosen, none) = match chosen(case.versions, versions) {
                chosen if chosen.is_empty() => (versions.last().into_iter().collect(), no_version(case.versions)),
                chosen => (chosen, None),
            };
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
                };
                planned.push(Planned { trial, skip: lacks.clone().or(none.clone()) });
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

fn no_version(which: Versions) -> Option<String> {
    match which {
        Versions::Each | Versions::Newest => None,
        Versions::From(oldest) => Some(format!("it speaks no version from {oldest} on")),
        Versions::Before(limit) => Some(format!("it speaks no version before {limit}")),
    }
}

/// What happens in a run.
#[derive(Debug)]
pub enum News<'a> {
    /// A trial of this name starts.
    Starts(&'a str),
    /// It ended.
    Ends(&'a str, &'a Verdict),
    /// A second passed without either.
    Nothing,
}

/// Runs trials, `side_by_side` at a time, and tells of each as it starts and ends.
///
/// The reports come back in the order of the trials.
pub fn run(
    planned: Vec<Planned>,
    machine: &Machine,
    side_by_side: usize,
    deadline: Duration,
    told: impl FnMut(News<'_>),
) -> Vec<Report> {
    let named = planned.into_iter().map(|planned| (planned.trial.to_string(), planned)).collect();
    let work =
        |Planned { trial, skip }: Planned| skip.map_or_else(|| trial.run(machine, deadline), |why| trial.skipped(why));
    all(named, side_by_side, work, |report| &report.verdict, told)
}

/// After which time it is told that nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Does all of some work that has names, so many at a time, and tells of each; what came of it, in the order of the work.
pub(crate) fn all<W: Send, R: Send>(
    named: Vec<(String, W)>,
    side_by_side: usize,
    work: impl Fn(W) -> R + Sync,
    verdict: fn(&R) -> &Verdict,
    mut told: impl FnMut(News<'_>),
) -> Vec<R> {
    let mut done: Vec<Option<R>> = named.iter().map(|_| None).collect();
    let queue: Mutex<VecDeque<(usize, (String, W))>> = Mutex::new(named.into_iter().enumerate().collect());
    let (news, events) = channel();
    thread::scope(|scope| {
        for _ in 0..side_by_side.max(1) {
            let (news, queue, work) = (news.clone(), &queue, &work);
            scope.spawn(move || {
                let next = || queue.lock().ok()?.pop_front();
                while let Some((index, (name, one))) = next() {
                    let started = news.send((name.clone(), None));
                    let ended = news.send((name, Some((index, work(one)))));
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
                Err(RecvTimeoutError::Timeout) => told(News::Nothing),
                Ok((name, None)) => told(News::Starts(&name)),
                Ok((name, Some((index, one)))) => {
                    told(News::Ends(&name, verdict(&one)));
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
    use super::{Versions, chosen};

    #[test]
    fn cases_choose_versions() {
        let spoken = ["0.1.0", "0.4.0", "1.0.0"].map(str::to_owned);
        let names = |which| chosen(which, &spoken).into_iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(names(Versions::Each), ["0.1.0", "0.4.0", "1.0.0"]);
        assert_eq!(names(Versions::Newest), ["1.0.0"]);
        assert_eq!(names(Versions::From("0.4.0")), ["1.0.0"]);
        assert!(names(Versions::From("1.1.0")).is_empty());
        assert_eq!(names(Versions::Before("0.4.0")), ["0.1.0"]);
        assert_eq!(names(Versions::Before("1.0.0")), ["0.4.0"]);
    }
}
