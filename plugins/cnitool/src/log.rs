//! `cnitool log`: the log of calls, read back.

pub(crate) mod read_back;

use crate::args::Log;
use crate::error_remedies::refused;
use crate::explain::similar;
use crate::log::read_back::Want;
use crate::output::{Output, Table, escaped, pod_entries, say};
use crate::settings::Settings;
use crate::settings::container_id_and_netns::one_of;
use anyhow::Context;
use call_log::{By, NODE_FILE, Record, Sink, Step};
use cni_suite::text::visible;
use libcni::cni_spec::{Code, ContainerId};
use on_node::pod_names::Names;
use read_back::{Counts, Filter, LogPosition};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

pub(crate) async fn run(settings: &Settings, words: &Log, output: Output) -> anyhow::Result<()> {
    let log = find(words.from.as_deref())?;
    let names = settings.names();
    let container = words.container.as_deref().map(|word| identified(&names, word)).transpose()?;
    let since = words.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let filter = Filter {
        container: container.as_deref(),
        network: words.network.as_deref(),
        verb: words.verb.as_deref(),
        since_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        errors: words.errors,
    };
    let lines = words.lines.unwrap_or(if words.since.is_some() { LINES_MAX } else { LINES });
    if words.slowest {
        let mut slowest = Slowest { filter, lines, steps: Vec::new() };
        LogPosition::default().read_on(&log, &mut slowest).await?;
        keep_slowest(&mut slowest.steps, lines);
        return output.table(&steps(slowest.steps).named(names));
    }
    let end = LogPosition::at_end(&log);
    let mut last = Last::new(lines);
    let each = |record| if filter.is_past(&record) { ControlFlow::Break(()) } else { last.add(record, &filter) };
    let others = match read_back::read_back(&log, &filter, each).await {
        // Who waits for calls may have come before the first.
        Err(_) if words.follow && matches!(&log, Sink::File(path) if !path.exists()) => 0,
        read => read?,
    };
    let last = flat(last.into_calls());
    if let Some(word) = words.container.as_deref().filter(|_| last.is_empty() && !words.follow) {
        let is_known = !names.find(word).is_empty();
        let meant = if is_known { String::new() } else { similar(settings, word) };
        let which = if words.errors { "failed call" } else { "call" };
        output.note(format!("{log} has no {which} of container {word}. {meant}", log = shown(&log)).trim_end());
    }
    let is_whole = words.container.is_none() && !words.errors && words.network.is_none() && words.verb.is_none();
    if is_whole && last.is_empty() && others > 0 {
        let lines = if others == 1 { "its line is none".to_owned() } else { format!("its {others} lines are none") };
        output.note(&format!("{log} has no record of a call: {lines}", log = shown(&log)));
    }
    if words.follow {
        let printed = last.iter().map(|(_, record)| record.clone()).collect();
        let mut follower = Follower { filter, settings, output, printed, failed: None };
        last.iter().for_each(|(_, record)| follower.print(record));
        read_back::follow(&log, end, &mut follower).await?;
        return follower.failed.map_or(Ok(()), Err);
    }
    match output.is_json {
        true => output.json(&last.iter().map(|(_, record)| to_json(record, &names)).collect()),
        false => output.table(&table(&last).named(names)),
    }
}

/// Calls that are shown if the caller names no number.
const LINES: usize = 20;
/// Calls that are shown at most of a time.
const LINES_MAX: usize = 1_000_000;

/// The ID of the container that a word names. One that the cache does not have is looked for in the log, by its ID.
fn identified(names: &Names, word: &str) -> anyhow::Result<String> {
    Ok(one_of(names, word)?.map_or_else(|| word.to_owned(), |id| id.to_string()))
}

/// Prints each call as its record comes: a line, or an object on one.
struct Follower<'a> {
    filter: Filter<'a>,
    settings: &'a Settings,
    output: Output,
    /// The records that were printed before the log was followed: some may come again.
    printed: Vec<Record>,
    /// Why no more can be printed.
    failed: Option<anyhow::Error>,
}

impl Follower<'_> {
    fn print(&mut self, record: &Record) {
        // A container that has come since has a name, too.
        let names = self.settings.names();
        let line = match self.output.is_json {
            true => escaped(&to_json(record, &names).to_string()),
            false => cells(0, record, &names).join("  "),
        };
        self.failed = self.failed.take().or(say(format!("{line}\n").as_bytes()).err());
    }
}

