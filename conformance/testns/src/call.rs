//! A call of a plugin, as a runtime makes it.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::must::Must;
use crate::process::{self, Output};
use crate::{Attachment, Node};

/// Time limit of a plugin, after which the test fails: many run at once on small machines.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// A call with every parameter that a runtime can set; [`Node::call`] is the short form.
///
/// The process gets exactly the variables that the specification lists for the verb, those set here, and, if it is not
/// ours, `PATH`.
#[derive(Debug, Clone)]
pub struct Call {
    verb: Verb,
    config: String,
    attachment: Attachment,
    plugin: Option<String>,
    environment: Vec<(String, Option<String>)>,
    deadline: Duration,
}

impl Call {
    pub fn new(verb: Verb, config: impl fmt::Display, attachment: impl Into<Attachment>) -> Self {
        Self {
            verb,
            config: config.to_string(),
            attachment: attachment.into(),
            plugin: None,
            environment: Vec::new(),
            deadline: DEADLINE,
        }
    }

    /// Calls this plugin, whatever the config's `type` is; needed when that is broken on purpose.
    pub fn plugin(mut self, name: &str) -> Self {
        self.plugin = Some(name.to_owned());
        self
    }

    pub fn args(self, args: &str) -> Self {
        self.variable("CNI_ARGS", args)
    }

    /// Sets a variable, replacing what the verb would have.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// Leaves out a variable that the verb would have.
    pub fn without(mut self, name: &str) -> Self {
        self.environment.push((name.to_owned(), None));
        self
    }

    /// Puts `prevResult` into the config.
    #[track_caller]
    pub fn prev_result(self, result: &Value) -> Self {
        self.with_config(|config| config["prevResult"] = result.clone())
    }

    #[track_caller]
    pub fn with_config(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut config: Value = serde_json::from_str(&self.config).must("read the config");
        change(&mut config);
        self.config = config.to_string();
        self
    }

    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    #[track_caller]
    pub fn run(&self, node: &Node) -> Reply {
        let mut command = Command::new(self.executable(node));
        command.env_clear().envs(self.variables(node));
        let output = process::run(command, self.config.as_bytes(), self.deadline);
        self.reply(output)
    }

    /// As [`Call::run`], or `None` when it takes longer than the deadline.
    #[track_caller]
    pub fn try_run(&self, node: &Node) -> Option<Reply> {
        let mut command = Command::new(self.executable(node));
        command.env_clear().envs(self.variables(node));
        process::try_run(command, self.config.as_bytes(), self.deadline).map(|output| self.reply(output))
    }

    /// The call's parameters: the executable, its whole environment, its stdin.
    #[track_caller]
    pub fn invocation(&self, node: &Node) -> (PathBuf, Vec<(String, String)>, String) {
        (self.executable(node), self.variables(node), self.config.clone())
    }

    pub(crate) fn reply(&self, output: Output) -> Reply {
        Reply { call: format!("{} with {}", self.verb, self.config), output }
    }

    pub(crate) fn stdin(&self) -> &str {
        &self.config
    }

    pub(crate) fn time(&self) -> Duration {
        self.deadline
    }

    #[track_caller]
    pub(crate) fn executable(&self, node: &Node) -> PathBuf {
        let config = || serde_json::from_str::<Value>(&self.config).ok();
        let from_config = || Some(config()?.get("type")?.as_str()?.to_owned());
        let name = self.plugin.clone().or_else(from_config);
        node.bin_dir().join(name.must("find the plugin to call: the config has no type"))
    }

    pub(crate) fn variables(&self, node: &Node) -> Vec<(String, String)> {
        let bin_dir = node.bin_dir().display().to_string();
        let Attachment { container_id, netns, ifname } = &self.attachment;
        let verb = self.verb.to_string();
        let mut all = vec![("CNI_COMMAND", verb.as_str())];
        if matches!(self.verb, Verb::Add | Verb::Del | Verb::Check) {
            all.extend([("CNI_CONTAINERID", container_id.as_str()), ("CNI_NETNS", netns), ("CNI_IFNAME", ifname)]);
        }
        if self.verb != Verb::Version {
            all.push(("CNI_PATH", &bin_dir));
        }
        all.extend(node.search_path().map(|path| ("PATH", path)));
        let changed = |name: &str| self.environment.iter().any(|(other, _)| other == name);
        all.retain(|(name, _)| !changed(name));
        let mut all: Vec<_> = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.extend(self.environment.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))));
        all
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        })
    }
}

#[derive(Debug, Clone)]
#[must_use = "a reply says whether the call succeeded"]
pub struct Reply {
    call: String,
    pub output: Output,
}

/// An error object as a plugin printed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u64,
    pub msg: String,
    /// `details`; empty if left out.
    pub details: String,
}

impl Reply {
    /// The result, after checking that the call succeeded; `null` where nothing was printed.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.output.code() == 0, "expected success, but {self}");
        if self.output.stdout.is_empty() {
            return Value::Null;
        }
        self.json()
    }

    /// The error object, after checking that the call failed with that code.
    #[track_caller]
    pub fn fails_with(&self, code: u64) -> Failure {
        let failure = self.fails();
        assert!(failure.code == code, "expected code {code}, but {self}");
        failure
    }

    /// The error object, after checking that the call failed.
    #[track_caller]
    pub fn fails(&self) -> Failure {
        assert!(self.output.code() != 0, "expected a failure, but {self}");
        let error = self.json();
        let text = |key| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let code = error.get("code").and_then(Value::as_u64);
        Failure {
            code: code.must(format_args!("find a code: {self}")),
            msg: text("msg").must(format_args!("find a msg: {self}")),
            details: text("details").unwrap_or_default(),
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.output.stdout).must(format_args!("read stdout as JSON: {self}"))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Output { stdout, stderr, elapsed, .. } = &self.output;
        let (code, elapsed) = (self.output.code(), elapsed.as_millis());
        writeln!(f, "{} ended with {code} after {elapsed} ms", self.call)?;
        writeln!(f, "stdout: {stdout}")?;
        write!(f, "stderr: {stderr}")
    }
}
