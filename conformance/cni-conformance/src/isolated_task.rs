//! A task for a child process in namespaces of its own.
//!
//! The parent writes an `IsolatedTask` as JSON to the child's stdin and reads the answer, JSON too, from its stdout. The
//! child starts twice: [`isolate()`] enters new namespaces and starts [`run_isolated`], the first process there.

use crate::finding::CallRecord;
use crate::machine_features::MachineFeatures;
use crate::namespaces::{self, Shown};
use crate::rules;
use crate::spec_version;
use crate::subject::Subject;
use crate::trial::{Report, Trial};
use crate::write_protection;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use testns::{Attachment, Call, Node, Verb};

/// Word of the command line by which the kit starts itself as a child, in the namespaces of its parent.
pub const ISOLATE: &str = "isolate";
/// The same, as first process of its own namespaces.
pub const RUN_ISOLATED: &str = "run-isolated";

/// The longest time that a plugin may take to say its versions.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

/// The path of the kit's executable, for a program that is not the kit.
static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Names the kit's executable, for programs that use this library and are something else. The first call counts.
pub fn use_executable(path: impl Into<PathBuf>) {
    EXECUTABLE.get_or_init(|| path.into());
}

fn executable() -> io::Result<PathBuf> {
    EXECUTABLE.get().cloned().map_or_else(std::env::current_exe, Ok)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum IsolatedTask {
    /// To see what the machine allows: a [`MachineFeatures`].
    Look,
    /// To ask an executable for its versions: [`Spoken`].
    Versions { subject: Subject, executable: String },
    /// To try a case: a [`crate::trial::Report`].
    Try {
        trial: Box<Trial>,
        /// The machine that it runs on.
        machine: MachineFeatures,
        /// The user's own rules.
        cases: Vec<String>,
    },
    /// To try a case with a runtime: a [`crate::trial::Report`], too.
    Drive { trial: Box<crate::runtime::Trial> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spoken {
    /// Versions that the kit knows, oldest first; empty if there was no sensible answer.
    pub versions: Vec<String>,
    pub call: CallRecord,
}

impl IsolatedTask {
    /// Starts a child and waits for its answer.
    /// Errors: if it cannot be started, does not end in time or gives no answer, which it explains.
    pub(crate) fn run<T: DeserializeOwned>(&self, own_processes: bool, deadline: Duration) -> io::Result<T> {
        let mut command = Command::new(executable()?);
        command.args([ISOLATE, &own_processes.to_string()]);
        let Some(output) = testns::try_run(command, &serde_json::to_vec(self)?, deadline) else {
            return Err(io::Error::other(format!("it did not end within {} s", deadline.as_secs())));
        };
        serde_json::from_str(&output.stdout).map_err(|_no_answer| {
            let ended = if output.code() == 0 { String::new() } else { format!(" (status {})", output.code()) };
            io::Error::other(format!("{}{ended}", output.stderr.trim()))
        })
    }

    /// Does the same with a trial, which is broken where there is no answer.
    pub(crate) fn report<T: Clone + DeserializeOwned>(
        &self,
        trial: &T,
        machine: &MachineFeatures,
        deadline: Duration,
    ) -> Report<T> {
        let start = Instant::now();
        self.run(machine.own_processes, deadline).unwrap_or_else(|error| {
            Report::broken(trial, format!("the trial's process gave no report: {error}"), start)
        })
    }

    /// Does it here: the process must be in namespaces of its own.
    fn here(self, own_processes: bool) -> io::Result<Value> {
        Ok(match self {
            Self::Look => {
                namespaces::leave_the_network()?;
                json!(MachineFeatures::look(own_processes))
            }
            Self::Versions { subject, executable } => {
                let mut shown = Shown::default();
                let subject = subject.seen_through(&mut shown)?;
                write_protection::protect()?;
                json!(ask_versions(&subject, &executable, &shown))
            }
            Self::Try { trial, machine, cases } => {
                rules::add(cases).map_err(|(_, why)| io::Error::other(why))?;
                json!(trial.here(machine)?)
            }
            Self::Drive { trial } => json!(trial.here()?),
        })
    }
}

impl Subject {
    /// The same with folders that a node does not hide.
    pub(crate) fn seen_through(&self, shown: &mut Shown) -> io::Result<Self> {
        let also: io::Result<_> = self.also.iter().map(|dir| shown.see(dir)).collect();
        Ok(Self { label: self.label.clone(), bin_dir: shown.see(&self.bin_dir)?, also: also? })
    }
}

/// Asks as runtimes do: with the newest version that the kit knows.
fn ask_versions(subject: &Subject, executable: &str, shown: &Shown) -> Spoken {
    let node = Node::with_folders(subject.dirs());
    let newest = spec_version::VERSIONS.last().copied().unwrap_or_default();
    let call = Call::new(Verb::Version, json!({ "cniVersion": newest }), Attachment::none());
    let call = call.plugin(executable).deadline(VERSION_DEADLINE);
    let reply = call.try_run(&node);
    let call =
        CallRecord::new(call.invocation(&node), reply.as_ref().map(|reply| &reply.output), VERSION_DEADLINE, shown);
    let answer: Value = serde_json::from_str(&call.stdout).unwrap_or_default();
    let listed: Vec<_> =
        answer["supportedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let versions = spec_version::VERSIONS.iter().filter(|version| call.exit == Some(0) && listed.contains(version));
    Spoken { versions: versions.map(|version| (*version).to_owned()).collect(), call }
}

/// The child's `main`: enters new namespaces and starts itself again, as their first process.
pub fn isolate(own_processes: bool) -> io::Result<ExitCode> {
    let kit = std::env::current_exe()?;
    namespaces::leave_the_machine(own_processes)?;
    namespaces::die_with_parent()?;
    let mut command = Command::new(kit);
    command.args([RUN_ISOLATED, &own_processes.to_string()]).stdin(Stdio::inherit()).stdout(Stdio::inherit());
    Ok(match command.status()?.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE, // the child has said why
    })
}

/// The child's `main` in its namespaces: reads the task, does it, writes the answer.
pub fn run_isolated(own_processes: bool) -> io::Result<ExitCode> {
    namespaces::die_with_parent()?;
    namespaces::own_mounts(own_processes)?;
    let task: IsolatedTask = serde_json::from_reader(io::stdin().lock())?;
    let answer = task.here(own_processes)?;
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, &answer)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}