impl Counts for Follower<'_> {
    fn begin(&mut self) {
        self.printed.clear();
    }

    fn add(&mut self, record: Record) {
        if self.failed.is_none() && self.filter.takes(&record) && !self.printed.contains(&record) {
            self.print(&record);
        }
    }

    fn is_done(&self) -> bool {
        self.failed.is_some()
    }
}

/// The slowest steps of all calls that a filter takes.
struct Slowest<'a> {
    filter: Filter<'a>,
    lines: usize,
    steps: Vec<Slow>,
}

impl Counts for Slowest<'_> {
    fn begin(&mut self) {
        self.steps.clear();
    }

    fn add(&mut self, record: Record) {
        if self.filter.takes(&record) {
            self.steps.extend(record.steps.iter().map(|step| Slow::of(&record, step)));
        }
        if self.steps.len() > self.lines.saturating_mul(2).saturating_add(1000) {
            keep_slowest(&mut self.steps, self.lines);
        }
    }
}

struct Slow {
    us: u64,
    /// The step; time, verb, plugin, network and container of its call.
    cells: [String; 6],
}

impl Slow {
    fn of(record: &Record, step: &Step) -> Self {
        let cells = [&step.what, &time(record), &record.verb, who(record), &record.network, &record.container];
        Self { us: step.us, cells: cells.map(visible) }
    }
}

/// Stable: of equal steps the earlier is first.
fn keep_slowest(steps: &mut Vec<Slow>, count: usize) {
    steps.sort_by_key(|step| std::cmp::Reverse(step.us));
    steps.truncate(count);
}

/// The log that is named, or the one that calls are written to.
pub(crate) fn find(named: Option<&str>) -> anyhow::Result<Sink> {
    let is_readable = |sink: &Sink| matches!(sink, Sink::Journal | Sink::File(_));
    if let Some(named) = named {
        let sink = Sink::of_words(named).filter(is_readable);
        return sink
            .with_context(|| format!("cannot read log {named}: it is named by journal, file, or an absolute path"));
    }
    #[expect(clippy::disallowed_methods, reason = "this program is no plugin, and has an option besides")]
    let variable = std::env::var("CNI_LOG").ok().and_then(|value| Sink::of_words(&value));
    variable.or_else(Sink::of_node).filter(is_readable).ok_or_else(|| {
        let help =
            format!("Write the word journal into {NODE_FILE} to have later calls logged, or name a log by --from.");
        refused(Code::INVALID_ENVIRONMENT, "calls of this node are not logged to the journal or a file", help)
    })
}

fn shown(log: &Sink) -> String {
    match log {
        Sink::File(path) => format!("log {}", path.display()),
        _ => "the journal".to_owned(),
    }
}

fn time(record: &Record) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(record.begin_us)).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ms(us: u64) -> String {
    format!("{:.1}", us as f64 / 1000.0)
}

/// The plugin, or the runtime.
fn who(record: &Record) -> &str {
    match record.by {
        By::Plugin => &record.plugin,
        By::Runtime => "(runtime)",
    }
}

/// A part of a call comes below it, and its plugin to the right.
fn table(records: &[(usize, Record)]) -> Table {
    let mut table = Table::new(&["time", "verb", "plugin", "network", "container", "ifname", "ms", "result"]);
    for (depth, record) in records {
        table.row(cells(*depth, record, &Names::default()).map(Value::String));
    }
    table
}

/// A file may come from elsewhere: nothing of it may act on a terminal.
fn cells(depth: usize, record: &Record, names: &Names) -> [String; 8] {
    let result = match &record.error {
        Some((code, msg)) => format!("error {code}: {msg}"),
        None if record.addresses.is_empty() => "ok".to_owned(),
        None => record.addresses.join(" "),
    };
    let container = ContainerId::parse(&record.container).ok().filter(|id| names.find_pod(id).is_some());
    let cells = [
        &time(record),
        &record.verb,
        &["  ".repeat(depth).as_str(), who(record)].concat(),
        &record.network,
        &container.map_or_else(|| record.container.clone(), |id| names.name(&id)),
        &record.ifname,
        &ms(record.duration_us),
        &result.replace('\n', " "),
    ];
    cells.map(|text| visible(text))
}

