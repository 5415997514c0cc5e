//! A case with one runtime and one version: a child process in namespaces of its own.

use super::{Driver, RuntimeBench, rules};
use crate::finding::{CallRecord, Stop};
use crate::isolate::Shown;
use crate::isolated_task::IsolatedTask;
use crate::machine::Machine;
use crate::shield;
use crate::trial::{Verdict, panic_text};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use testns::Node;

/// A trial that is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the rule.
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    /// The runtime: an executable's path, and arguments before those of the driver.
    pub command: Vec<String>,
    /// The driver of the runtime.
    pub driver: Driver,
    /// `cniVersion` of the network.
    pub version: String,
    /// The number of seconds that a run may take before that is a finding.
    pub call_seconds: u64,
    /// The number of seconds that a runtime may wait for a plugin that hangs, if that is to be tried.
    pub patience_seconds: Option<u64>,
}

/// A trial and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The trial.
    pub trial: Trial,
    /// The outcome of the trial.
    pub verdict: Verdict,
    /// The runs of the runtime and the calls of mock plugins, in order, unless it passed.
    pub calls: Vec<CallRecord>,
    /// The duration of the trial, in milliseconds.
    pub milliseconds: u64,
}

/// A few words, for a person who watches.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.driver.name, self.version, self.rule)?;
        if self.case.is_empty() { Ok(()) } else { write!(f, " {}", self.case) }
    }
}

impl Trial {
    /// Runs it in a child and waits.
    #[must_use]
    pub fn run(&self, machine: &Machine, deadline: Duration) -> Tried {
        let start = Instant::now();
        let task = IsolatedTask::Drive { trial: Box::new(self.clone()) };
        task.run(machine.own_processes, deadline).unwrap_or_else(|error| {
            let why = format!("the trial's process gave no report: {error}");
            self.tried(Verdict::Broken { why }, Vec::new(), start.elapsed())
        })
    }

    pub(crate) fn tried(&self, verdict: Verdict, calls: Vec<CallRecord>, took: Duration) -> Tried {
        let calls = if verdict == Verdict::Pass { Vec::new() } else { calls };
        Tried { trial: self.clone(), verdict, calls, milliseconds: took.as_millis().try_into().unwrap_or(u64::MAX) }
    }

    /// Tries the case here: the process must be in namespaces of its own.
    pub(crate) fn here(&self) -> io::Result<Tried> {
        let start = Instant::now();
        let broken = |why| Ok(self.tried(Verdict::Broken { why }, Vec::new(), start.elapsed()));
        let Some(case) = rules::find(&self.rule, &self.case) else {
            return broken(format!("there is no case {:?} of rule {:?}", self.case, self.rule));
        };
        let mut shown = Shown::default();
        let kit = shown.see(&std::env::current_exe()?)?;
        // Files that a node hides have to be bound elsewhere before there is a node.
        let mut bound = self.clone();
        for word in bound.command.iter_mut().filter(|word| word.starts_with('/') && Path::new(word).exists()) {
            *word = shown.see(Path::new(word))?.display().to_string();
        }
        shield::raise()?;
        let made = catch_unwind(|| Node::with_folders(std::iter::empty()));
        let node = match made {
            Ok(node) => node,
            Err(panic) => return broken(format!("the bench cannot be laid: {}", panic_text(&*panic))),
        };
        let bench = RuntimeBench::new(node, &bound, &kit)?;
        let verdict = match catch_unwind(AssertUnwindSafe(|| (case.run)(&bench))) {
            Ok(Ok(())) => Verdict::Pass,
            Ok(Err(Stop::Fails(finding))) => Verdict::Fail(finding),
            Ok(Err(Stop::Skips(why))) => Verdict::Skip { why },
            Err(panic) => Verdict::Broken { why: panic_text(&*panic) },
        };
        Ok(self.tried(verdict, bench.take_calls(), start.elapsed()))
    }
}
