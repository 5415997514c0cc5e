//! One case with one profile of one subject: a child process in namespaces of its own.
//!
//! The parent writes a [`Trial`] as JSON to the child's stdin and reads a [`Report`] from its stdout.

use crate::bench::Bench;
use crate::finding::{CallRecord, Finding, Stop};
use crate::profile::Profile;
use crate::rules;
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testns::Node;

/// Word of the command line by which the kit starts itself as a trial, still outside.
pub const OUTSIDE: &str = "trial";
/// The same, as first process of its own namespaces.
pub const INSIDE: &str = "trial-inside";

/// What is to be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the rule.
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    /// Whose executables.
    pub subject: Subject,
    /// How they are used.
    pub profile: Profile,
    /// `cniVersion`.
    pub version: String,
    /// For random parts.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum Verdict {
    /// The subject keeps to the rule, as far as the case can tell.
    Pass,
    /// It does not.
    Fail(Finding),
    /// The case says nothing of it.
    Skip {
        /// Why.
        why: String,
    },
    /// The case could not be tried; no fault of the subject.
    Broken {
        /// Why.
        why: String,
    },
}

/// What came of a trial, and what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was tried.
    pub trial: Trial,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The calls, in order, unless it passed.
    pub calls: Vec<CallRecord>,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
}

impl Trial {
    /// Runs it in a child and waits.
    #[must_use]
    pub fn run(&self, deadline: Duration) -> Report {
        let start = Instant::now();
        let child = || -> io::Result<Report> {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(OUTSIDE);
            let input = serde_json::to_vec(self)?;
            let Some(output) = testns::try_run(command, &input, deadline) else {
                return Err(io::Error::other(format!("it did not end within {} s", deadline.as_secs())));
            };
            serde_json::from_str(&output.stdout).map_err(|error| {
                io::Error::other(format!("{error}; stdout {:?}, stderr {:?}", output.stdout, output.stderr))
            })
        };
        child().unwrap_or_else(|error| {
            let why = format!("the trial's process gave no report: {error}");
            self.report(Verdict::Broken { why }, Vec::new(), start.elapsed())
        })
    }

    fn report(&self, verdict: Verdict, calls: Vec<CallRecord>, took: Duration) -> Report {
        let calls = if verdict == Verdict::Pass { Vec::new() } else { calls };
        Report { trial: self.clone(), verdict, calls, milliseconds: took.as_millis().try_into().unwrap_or(u64::MAX) }
    }

    /// Tries the case here: the process must be in namespaces of its own.
    fn here(&self) -> Report {
        let start = Instant::now();
        let Some(case) = rules::find(&self.rule, &self.case) else {
            let why = format!("there is no case {:?} of rule {:?}", self.case, self.rule);
            return self.report(Verdict::Broken { why }, Vec::new(), start.elapsed());
        };
        let node = Node::with_folders(self.subject.dirs());
        let bench = Bench::new(node, self.profile.clone(), self.version.clone(), self.seed);
        let verdict = match catch_unwind(AssertUnwindSafe(|| (case.run)(&bench))) {
            Ok(Ok(())) => Verdict::Pass,
            Ok(Err(Stop::Fails(finding))) => Verdict::Fail(finding),
            Ok(Err(Stop::Skips(why))) => Verdict::Skip { why },
            Err(panic) => Verdict::Broken { why: panic_text(&*panic) },
        };
        self.report(verdict, bench.take_calls(), start.elapsed())
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// The child's `main`, outside: enters new namespaces and starts itself inside.
///
/// # Errors
/// If namespaces cannot be had or the child cannot be started.
pub fn outside() -> io::Result<()> {
    crate::isolate::leave_the_machine()?;
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.arg(INSIDE).stdin(Stdio::inherit()).stdout(Stdio::inherit()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the trial ended with {status}"))),
    }
}

/// The child's `main`, inside: reads the trial, tries it, writes the report.
///
/// # Errors
/// If stdin or stdout fail.
pub fn inside() -> io::Result<()> {
    crate::isolate::own_proc()?;
    let trial: Trial = serde_json::from_reader(io::stdin().lock())?;
    let report = trial.here();
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, &report)?;
    stdout.flush()
}
