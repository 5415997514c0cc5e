//! What ADD would do here and now, as text: for programs that show it. Nothing is changed.

use cni_spec::{AddResult, CniError, SpecVersion, json};
use serde_json::{Value, json};

/// What an ADD would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The steps, in order.
    pub steps: Vec<Shown>,
    /// The result, as far as it is known before: Ethernet addresses that are not asked for are missing.
    pub result: AddResult,
    /// The facts that only ADD can know, a sentence each.
    pub unknown: Vec<String>,
}

/// A step of an ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The step as a command of `ip`, `bridge`, `sysctl`, `tc`, `iptables` or `nft`, or a sentence.
    pub text: String,
    /// The node is so already: ADD would change nothing here.
    pub is_so: bool,
    /// CHECK compares the node with it.
    pub is_compared: bool,
}

impl Shown {
    /// A step to be made, which CHECK compares.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_so: false, is_compared: true }
    }

    /// The same step where the node is so already.
    #[must_use]
    pub fn so_if(self, is_so: bool) -> Self {
        Self { is_so, ..self }
    }

    /// The same step if CHECK does not look for it.
    #[must_use]
    pub fn uncompared(self) -> Self {
        Self { is_compared: false, ..self }
    }

    /// The step as `cnitool plan --json` shows it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({ "text": self.text, "so": self.is_so, "compared": self.is_compared })
    }
}

impl Preview {
    /// Adds a step.
    pub fn push(&mut self, step: Shown) {
        self.steps.push(step);
    }

    /// Adds a step that CHECK compares, as text.
    pub fn step(&mut self, text: impl Into<String>) {
        self.push(Shown::new(text));
    }

    /// The preview as a plugin's answer has it.
    pub(crate) fn to_value(&self) -> Result<Value, CniError> {
        let steps: Value = self.steps.iter().map(Shown::to_value).collect();
        Ok(json!({ "steps": steps, "unknown": self.unknown, "result": self.result.to_value(SpecVersion::LATEST)? }))
    }

    pub(crate) fn of_value(value: &Value) -> Option<Self> {
        let step = |step: &Value| {
            let text = json::member(step, "text")?.as_str()?.to_owned();
            let is = |key| json::member(step, key).and_then(Value::as_bool);
            Some(Shown { text, is_so: is("so")?, is_compared: is("compared")? })
        };
        let unknown = json::member(value, "unknown")?.as_array()?.iter();
        Some(Self {
            steps: json::member(value, "steps")?.as_array()?.iter().map(step).collect::<Option<_>>()?,
            result: AddResult::from_value(json::member(value, "result")?, SpecVersion::LATEST).ok()?,
            unknown: unknown.map(|fact| fact.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        })
    }
}
