//! A case with one profile of one subject: a child process in namespaces of its own.

use crate::finding::{CallRecord, Finding, Stop};
use crate::isolated_task::IsolatedTask;
use crate::machine_features::MachineFeatures;
use crate::namespaces::{self, Shown};
use crate::profile::Profile;
use crate::rule::Case;
use crate::rules;
use crate::subject::Subject;
use crate::testbed::Testbed;
use crate::write_protection;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use testns::Node;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    pub subject: Subject,
    /// The profile with which the executables are used.
    pub profile: Profile,
    pub version: String,
    pub seed: u64,
    /// The number of seconds that a call may take before that is a finding.
    pub call_seconds: u64,
    /// Whether a call is disturbed at every point, however many there are.
    #[serde(default)]
    pub every_point: bool,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum Verdict {
    /// The subject keeps to the rule, as far as the case shows.
    Pass,
    Fail(Finding),
    /// The case says nothing of it.
    Skip {
        /// The reason.
        why: String,
    },
    /// The rule does not bind the subject, as its user has said: it was not tried.
    Exempt {
        /// The reason, in the user's words.
        why: String,
    },
    /// The case could not be tried; no fault of the subject.
    Broken {
        /// The reason.
        why: String,
    },
}

/// The start of the reason for which a case was skipped on this machine, and might be tried on another.
pub(crate) const NOT_HERE: &str = "not tried here: ";

/// The beginning of the reason why a trial whose prerequisite fails is not run; the broken rule's name follows.
pub(crate) const HIDDEN: &str = "what it needs first fails, which breaks ";

impl Verdict {
    /// The outcome of a case on a testbed: a panic is no fault of the subject.
    pub(crate) fn of<B>(case: &Case<B>, testbed: &B) -> Self {
        match catch_unwind(AssertUnwindSafe(|| (case.run)(testbed))) {
            Ok(Ok(())) => Self::Pass,
            Ok(Err(Stop::Fails(finding))) => Self::Fail(finding),
            Ok(Err(Stop::Skips(why))) => Self::Skip { why },
            Err(panic) => Self::Broken { why: panic_text(&*panic) },
        }
    }

    /// Whether a reader may want to try it again.
    pub(crate) fn is_worth_another(&self) -> bool {
        matches!(self, Self::Fail(_) | Self::Broken { .. })
    }

    /// Whether another machine might have tried it.
    pub fn is_untried(&self) -> bool {
        match self {
            Self::Skip { why } => why.starts_with(NOT_HERE),
            Self::Broken { .. } => true,
            Self::Pass | Self::Fail(_) | Self::Exempt { .. } => false,
        }
    }

    /// Returns the finding, if the rule is broken.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Fail(finding) => Some(finding),
            Self::Pass | Self::Skip { .. } | Self::Exempt { .. } | Self::Broken { .. } => None,
        }
    }
}

/// The outcome of a trial, and the calls that were made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report<T = Trial> {
    pub trial: T,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The calls, in order, unless it passed.
    pub calls: Vec<CallRecord>,
    pub milliseconds: u64,
}

impl<T: Clone> Report<T> {
    pub(crate) fn new(trial: &T, verdict: Verdict, calls: Vec<CallRecord>, took: Duration) -> Self {
        let calls = if verdict == Verdict::Pass { Vec::new() } else { calls };
        Self { trial: trial.clone(), verdict, calls, milliseconds: took.as_millis().try_into().unwrap_or(u64::MAX) }
    }

    /// The report of a trial that could not be tried.
    pub(crate) fn broken(trial: &T, why: String, start: Instant) -> Self {
        Self::new(trial, Verdict::Broken { why }, Vec::new(), start.elapsed())
    }
}

/// Few words, for a person who watches.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(&self.profile.name, &self.version, &self.rule, &self.case))
    }
}

impl Trial {
    /// Runs it in a child and waits.
    pub fn run(&self, machine: &MachineFeatures, deadline: Duration) -> Report {
        let (trial, cases) = (Box::new(self.clone()), rules::own_texts());
        IsolatedTask::Try { trial, machine: machine.clone(), cases }.report(self, machine, deadline)
    }

    /// Tries the case here: the process must be in namespaces of its own.
    pub(crate) fn here(&self, machine: MachineFeatures) -> io::Result<Report> {
        let start = Instant::now();
        let Some(case) = rules::find(&self.rule, &self.case) else {
            return Ok(Report::broken(
                self,
                format!("there is no case {:?} of rule {:?}", self.case, self.rule),
                start,
            ));
        };
        let mut shown = Shown::default();
        let subject = self.subject.seen_through(&mut shown)?;
        let kit = shown.see(&std::env::current_exe()?)?;
        write_protection::protect()?;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let node = Node::with_folders(subject.dirs());
            let closed = write_protection::close_above(&namespaces::HIDDEN);
            closed.unwrap_or_else(|error| panic!("{error}"));
            Testbed::new(node, self, machine, shown, &kit)
        }));
        let testbed = match made {
            Ok(testbed) => testbed,
            Err(panic) => return Ok(Report::broken(self, no_testbed(&*panic), start)),
        };
        let verdict = match Verdict::of(case, &testbed) {
            Verdict::Fail(Finding { basis: Some(basis), expected, seen, .. }) if rules::rule(&basis.rule).is_none() => {
                let why = format!("there is no rule {}: expected {expected}, but {seen}", basis.rule);
                Verdict::Broken { why }
            }
            verdict => verdict,
        };
        let calls = testbed.take_calls();
        Ok(Report::new(self, self.explained(verdict, &calls), calls, start.elapsed()))
    }

    /// Says what a plugin may have stumbled over that tried to write where no trial may.
    fn explained(&self, verdict: Verdict, calls: &[CallRecord]) -> Verdict {
        // The rules of these families refuse writes themselves.
        let refuses = ["faults.", "disk."].iter().any(|family| self.rule.starts_with(family));
        let is_stopped =
            |call: &CallRecord| [&call.stdout, &call.stderr].iter().any(|text| write_protection::has_stopped(text));
        match verdict {
            Verdict::Fail(mut finding) if !refuses && calls.iter().any(is_stopped) => {
                finding.seen += SHIELDED;
                Verdict::Fail(finding)
            }
            other => other,
        }
    }
}

/// The addition to the finding of a plugin that was refused a write.
const SHIELDED: &str = " (it was refused a write: in a trial all of the disk is for reading only but /run, /etc/cni, \
                        /var/lib/cni, folders for temporary files, and those of --writable or of `writes` in its profile)";

/// The name of a trial, of a profile or a driver with a version.
pub(crate) fn title(of: &str, version: &str, rule: &str, case: &str) -> String {
    format!("{of} {version} {rule} {case}").trim_end().to_owned()
}

/// The reason why nothing was tried where no node could be made.
pub(crate) fn no_testbed(panic: &(dyn std::any::Any + Send)) -> String {
    format!("the bench cannot be laid: {}", panic_text(panic))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