fn steps(slowest: Vec<Slow>) -> Table {
    let mut table = Table::new(&["ms", "step", "time", "verb", "plugin", "network", "container"]);
    for Slow { us, cells } in slowest {
        let [what, time, verb, plugin, network, container] = cells.map(Value::String);
        table.row([json!(ms(us)), what, time, verb, plugin, network, container]);
    }
    table
}

fn to_json(record: &Record, names: &Names) -> Value {
    let by = match record.by {
        By::Plugin => "plugin",
        By::Runtime => "runtime",
    };
    let [(_, pod), (_, namespace)] = pod_entries(names, &record.container);
    json!({
        "time": time(record), "by": by, "verb": record.verb, "plugin": record.plugin, "network": record.network,
        "container": record.container, "pod": pod, "namespace": namespace, "ifname": record.ifname, "beginUs": record.begin_us, "withinUs": record.within_us,
        "durationUs": record.duration_us,
        "steps": record.steps.iter().map(|step| json!({ "step": step.what, "us": step.us })).collect::<Value>(),
        "addresses": record.addresses,
        "error": record.error.as_ref().map(|(code, msg)| json!({ "code": code, "msg": msg })),
        "traceparent": record.traceparent,
    })
}

/// Calls that wait for the record of the one they are part of. That is written last, or never, if its process was killed.
const WAITING_MAX: usize = 1000;
/// A number above the parts that a call has: an operation has one for each plugin, and these have one for each delegate.
const PARTS_MAX: usize = 64;

pub(crate) struct NestedCall {
    pub(crate) record: Record,
    pub(crate) parts: Vec<NestedCall>,
}

/// The last calls of a log, which is read from its end; their parts do not count.
pub(crate) struct Last {
    count: usize,
    /// The newest first.
    records: Vec<Record>,
    /// The number of calls that are part of no other.
    wholes: usize,
    /// When the earliest of the last `count` of these began.
    begin_us: u64,
}

impl Last {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, records: Vec::new(), wholes: 0, begin_us: u64::MAX }
    }

    /// Adds the record before, if the filter takes it. Breaks where all that belongs to the last calls was added: a part is
    /// written after the whole began.
    pub(crate) fn add(&mut self, record: Record, filter: &Filter<'_>) -> ControlFlow<(), Want> {
        let has_all = self.wholes >= self.count;
        if has_all && end_us(&record) < self.begin_us || self.records.len() >= self.records_max() {
            return ControlFlow::Break(());
        }
        if filter.takes(&record) {
            if record.within_us.is_none() {
                self.wholes += 1;
                self.begin_us = if has_all { self.begin_us } else { self.begin_us.min(record.begin_us) };
            }
            self.records.push(record);
        }
        ControlFlow::Continue(if self.wholes >= self.count { Want::Any } else { Want::Taken })
    }

    fn records_max(&self) -> usize {
        self.count.saturating_mul(PARTS_MAX).saturating_add(WAITING_MAX)
    }

    /// The calls in the order in which they ended. A part whose whole left no record is a call of its own.
    pub(crate) fn into_calls(self) -> Vec<NestedCall> {
        let (mut calls, mut waiting): (Vec<NestedCall>, Vec<NestedCall>) = (Vec::new(), Vec::new());
        for record in self.records.into_iter().rev() {
            let is_part = |call: &mut NestedCall| {
                call.record.within_us == Some(record.begin_us) && call.record.container == record.container
            };
            let parts = waiting.extract_if(.., is_part).collect();
            let is_whole = record.within_us.is_none();
            let call = NestedCall { record, parts };
            if is_whole {
                calls.push(call)
            } else {
                waiting.push(call)
            }
            if waiting.len() > WAITING_MAX {
                calls.push(waiting.remove(0));
            }
        }
        calls.append(&mut waiting);
        calls.sort_by_key(|call| end_us(&call.record));
        calls.split_off(calls.len().saturating_sub(self.count))
    }
}

fn end_us(record: &Record) -> u64 {
    record.begin_us.saturating_add(record.duration_us)
}

/// Each call before its parts, with its depth.
pub(crate) fn flat(calls: Vec<NestedCall>) -> Vec<(usize, Record)> {
    let mut rows = Vec::new();
    push(calls, 0, &mut rows);
    rows
}

fn push(calls: Vec<NestedCall>, depth: usize, rows: &mut Vec<(usize, Record)>) {
    for NestedCall { record, parts } in calls {
        rows.push((depth, record));
        push(parts, depth + 1, rows);
    }
}
