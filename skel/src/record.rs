//! The record of this process's call in the log of calls (crate `call-log`). Off unless the environment, the node or the
//! network asks for it; then a call costs one system call more, by which the node's setting is looked for.

use crate::call::Call;
use crate::env::{Environment, LogVariable};
use crate::reply::Reply;
use call_log::{By, Record, Sink, Step};
use cni_spec::{CniError, Code, Command, json};
use serde_json::Value;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps that are kept of a call.
const STEPS_MAX: usize = 100;

thread_local! {
    /// The state of the call that this thread answers. A thread that only helps has none, so it notes no steps.
    ///
    /// Never dropped: a thread's first value with a destructor makes musl set up a list of them and a heap for it.
    static LOG: RefCell<ManuallyDrop<Log>> =
        const { RefCell::new(ManuallyDrop::new(Log { begin: None, begin_us: 0, sink: None, steps: Vec::new() })) };
}

struct Log {
    begin: Option<Instant>,
    /// The same since 1970, if the call is recorded.
    begin_us: u64,
    /// The decided sink; `None` as long as only the network may still ask for a record.
    sink: Option<Sink>,
    steps: Vec<Step>,
}

/// Begins the record of a call, if the environment or the node asks for one. VERSION leaves none: it is about no network.
pub(crate) fn begin(call: &Call) {
    if call.env.find_command() == Some(Command::Version) {
        return;
    }
    let (begin, variable) = (Instant::now(), Environment::find_log(LogVariable::Log));
    let sink = variable.and_then(|value| Sink::of_variable(&value)).or_else(Sink::of_node);
    LOG.with_borrow_mut(|log| {
        log.begin = Some(begin);
        log.decide(sink);
    });
}

/// Begins it if the network asks for one, and neither environment nor node has decided.
pub(crate) fn begin_for(network: Option<&str>) {
    LOG.with_borrow_mut(|log| {
        if let (Some(_), None, Some(value)) = (log.begin, &log.sink, network) {
            log.decide(Sink::of_network(value).or(Some(Sink::Off)));
        }
    });
}

impl Log {
    fn decide(&mut self, sink: Option<Sink>) {
        self.sink = sink;
        if let (Some(begin), true) = (self.begin, self.is_on()) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.begin_us = micros(now.saturating_sub(begin.elapsed()));
        }
    }

    fn is_on(&self) -> bool {
        self.sink.as_ref().is_some_and(Sink::is_on)
    }
}

/// When the call began, in microseconds since 1970, if it is recorded: what calls that it makes are part of.
pub(crate) fn begin_us() -> Option<u64> {
    LOG.with_borrow(|log| log.is_on().then_some(log.begin_us))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A step of the call under way, for its record.
#[must_use = "it is noted when it ends"]
pub struct Timer(Option<Instant>);

impl Timer {
    /// Begins a step. It costs nothing if the call is not recorded.
    pub fn start() -> Self {
        let is_on = LOG.with_borrow(|log| log.is_on());
        Self(is_on.then(Instant::now))
    }

    /// Notes the step: what was done, and how long it took. A step that failed is noted, too.
    pub fn end(self, what: &str) {
        self.end_of(&[what]);
    }

    /// As [`Timer::end`], of a text in parts.
    pub(crate) fn end_of(self, what: &[&str]) {
        let Some(begin) = self.0 else { return };
        let us = micros(begin.elapsed());
        LOG.with_borrow_mut(|log| {
            if log.steps.len() < STEPS_MAX {
                log.steps.push(Step { what: what.concat(), us });
            }
        });
    }
}

/// The record of a call whose reply is known, and where it goes; `None` if none is wanted.
pub(crate) fn of(plugin: &str, call: &Call, reply: &Reply) -> Option<Ended> {
    let begin_us = begin_us()?;
    let (begin, sink) = LOG.with_borrow(|log| Some((log.begin?, log.sink.clone()?)))?;
    let stdin = call.find_stdin().and_then(|stdin| json::parse(&stdin).ok()).unwrap_or_default();
    let stdout = json::parse(&reply.stdout).unwrap_or_default();
    let text = |name: &str| json::member(&stdin, name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let failed = || match CniError::find_in(&reply.stdout) {
        Some(error) => (error.code.0, error.msg),
        None => (Code::INTERNAL.0, "no error object".to_owned()),
    };
    let record = Record {
        by: By::Plugin,
        begin_us,
        within_us: Environment::find_log(LogVariable::Within).and_then(|text| text.parse().ok()),
        verb: call.env.command.clone(),
        network: text("name"),
        container: call.env.container_id.clone(),
        ifname: call.env.ifname.clone(),
        plugin: plugin.to_owned(),
        addresses: addresses(&stdout),
        error: (reply.exit != 0).then(failed),
        traceparent: Environment::find_log(LogVariable::Trace),
        ..Record::default()
    };
    Some(Ended { sink, begin, record })
}

fn addresses(result: &Value) -> Vec<String> {
    let lists = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
    let first_form = ["ip4", "ip6"].into_iter().map(|family| &result[family]["ip"]);
    lists.chain(first_form).filter_map(|address| Some(address.as_str()?.to_owned())).collect()
}

pub(crate) struct Ended {
    sink: Sink,
    begin: Instant,
    record: Record,
}

impl Ended {
    /// Writes it. `is_unsent`: the reply could not be written.
    pub(crate) fn write(mut self, is_unsent: bool) {
        if is_unsent {
            self.record.addresses.clear();
            self.record.error = Some((Code::IO.0, "cannot write the reply to stdout".to_owned()));
        }
        self.record.duration_us = micros(self.begin.elapsed());
        self.record.steps = LOG.with_borrow_mut(|log| std::mem::take(&mut log.steps));
        self.sink.write(&self.record);
    }
}
