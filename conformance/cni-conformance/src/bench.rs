//! What a case works with: a throwaway node with the subject's executables, and calls that are recorded.

use crate::finding::{CallRecord, Finding, Stop};
use crate::profile::Profile;
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use testns::{Attachment, Call, Container, Node, Verb};

/// How long a call may take before that is a finding.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// One throwaway node for one case.
pub struct Bench {
    /// The node; containers are made on it.
    pub node: Node,
    /// How the plugin is to be used.
    pub profile: Profile,
    /// `cniVersion` of the config.
    pub version: String,
    /// For random parts.
    pub seed: u64,
    calls: RefCell<Vec<CallRecord>>,
}

/// What a call came to.
#[derive(Debug, Clone)]
pub struct Answer {
    record: CallRecord,
}

/// An error object as a plugin printed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// `code`.
    pub code: u64,
    /// `msg`.
    pub msg: String,
    /// The whole object.
    pub object: Value,
}

impl Bench {
    pub(crate) fn new(node: Node, profile: Profile, version: String, seed: u64) -> Self {
        Self { node, profile, version, seed, calls: RefCell::default() }
    }

    /// A new container.
    #[must_use]
    pub fn pod(&self) -> Container {
        self.node.container()
    }

    /// The config of the tested plugin.
    #[must_use]
    pub fn config(&self) -> Value {
        self.profile.config(0, &self.version)
    }

    /// A call of the tested plugin, to be changed before it is made with [`Bench::make`].
    #[must_use]
    pub fn call(&self, verb: Verb, attachment: impl Into<Attachment>) -> Call {
        self.call_with(verb, &self.config(), attachment)
    }

    /// The same with another config.
    #[must_use]
    pub fn call_with(&self, verb: Verb, config: &Value, attachment: impl Into<Attachment>) -> Call {
        Call::new(verb, config, attachment).plugin(&self.profile.executable).deadline(CALL_DEADLINE)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// A finding if it does not end in time.
    pub fn make(&self, call: &Call) -> Result<Answer, Stop> {
        let (executable, environment, stdin) = call.told(&self.node);
        let reply = call.try_run(&self.node);
        let output = reply.as_ref().map(|reply| &reply.output);
        let record = CallRecord {
            executable: real_path(&executable),
            environment,
            stdin,
            exit: output.map(testns::Output::code),
            stdout: output.map(|output| output.stdout.clone()).unwrap_or_default(),
            stderr: output.map(|output| output.stderr.clone()).unwrap_or_default(),
            milliseconds: output
                .map_or(CALL_DEADLINE, |output| output.elapsed)
                .as_millis()
                .try_into()
                .unwrap_or(u64::MAX),
        };
        self.calls.borrow_mut().push(record.clone());
        match record.exit {
            Some(_) => Ok(Answer { record }),
            None => {
                Err(Finding::new("an answer", format!("the plugin did not end within {} s", CALL_DEADLINE.as_secs()))
                    .into())
            }
        }
    }

    /// ADD as the specification has it; has to succeed.
    ///
    /// # Errors
    /// A finding if it fails.
    pub fn add(&self, pod: &Container) -> Result<Value, Stop> {
        self.make(&self.call(Verb::Add, pod))?.succeeds()
    }

    /// DEL with the result of ADD; has to succeed.
    ///
    /// # Errors
    /// A finding if it fails.
    pub fn del(&self, pod: &Container, result: &Value) -> Result<(), Stop> {
        self.make(&self.call(Verb::Del, pod).prev_result(result))?.succeeds().map(drop)
    }

    /// What is left of what happened since the node was last remembered: changes, but not those of files that were
    /// there before and still are. Bookkeeping is not a leak.
    #[must_use]
    pub fn left_behind(&self) -> String {
        let changes = self.node.changes();
        let is_kept = |line: &str| {
            let path =
                |sign: char| line.strip_prefix(sign)?.strip_prefix(" file ")?.split_once(' ').map(|(path, _)| path);
            let has = |sign: char, path: &str| {
                changes.lines().any(|other| other.starts_with(&format!("{sign} file {path} ")))
            };
            path('-').is_some_and(|path| has('+', path)) || path('+').is_some_and(|path| has('-', path))
        };
        changes.lines().filter(|line| !is_kept(line)).map(|line| format!("{line}\n")).collect()
    }

    /// The calls so far.
    pub(crate) fn take_calls(&self) -> Vec<CallRecord> {
        self.calls.take()
    }
}

impl Answer {
    /// What the plugin printed, if it succeeded; `null` for nothing.
    ///
    /// # Errors
    /// A finding if it failed, or printed something else than one JSON value.
    pub fn succeeds(&self) -> Result<Value, Stop> {
        let CallRecord { exit, stdout, stderr, .. } = &self.record;
        if *exit != Some(0) {
            let seen = format!("it ended with {} and printed {stdout:?}, stderr {stderr:?}", exit.unwrap_or(-1));
            return Err(Finding::new("exit status 0", seen).into());
        }
        match stdout.trim() {
            "" => Ok(Value::Null),
            text => serde_json::from_str(text).map_err(|error| {
                Finding::new("nothing or one JSON value on stdout", format!("{error}: {text:?}")).into()
            }),
        }
    }

    /// The error object, if the plugin failed.
    ///
    /// # Errors
    /// A finding if it succeeded, or printed no error object.
    pub fn fails(&self) -> Result<ErrorObject, Stop> {
        let CallRecord { exit, stdout, .. } = &self.record;
        if *exit == Some(0) {
            return Err(Finding::new("a failure", format!("it succeeded and printed {stdout:?}")).into());
        }
        let object: Value = serde_json::from_str(stdout)
            .map_err(|error| Stop::from(Finding::new("an error object on stdout", format!("{error}: {stdout:?}"))))?;
        let code = object.get("code").and_then(Value::as_u64);
        let msg = object.get("msg").and_then(Value::as_str).map(str::to_owned);
        match (code, msg) {
            (Some(code), Some(msg)) => Ok(ErrorObject { code, msg, object }),
            _ => Err(Finding::new("an error object with code and msg", format!("it printed {stdout:?}")).into()),
        }
    }

    /// The call and its answer.
    #[must_use]
    pub fn record(&self) -> &CallRecord {
        &self.record
    }
}

/// The executable itself, not the link to it on the bench.
fn real_path(path: &Path) -> String {
    std::fs::read_link(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
