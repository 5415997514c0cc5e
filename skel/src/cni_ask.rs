//! Questions about a config, for programs such as `cnitool` that know no parser of the plugin's keys.
//!
//! A question is a VERSION call with variable `CNI_ASK`, and the answer a key of VERSION's result. So it can disturb no runtime
//! and no plugin: VERSION changes nothing, no runtime sets the variable, runtimes ignore the key, and a plugin that does not know
//! the variable answers with its versions alone. Plugins whose `main` is [`crate::main`] answer.
//!
//! | `CNI_ASK` | other variables and stdin | key `answer` |
//! |---|---|---|
//! | `keys` | the config that ADD would get | `error` if ADD refuses the config, with the `key`; `misspelt`, unknown keys that resemble a known one |
//! | `plan` | as for ADD | `error` if ADD would fail; else `plan`, if the plugin implements [`crate::Plugin::preview`] |

use std::rc::Rc;

use cni_spec::conf::Misspelt;
use cni_spec::{CniError, Code, Command, ConfObject, NetConf, json};
use serde_json::{Value, json};

use crate::call::Call;
use crate::dispatch::{gate_version, version_text};
use crate::env::Environment;
use crate::plugin::{Attach, Entry, Serve};
use crate::preview::Preview;
use crate::reply::Reply;

/// The variable.
pub const VARIABLE: &str = "CNI_ASK";

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Whether ADD would accept the keys.
    Keys,
    /// What ADD would do.
    Plan,
}

impl Question {
    /// The value of `CNI_ASK`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Plan => "plan",
        }
    }

    fn find(text: &str) -> Option<Self> {
        [Self::Keys, Self::Plan].into_iter().find(|question| question.as_str() == text)
    }
}

/// The answer to a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The error with which ADD would refuse the config or fail.
    pub error: Option<CniError>,
    /// The unknown keys that resemble a known one.
    pub misspelt: Vec<Misspelt>,
    /// What ADD would do; only for [`Question::Plan`].
    pub plan: Option<Preview>,
}

impl Answer {
    /// The answer in what the plugin has printed. `None`: the plugin does not answer questions.
    #[must_use]
    pub fn find_in(stdout: &[u8]) -> Option<Self> {
        let printed = json::parse(stdout).ok()?;
        let answer = json::member(&printed, "answer").filter(|answer| answer.is_object())?;
        let text = |value: &Value, key| json::member(value, key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let error = json::member(answer, "error").map(|error| {
            let code = json::member(error, "code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
            let key = json::member(error, "key").and_then(Value::as_str).map(Box::from);
            let code = Code(code.unwrap_or(Code::INTERNAL.0));
            CniError { code, msg: text(error, "msg"), details: text(error, "details"), key }
        });
        let misspelt = json::member(answer, "misspelt").and_then(Value::as_array);
        let misspelt =
            misspelt.into_iter().flatten().map(|one| Misspelt { path: text(one, "key"), meant: text(one, "meant") });
        let misspelt = misspelt.collect();
        Some(Self { error, misspelt, plan: json::member(answer, "plan").and_then(Preview::of_value) })
    }

    fn to_value(&self) -> Result<Value, CniError> {
        let mut value = json!({});
        if let Some(CniError { code, msg, details, key }) = &self.error {
            value["error"] = json!({ "code": code.0, "msg": msg, "details": details, "key": key });
        }
        if !self.misspelt.is_empty() {
            value["misspelt"] =
                self.misspelt.iter().map(|one| json!({ "key": one.path, "meant": one.meant })).collect();
        }
        if let Some(plan) = &self.plan {
            value["plan"] = plan.to_value()?;
        }
        Ok(value)
    }
}

/// The reply to a question; `None` if the call is none.
pub(crate) fn reply(plugin: &Entry, call: &Call) -> Option<Reply> {
    let is_version = call.env.find_command() == Some(Command::Version);
    let question = Environment::find_question().filter(|_| is_version).and_then(|word| Question::find(&word))?;
    let answer = match (question, plugin.serve) {
        (Question::Keys, Serve::Verbs { attach, .. }) => keys(plugin, attach, call),
        (Question::Keys, Serve::Call(_)) => return None,
        (Question::Plan, _) => plugin.preview?(call).map(|plan| Answer { plan, ..Answer::default() }),
    };
    let answer = answer.unwrap_or_else(|error| Answer { error: Some(error), ..Answer::default() });
    let versions = version_text(plugin.versions, &call.read_stdin().unwrap_or_default());
    let mut printed: Value = serde_json::from_str(&versions).ok()?;
    printed["answer"] = answer.to_value().ok()?;
    Some(Reply::success(format!("{printed}\n")))
}

fn keys(
    plugin: &Entry,
    attach: fn(&ConfObject) -> Result<Box<dyn Attach>, CniError>,
    call: &Call,
) -> Result<Answer, CniError> {
    let object = Rc::new(ConfObject::parse(&call.read_stdin()?)?);
    let version = gate_version(Command::Add, object.version_text(), plugin.versions)?;
    let error = NetConf::checked(&object, version, attach).err();
    Ok(Answer { error, misspelt: object.misspelt(), plan: None })
}
