//! The outcome of a call.

use crate::finding::{CallRecord, Finding, Stop};
use crate::spec_version;
use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Answer {
    record: CallRecord,
    /// The rule that says that such a call succeeds.
    basis: Option<&'static str>,
    /// The rule that says that it fails.
    refused_by: Option<&'static str>,
    /// The rule that says that a failure is reported by an object.
    error_object: &'static str,
}

/// An error object as a plugin printed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    pub code: u64,
    pub msg: String,
    pub details: String,
    pub object: Value,
}

impl Answer {
    pub(crate) fn new(record: CallRecord, basis: Option<&'static str>, version: &str) -> Self {
        let is_new = spec_version::is_from(version, "1.0.0");
        let error_object = if is_new { "errors.object" } else { "errors.object-in-0.4.0" };
        Self { record, basis, refused_by: None, error_object }
    }

    /// The same answer to a call that has to fail, as another rule says than the one that is tried: where it succeeds,
    /// that is the other's finding.
    pub fn refused_by(self, rule: &'static str) -> Self {
        Self { refused_by: Some(rule), ..self }
    }

    /// The rule that says that this one had to fail and say so with its status.
    pub(crate) fn basis_of_failure(&self) -> Option<&'static str> {
        if self.is_error_object() { Some("errors.exit-status") } else { self.refused_by }
    }

    fn is_error_object(&self) -> bool {
        let object = serde_json::from_str::<Value>(&self.record.stdout).unwrap_or_default();
        object.get("code").is_some() && object.get("msg").is_some()
    }

    /// The plugin's standard output, if it succeeded; `null` for nothing.
    pub fn succeeds(&self) -> Result<Value, Stop> {
        let CallRecord { exit, stdout, .. } = &self.record;
        if *exit != Some(0) {
            let seen = format!("it ended with {} and {}", exit.unwrap_or(-1), self.printed());
            return Err(Finding::new("exit status 0", seen).of_call(self.basis).into());
        }
        // The output of other verbs is for rules of their own, and no caller reads it.
        if !["ADD", "VERSION"].contains(&self.record.verb()) {
            return Ok(serde_json::from_str(stdout).unwrap_or_default());
        }
        let seen = match serde_json::from_str(stdout) {
            _ if stdout.trim().is_empty() => return Ok(Value::Null),
            Ok(value @ (Value::Object(_) | Value::Null)) => return Ok(value),
            Ok(_) => format!("it printed {stdout:?}"),
            Err(error) => format!("it printed {stdout:?} ({error})"),
        };
        Err(Finding::new("nothing or one JSON object on stdout", seen).of_call(self.basis).into())
    }

    pub fn prints_nothing(&self) -> Result<(), Stop> {
        match self.succeeds()? {
            Value::Null if self.record.stdout.is_empty() => Ok(()),
            _ => Err(Finding::new("nothing on stdout", format!("it printed {:?}", self.record.stdout)).into()),
        }
    }

    /// The error object, if the plugin failed.
    pub fn fails(&self) -> Result<ErrorObject, Stop> {
        let CallRecord { exit, stdout, stderr, .. } = &self.record;
        if *exit == Some(0) {
            let finding = Finding::new("a failure", format!("it succeeded and {}", self.printed()));
            return Err(finding.based_on(self.basis_of_failure()).into());
        }
        if let Some(signal) = self.signal() {
            return Err(Finding::new("an error", format!("signal {signal} ended it, stderr {stderr:?}")).into());
        }
        let printed = || format!("it {}", self.printed());
        let Ok(object) = serde_json::from_str::<Value>(stdout) else {
            return Err(Finding::new("an error object on stdout", printed()).based_on(self.error_object).into());
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        match (object.get("code").and_then(Value::as_u64), text("msg")) {
            (Some(code), Some(msg)) => {
                let details = text("details").unwrap_or_default();
                Ok(ErrorObject { code, msg, details, object })
            }
            _ => Err(Finding::new("an error object with code and msg", printed()).based_on(self.error_object).into()),
        }
    }

    /// Returns what the call printed, JSON on one line and without more quotes than it has.
    fn printed(&self) -> String {
        let CallRecord { stdout, stderr, .. } = &self.record;
        let stdout = match serde_json::from_str::<Value>(stdout) {
            Ok(value) => value.to_string(),
            Err(_) if stdout.is_empty() => "nothing".to_owned(),
            Err(_) => format!("{stdout:?}"),
        };
        match stderr.is_empty() {
            true => format!("printed {stdout}"),
            false => format!("printed {stdout}, and on stderr {stderr:?}"),
        }
    }

    /// The same, if the error has this code.
    pub fn fails_with(&self, code: u64) -> Result<ErrorObject, Stop> {
        let error = self.fails()?;
        match error.code == code {
            true => Ok(error),
            false => Err(Finding::new(format!("error code {code}"), format!("it printed {}", error.object)).into()),
        }
    }

    /// Returns whether the call succeeded. An error object says that it did not, whatever the status.
    pub fn is_success(&self) -> bool {
        self.record.exit == Some(0) && !self.is_error_object()
    }

    /// Checks that the plugin failed, with an error object or without: that it prints one is a should.
    pub fn refuses(&self) -> Result<(), Stop> {
        match self.fails() {
            Err(Stop::Fails(finding))
                if finding.basis.as_ref().is_some_and(|basis| basis.rule == self.error_object) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// The signal that ended it, if one did. Scripts that end with a status of their own above 192 were ended by none.
    pub fn signal(&self) -> Option<i32> {
        const LAST: i32 = 64; // SIGRTMAX
        self.record.exit.map(|exit| exit - 128).filter(|signal| (1..=LAST).contains(signal))
    }

    pub fn record(&self) -> &CallRecord {
        &self.record
    }
}
