//! A whole run: what was asked, of whom, on what machine, and what came of it. Reports are written from it.

use crate::finding::Finding;
use crate::isolated_task::{IsolatedTask, Spoken};
use crate::machine_features::MachineFeatures;
use crate::profile::{Profile, Role};
use crate::rule::Rule;
use crate::schedule::{self, Candidate, News, Planned, Wanted};
use crate::spec_version;
use crate::subject::Subject;
use crate::trial::{Report, Trial, Verdict};
use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The rule that an executable breaks which does not say its versions.
const VERSION_RULE: &str = "version.lists-versions";

/// The start of the message of a machine on which no trial can be made.
pub(crate) const NOTHING_HERE: &str = "nothing can be tested here";

/// The longest time that looking at the machine, or asking for versions, may take.
const TASK_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Run {
    /// Rules that were asked for, in the order of the specification.
    pub rules: Vec<&'static Rule>,
    /// The subjects that are tested, in the order of the command line.
    pub subjects: Vec<Subject>,
    /// The outcome of each trial, in the order of subjects, profiles and rules.
    pub reports: Vec<Report>,
    pub machine: MachineFeatures,
    /// The notes that a reader has to know beside the reports, a sentence each.
    pub notes: Vec<String>,
    /// The command line, without the executable.
    pub command: Vec<String>,
    pub seed: u64,
    pub began: SystemTime,
    pub took: Duration,
}

/// The outcome of a run, for the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every applicable required rule passed.
    Passed,
    Failed,
    Broken,
}

pub fn look() -> Result<MachineFeatures, String> {
    let look = |own_processes| IsolatedTask::Look.run::<MachineFeatures>(own_processes, TASK_DEADLINE);
    look(true).or_else(|_no_proc| look(false)).map_err(|error| {
        format!(
            "{NOTHING_HERE}: {error}\nEach test runs in namespaces of its own, for which this machine has \
             to allow user namespaces: see user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns (sysctl), and a container's seccomp profile"
        )
    })
}

