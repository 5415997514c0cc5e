//! A case with one runtime and one version: a child process in namespaces of its own.

use super::{Driver, RuntimeTestbed, rules};
use crate::isolated_task::IsolatedTask;
use crate::machine_features::MachineFeatures;
use crate::namespaces::Shown;
use crate::trial::{Report, Verdict, no_testbed, title};
use crate::write_protection;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};
use testns::Node;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    /// The runtime: an executable's path, and arguments before those of the driver.
    pub command: Vec<String>,
    pub driver: Driver,
    pub version: String,
    pub seed: u64,
    /// The number of seconds that a run may take before that is a finding.
    pub call_seconds: u64,
    /// The number of seconds that a runtime may wait for a plugin that hangs, if that is to be tried.
    pub patience_seconds: Option<u64>,
}

/// A few words, for a person who watches.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(&self.driver.name, &self.version, &self.rule, &self.case))
    }
}

impl Trial {
    /// Runs it in a child and waits. The calls of the report are the runs of the runtime and those of mock plugins.
    pub fn run(&self, machine: &MachineFeatures, deadline: Duration) -> Report<Self> {
        IsolatedTask::Drive { trial: Box::new(self.clone()) }.report(self, machine, deadline)
    }

    /// Tries the case here: the process must be in namespaces of its own.
    pub(crate) fn here(&self) -> io::Result<Report<Self>> {
        let start = Instant::now();
        let broken = |why| Ok(Report::broken(self, why, start));
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
        write_protection::protect()?;
        let made = catch_unwind(|| Node::with_folders(std::iter::empty()));
        let node = match made {
            Ok(node) => node,
            Err(panic) => return broken(no_testbed(&*panic)),
        };
        let testbed = RuntimeTestbed::new(node, &bound, &kit)?;
        let verdict = Verdict::of(case, &testbed);
        Ok(Report::new(self, verdict, testbed.take_calls(), start.elapsed()))
    }
}
