//! The runtime's log of calls: a record for each operation. Off unless [`crate::Builder::call_log`] was called.

use crate::versions::VersionInfo;
use crate::{AttachmentId, NetworkConf, PluginRepair, Runtime};
use call_log::{By, Record, Sink, Step};
use cni_spec::{AddResult, Code, Command};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Steps that are kept of an operation.
const STEPS_MAX: usize = 100;

tokio::task_local! {
    /// The calls of plugins in the operation of this task.
    pub(crate) static STEPS: RefCell<Vec<Step>>;
    /// When the operation of this task began, in microseconds since 1970, if it has a record: its plugins' are part of that.
    pub(crate) static WITHIN: Option<u64>;
}

/// The variable by which a plugin's record names that of the operation of this task.
pub(crate) fn within_variable() -> Option<(String, String)> {
    let begin_us = WITHIN.try_with(|begin_us| *begin_us).ok().flatten()?;
    Some((call_log::WITHIN.to_owned(), begin_us.to_string()))
}

/// Where records go: what the variable `CNI_LOG` says, or else the node's file, or else the network's key `log`.
#[derive(Debug, Clone, Default)]
pub struct CallLog {
    variable: Option<Sink>,
    /// What `CNI_LOG` says where it names no sink: a level.
    level: Option<String>,
    traceparent: Option<String>,
}

impl CallLog {
    /// With the process's own variables `CNI_LOG` and `TRACEPARENT`. The latter is used for operations that have no trace
    /// context otherwise, and only if it is valid.
    #[must_use]
    pub fn from_variables(log: Option<&str>, traceparent: Option<&str>) -> Self {
        let traceparent = traceparent.filter(|text| call_log::is_traceparent(text)).map(str::to_owned);
        let variable = log.and_then(Sink::of_variable);
        let level = log.filter(|_| variable.is_none()).map(str::to_owned);
        Self { variable, level, traceparent }
    }

    /// The variable by which plugins leave no records; none if `CNI_LOG` names where they go.
    pub(crate) fn off_variable(log: Option<&Self>) -> Option<(String, String)> {
        let level = log.and_then(|log| log.level.as_deref()).unwrap_or_default();
        let is_named = log.is_some_and(|log| log.variable.is_some());
        (!is_named).then(|| ("CNI_LOG".to_owned(), format!("{level},off")))
    }

    fn sink(&self, network: Option<&str>) -> Option<Sink> {
        let sink = self.variable.clone().or_else(Sink::of_node).or_else(|| network.and_then(Sink::of_network));
        sink.filter(Sink::is_on)
    }
}

pub(crate) struct Operation<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) command: Command,
    pub(crate) network: &'a str,
    pub(crate) log: Option<&'a str>,
    pub(crate) id: Option<&'a AttachmentId>,
}

impl<'a> Operation<'a> {
    pub(crate) fn on(
        runtime: &'a Runtime,
        command: Command,
        network: &'a NetworkConf,
        id: Option<&'a AttachmentId>,
    ) -> Self {
        Self { runtime, command, network: &network.name, log: network.log.as_deref(), id }
    }

    /// The begin of its record, if one is wanted.
    pub(crate) fn begin(&self) -> Option<Begun> {
        let log = self.runtime.settings.call_log.as_ref().filter(|_| self.runtime.silence().is_none())?;
        let sink = log.sink(self.log)?;
        let trace = self.runtime.trace_variables().into_iter().find(|(name, _)| name == "TRACEPARENT");
        let record = Record {
            by: By::Runtime,
            begin_us: micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            verb: self.command.as_str().to_owned(),
            network: self.network.to_owned(),
            container: self.id.map(|id| id.container_id.to_string()).unwrap_or_default(),
            ifname: self.id.map(|id| id.ifname.to_string()).unwrap_or_default(),
            traceparent: trace.map(|(_, value)| value).or_else(|| log.traceparent.clone()),
            ..Record::default()
        };
        Some(Begun { sink, record })
    }
}

/// A record that is to be written when the operation ends.
pub(crate) struct Begun {
    sink: Sink,
    pub(crate) record: Record,
}

impl Begun {
    pub(crate) fn end(mut self, duration: Duration, error: Option<(Option<Code>, String)>) {
        self.record.duration_us = micros(duration);
        self.record.steps = STEPS.try_with(RefCell::take).unwrap_or_default();
        self.record.error = error.map(|(code, text)| (code.unwrap_or(Code::INTERNAL).0, text));
        self.sink.write(&self.record);
    }
}

/// Notes a plugin's call in the operation that it is part of.
pub(crate) fn note(command: Command, plugin: &str, duration: Duration) {
    let step = || Step { what: format!("{} of {plugin}", command.as_str()), us: micros(duration) };
    let noted = STEPS.try_with(|steps| {
        let mut steps = steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step());
        }
    });
    // Without an operation around it there is no record.
    noted.unwrap_or_default();
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a record keeps of an operation's result.
pub(crate) trait Outcome {
    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Outcome for () {}
impl Outcome for BTreeSet<String> {}
impl Outcome for Option<Vec<PluginRepair>> {}
impl Outcome for VersionInfo {}
impl Outcome for AddResult {
    fn addresses(&self) -> Vec<String> {
        self.ips.iter().map(|ip| ip.address.to_string()).collect()
    }
}