/// Asks what versions each candidate speaks. Of those that do not say, the failures.
pub fn ask_versions(
    pairs: Vec<(Subject, Profile)>,
    wanted: &Wanted,
    machine: &MachineFeatures,
    side_by_side: usize,
) -> io::Result<(Vec<Candidate>, Vec<Report>)> {
    let mut questions: BTreeMap<(String, String), (Subject, String)> = BTreeMap::new();
    for (subject, profile) in &pairs {
        for executable in executables(profile) {
            questions.insert((subject.label.clone(), executable.clone()), (subject.clone(), executable));
        }
    }
    let mut answers: BTreeMap<(String, String), Spoken> = BTreeMap::new();
    let questions: Vec<_> = questions.into_iter().collect();
    for some in questions.chunks(side_by_side.max(1)) {
        let asked: Vec<io::Result<Spoken>> = thread::scope(|scope| {
            let ask = |(subject, executable): &(Subject, String)| {
                let task = IsolatedTask::Versions { subject: subject.clone(), executable: executable.clone() };
                scope.spawn(move || task.run(machine.own_processes, TASK_DEADLINE))
            };
            let threads: Vec<_> = some.iter().map(|(_, question)| ask(question)).collect();
            let lost = || Err(io::Error::other("a thread of the kit panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_panic| lost())).collect()
        });
        for ((key, _), answer) in some.iter().zip(asked) {
            answers.insert(key.clone(), answer?);
        }
    }
    let (mut candidates, mut failures) = (Vec::new(), Vec::new());
    for (subject, profile) in pairs {
        let spoken: Vec<&Spoken> = executables(&profile)
            .into_iter()
            .filter_map(|executable| answers.get(&(subject.label.clone(), executable)))
            .collect();
        let speaks = |version: &&str| spoken.iter().all(|spoken| spoken.versions.iter().any(|other| other == version));
        let versions = spec_version::VERSIONS.iter().copied().filter(speaks);
        let versions: Vec<_> = versions.filter(|version| profile.allows(version)).map(str::to_owned).collect();
        match spoken.iter().find(|spoken| spoken.versions.is_empty()) {
            Some(silent) => failures.push(silence(&subject, &profile, silent, wanted)),
            None => candidates.push(Candidate { subject, profile, versions }),
        }
    }
    Ok((candidates, failures))
}

fn executables(profile: &Profile) -> Vec<String> {
    let count = if profile.role == Role::List { profile.plugins.len() } else { 1 };
    (0..count).map(|index| profile.executable(index).to_owned()).collect()
}

/// The report of an executable that does not say its versions.
fn silence(subject: &Subject, profile: &Profile, spoken: &Spoken, wanted: &Wanted) -> Report {
    let trial = Trial {
        rule: VERSION_RULE.to_owned(),
        case: String::new(),
        subject: subject.clone(),
        profile: profile.clone(),
        version: spec_version::VERSIONS.last().copied().unwrap_or_default().to_owned(),
        seed: wanted.seed,
        call_seconds: wanted.call_seconds,
        every_point: wanted.every_point,
    };
    let call = &spoken.call;
    let ended = call.exit.map_or("it did not end".to_owned(), |exit| format!("it ended with {exit}"));
    let seen = format!("{ended} and printed {:?}, stderr {:?}; nothing else of it was tried", call.stdout, call.stderr);
    let finding = Finding::new("an answer to VERSION with a version that there is", seen);
    Report::new(&trial, Verdict::Fail(finding), vec![call.clone()], Duration::from_millis(call.milliseconds))
}

/// Returns whether a plugin forwards the calls that a rule is about: a delegate that is not asked is not at fault.
fn asks_its_delegate(trial: &Trial, machine: &MachineFeatures, deadline: Duration) -> bool {
    let forwards = match trial.rule.split('.').next() {
        Some("gc") => "gc.forwards",
        Some("status") => "status.forwards",
        _ => "delegation.forwards",
    };
    let rule = crate::rules::all().find(|rule| rule.id == forwards);
    rule.into_iter().flat_map(|rule| rule.cases).all(|case| {
        let trial = Trial { rule: forwards.to_owned(), case: case.name.to_owned(), ..trial.clone() };
        trial.run(machine, deadline).verdict.finding().is_none()
    })
}

impl Run {
    /// Says of each finding that is not known whether it is the plugin's IPAM plugin's: with the kit's own in that one's place the rule is
    /// kept. That one has perhaps no GC at all.
    pub(crate) fn name_delegates(
        &mut self,
        is_known: impl Fn(&Trial) -> bool,
        side_by_side: usize,
        deadline: Duration,
    ) {
        let machine = &self.machine;
        let other = |report: &Report| {
            let finding = report.verdict.finding().filter(|_| !is_known(&report.trial));
            finding.and_then(|_| report.trial.profile.clone().with_kit_ipam())
        };
        let reports = self.reports.iter_mut();
        let found: Vec<_> = reports.filter_map(|report| other(report).map(|other| (report, other))).collect();
        let planned = |(report, (profile, _)): &(&mut Report, (Profile, String))| Planned {
            trial: Trial { profile: profile.clone(), ..report.trial.clone() },
            instead: None,
        };
        let planned = found.iter().map(planned).collect();
        let again = schedule::all(planned, side_by_side, |trial: &Trial| trial.run(machine, deadline), |_| ());
        for ((report, (_, name)), again) in found.into_iter().zip(again) {
            if again.verdict != Verdict::Pass || !asks_its_delegate(&report.trial, machine, deadline) {
                continue;
            }
            let Verdict::Fail(finding) = &mut report.verdict else { continue };
            let task = IsolatedTask::Versions { subject: report.trial.subject.clone(), executable: name.clone() };
            let spoken = task.run::<Spoken>(machine.own_processes, TASK_DEADLINE).map(|spoken| spoken.versions);
            let has_no_gc = report.trial.rule.starts_with("gc.")
                && spoken.is_ok_and(|versions| versions.iter().all(|version| version != "1.1.0"));
            let lacking = if has_no_gc { ", which has no GC" } else { "" };
            finding.seen +=
                &format!(" (of its delegate {name}{lacking}: with the kit's own in its place the rule is kept)");
        }
    }
}

#[derive(Debug)]
pub struct Order {
    pub pairs: Vec<(Subject, Profile)>,
    /// The rules, cases and settings to test them with.
    pub wanted: Wanted,
    pub side_by_side: usize,
    /// The longest time that a trial may take.
    pub deadline: Duration,
    /// The command line, for reports.
    pub command: Vec<String>,
    /// The notes that a reader has to know.
    pub notes: Vec<String>,
}

/// Runs all trials. `on_news` hears how many there are, then what happens.
pub fn run(order: Order, mut on_news: impl FnMut(usize, News<'_>)) -> Result<Run, String> {
    let (start, began) = (Instant::now(), SystemTime::now());
    let Order { pairs, wanted, side_by_side, deadline, command, mut notes } = order;
    let machine = look()?;
    if !machine.own_processes {
        notes.push(
            "this machine hides parts of its /proc, so that trials share its process namespace: processes that a \
             plugin leaves behind are not noticed, and may outlive the run"
                .to_owned(),
        );
    }
    let mut subjects: Vec<Subject> = Vec::new();
    for (subject, _) in &pairs {
        if !subjects.contains(subject) {
            subjects.push(subject.clone());
        }
    }
    let (candidates, mut reports) = ask_versions(pairs, &wanted, &machine, side_by_side)
        .map_err(|error| format!("cannot ask for versions: {error}"))?;
    let planned: Vec<Planned> =
        candidates.iter().flat_map(|candidate| schedule::trials(candidate, &wanted, &machine)).collect();
    let count = planned.len();
    let is_mute = |candidate: &&Candidate| candidate.versions.is_empty();
    notes.extend(candidates.iter().filter(is_mute).map(|Candidate { subject, profile, .. }| {
        format!("{} of {} speaks no version with which it could be tested", profile.name, subject.label)
    }));
    reports.extend(schedule::run(planned, &machine, side_by_side, deadline, |news| on_news(count, news)));
    let Wanted { rules, seed, .. } = wanted;
    Ok(Run { rules, subjects, reports, machine, notes, command, seed, began, took: start.elapsed() })
}
