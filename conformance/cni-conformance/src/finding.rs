//! The findings of cases: what was expected, what was seen, and the calls that a person needs to see it too.

use crate::namespaces::Shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use testns::Output;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub expected: String,
    pub seen: String,
    /// Lines of the node that went (`-`) and came (`+`), where that is the point.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// The rule by which what went wrong works in the first place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// A rule that the one which was tried builds on. Where it is broken too, the finding is its, and says nothing of the
/// other: see [`schedule::run`](crate::schedule::run).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    pub rule: String,
    /// Whether a call failed that should have succeeded. The rule has to be broken by such a call, then: a plugin that
    /// leaves something behind may still be called twice.
    pub call: bool,
}

impl Finding {
    /// A finding without a difference of the node.
    pub fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { expected: expected.into(), seen: seen.into(), diff: String::new(), basis: None }
    }

    /// The same of something that works in the first place, as a rule says.
    pub fn based_on<'a>(self, rule: impl Into<Option<&'a str>>) -> Self {
        Self { basis: rule.into().map(|rule| Basis { rule: rule.to_owned(), call: false }), ..self }
    }

    /// The same of a call that succeeds in the first place, as a rule says.
    pub fn of_call<'a>(self, rule: impl Into<Option<&'a str>>) -> Self {
        Self { basis: rule.into().map(|rule| Basis { rule: rule.to_owned(), call: true }), ..self }
    }

    /// Nothing if something holds, else a finding.
    pub fn unless(holds: bool, expected: impl Into<String>, seen: impl Into<String>) -> Result<(), Stop> {
        if holds { Ok(()) } else { Err(Self::new(expected, seen).into()) }
    }

    /// Returns what was expected and seen of a thing if there is one.
    pub fn unless_none<T>(found: Option<T>, of: impl FnOnce(T) -> (String, String)) -> Result<(), Stop> {
        found.map(of).map_or(Ok(()), |(expected, seen)| Err(Self::new(expected, seen).into()))
    }

    /// Returns the finding if there is a difference.
    pub fn unless_differs(diff: String, expected: impl Into<String>, seen: impl Into<String>) -> Result<(), Stop> {
        if diff.is_empty() { Ok(()) } else { Err(Self::new(expected, seen).with_diff(diff).into()) }
    }

    /// The same with a difference of the node.
    pub fn with_diff(mut self, diff: impl Into<String>) -> Self {
        self.diff = diff.into();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, but {}", self.expected, self.seen)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    Fails(Finding),
    /// The case says nothing of this subject or cannot run on this kernel, for this reason.
    Skips(String),
}

impl Stop {
    /// Says that the case says nothing of this subject, for a reason.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skips(why.into())
    }

    /// Says that this machine does not let the kit try the case, for a reason.
    pub fn not_here(why: impl fmt::Display) -> Self {
        Self::Skips(format!("{}{why}", crate::trial::NOT_HERE))
    }

    /// Ends a case that says nothing of this subject, for a reason.
    pub fn skip_if(is_so: bool, why: impl Into<String>) -> Result<(), Self> {
        if is_so { Err(Self::skip(why)) } else { Ok(()) }
    }

    /// The same of something that works in the first place, as a rule says.
    pub fn based_on<'a>(self, rule: impl Into<Option<&'a str>>) -> Self {
        self.with(|finding| finding.based_on(rule))
    }

    /// The same of a call that succeeds in the first place, as a rule says.
    pub fn of_call<'a>(self, rule: impl Into<Option<&'a str>>) -> Self {
        self.with(|finding| finding.of_call(rule))
    }

    fn with(self, change: impl FnOnce(Finding) -> Finding) -> Self {
        match self {
            Self::Fails(finding) => Self::Fails(change(finding)),
            Self::Skips(why) => Self::Skips(why),
        }
    }
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Self {
        Self::Fails(finding)
    }
}

/// A call that was made, with all that is needed to make it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Commands for a shell that do what was done since the call before: a namespace that was made, a link that was deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    pub executable: String,
    /// Words after it; plugins get none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub stdin: String,
    /// Exit status; 128 and the number for a signal; `None` if it did not end in time.
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub milliseconds: u64,
}

impl CallRecord {
    /// A call as [`testns::Call::invocation`] gives it, and what came of it; `None` if it did not end within `deadline`.
    pub(crate) fn new(
        invocation: (PathBuf, Vec<(String, String)>, String),
        output: Option<&Output>,
        deadline: Duration,
        shown: &Shown,
    ) -> Self {
        let (executable, environment, stdin) = invocation;
        // The executable itself, not the link to it on the testbed.
        let executable = fs::read_link(&executable).unwrap_or(executable);
        let text = |of: fn(&Output) -> &String| output.map(|output| of(output).clone()).unwrap_or_default();
        let elapsed = output.map_or(deadline, |output| output.elapsed);
        Self {
            before: testns::take_steps(),
            executable: shown.real(&executable).display().to_string(),
            arguments: Vec::new(),
            environment,
            stdin,
            exit: output.map(Output::code),
            stdout: text(|output| &output.stdout),
            stderr: text(|output| &output.stderr),
            milliseconds: elapsed.as_millis().try_into().unwrap_or(u64::MAX),
        }
    }

    /// `CNI_COMMAND`; empty if the call has none.
    pub fn verb(&self) -> &str {
        self.environment.iter().find(|(name, _)| name == "CNI_COMMAND").map_or("", |(_, verb)| verb)
    }

    /// The call as a command for a shell, after those of [`CallRecord::before`].
    pub fn command_line(&self) -> String {
        let variables = self.environment.iter().map(|(name, set)| format!("{name}={} ", quoted(set)));
        let variables: String = variables.collect();
        let arguments: String = self.arguments.iter().map(|word| format!(" {}", quoted(word))).collect();
        format!("printf %s {} | env -i {variables}{}{arguments}", quoted(&self.stdin), quoted(&self.executable))
    }
}

/// `text` as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
