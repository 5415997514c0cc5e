//! Which trials there are, and running them side by side.

use crate::profile::{Profile, Role};
use crate::rule::{Rule, Versions};
use crate::rules;
use crate::subject::Subject;
use crate::trial::{Report, Trial};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// How long one trial may take. The longest tries hundreds of cut-off calls, each on a node of its own.
pub const TRIAL_DEADLINE: Duration = Duration::from_secs(300);

/// The trials of a profile with a subject that speaks `versions`, oldest first.
#[must_use]
pub fn trials(subject: &Subject, profile: &Profile, versions: &[String], seed: u64) -> Vec<Trial> {
    let applies = |rule: &&Rule| rule.roles.contains(&profile.role);
    let mut trials = Vec::new();
    for rule in rules::all().filter(applies) {
        for case in rule.cases() {
            for version in chosen(case.versions, versions) {
                trials.push(Trial {
                    rule: rule.id.to_owned(),
                    case: case.name.to_owned(),
                    subject: subject.clone(),
                    profile: profile.clone(),
                    version: version.clone(),
                    seed,
                });
            }
        }
    }
    trials
}

/// The versions with which a case is tried, out of those that the subject speaks.
fn chosen(which: Versions, spoken: &[String]) -> Vec<&String> {
    let newest = |allowed: &dyn Fn(&str) -> bool| spoken.iter().rfind(|version| allowed(version)).into_iter().collect();
    match which {
        Versions::Each => spoken.iter().collect(),
        Versions::Newest => newest(&|_| true),
        Versions::From(oldest) => newest(&|version| version >= oldest),
        Versions::Before(limit) => newest(&|version| version < limit),
    }
}

/// Runs trials, `side_by_side` at a time, and tells of each as it ends.
///
/// The reports come back in the order of the trials.
pub fn run(trials: Vec<Trial>, side_by_side: usize, mut told: impl FnMut(&Report)) -> Vec<Report> {
    let mut reports: Vec<Option<Report>> = trials.iter().map(|_| None).collect();
    let queue: Mutex<VecDeque<(usize, Trial)>> = Mutex::new(trials.into_iter().enumerate().collect());
    let (done, ended) = channel();
    thread::scope(|scope| {
        for _ in 0..side_by_side.max(1) {
            let (done, queue) = (done.clone(), &queue);
            scope.spawn(move || {
                let next = || queue.lock().ok()?.pop_front();
                while let Some((index, trial)) = next() {
                    if done.send((index, trial.run(TRIAL_DEADLINE))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        for (index, report) in ended {
            told(&report);
            if let Some(place) = reports.get_mut(index) {
                *place = Some(report);
            }
        }
    });
    reports.into_iter().flatten().collect()
}

/// Whether a role is one executable.
#[must_use]
pub fn is_plugin(role: Role) -> bool {
    Role::PLUGINS.contains(&role)
}
