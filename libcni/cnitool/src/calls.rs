//! `cnitool log`: the log of calls, read back.

mod nested;

use crate::args::Log;
use crate::output::{Output, Table};
use anyhow::{Context, anyhow, bail};
use call_log::{By, DEFAULT_FILE, NODE_FILE, Record, Sink, Step};
use nested::Calls;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;
use validate::render::visible;

/// A longer line is no record.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// How long the journal's program may take for its next line.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(words: &Log, output: Output) -> anyhow::Result<()> {
    let log = find(words.from.as_deref())?;
    let is_wanted = |record: &Record| {
        words.container.as_ref().is_none_or(|container| record.container == *container)
            && (!words.errors || record.has_failed())
    };
    let mut last = Calls::new(words.lines);
    let mut slowest = Vec::new();
    read(&log, |record| {
        if !is_wanted(&record) {
            return;
        }
        if words.slowest {
            slowest.extend(record.steps.iter().map(|step| Slow::of(&record, step)));
            if slowest.len() > words.lines.saturating_mul(2).saturating_add(1000) {
                keep_slowest(&mut slowest, words.lines);
            }
            return;
        }
        last.add(record);
    })
    .await?;
    if words.slowest {
        keep_slowest(&mut slowest, words.lines);
        return output.table(&steps(slowest));
    }
    let last = nested::flat(last.into_last());
    match output.is_json {
        true => output.json(&last.iter().map(|(_, record)| to_json(record)).collect()),
        false => output.table(&table(&last)),
    }
}

/// A step, and the call that it is part of.
struct Slow {
    us: u64,
    /// What was done; time, verb, plugin, network and container of the call.
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
///
/// # Errors
/// None is set, or what is named is none.
pub(crate) fn find(named: Option<&str>) -> anyhow::Result<Sink> {
    let is_readable = |sink: &Sink| matches!(sink, Sink::Journal | Sink::File(_));
    if let Some(named) = named {
        let sink = Sink::of_variable(named).filter(is_readable);
        return sink.with_context(|| format!("cannot read log {named}: want journal, file, or an absolute path"));
    }
    #[expect(clippy::disallowed_methods, reason = "this program is no plugin, and has an option besides")]
    let variable = std::env::var("CNI_LOG").ok().and_then(|value| Sink::of_variable(&value));
    variable.or_else(Sink::of_node).filter(is_readable).ok_or_else(|| {
        anyhow!(
            "calls are not logged to the journal or a file: write journal into {NODE_FILE}, or name a log with --from"
        )
    })
}

/// Reads a log from its beginning, the oldest record first. Lines that are no records are passed over.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn read(log: &Sink, each: impl FnMut(Record)) -> anyhow::Result<()> {
    match log {
        Sink::Journal => read_journal(each).await,
        Sink::File(path) => read_file(path, each).with_context(|| format!("cannot read log {}", path.display())),
        Sink::Off | Sink::Stderr => {
            bail!("cannot read log: it is neither the journal nor a file such as {DEFAULT_FILE}")
        }
    }
}

fn read_file(path: &Path, mut each: impl FnMut(Record)) -> std::io::Result<()> {
    // No pipe or device, and only what is there now: other calls go on writing.
    let file = libcni::regular::open(path)?;
    let length = file.metadata()?.len();
    let mut lines = BufReader::new(file.take(length));
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        each_in(&line, &mut each);
    }
}

/// Records of root's processes only: any user can send such fields to the journal, but not choose `_UID`.
async fn read_journal(mut each: impl FnMut(Record)) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new("journalctl");
    command.args(["--output=json", "--all", "--no-pager", "--quiet", "--boot", "SYSLOG_IDENTIFIER=cni", "_UID=0"]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut child = started.context("cannot read the journal: cannot run journalctl")?;
    let stdout = child.stdout.take().context("cannot read the journal")?;
    let mut lines = tokio::io::BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut lines).take(LINE_BYTES_MAX);
        let read = timeout(JOURNAL_PATIENCE, bounded.read_until(b'\n', &mut line)).await;
        if read.context("cannot read the journal: journalctl is silent")?? == 0 {
            break;
        }
        each_in(&line, &mut each);
    }
    let status = timeout(JOURNAL_PATIENCE, child.wait()).await.context("journalctl does not end")??;
    if !status.success() {
        bail!("cannot read the journal: journalctl failed: {status}");
    }
    Ok(())
}

fn each_in(line: &[u8], each: &mut impl FnMut(Record)) {
    let record = std::str::from_utf8(line).ok().and_then(Record::parse);
    record.into_iter().for_each(each);
}

/// When, to the millisecond, in UTC.
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

/// A part of a call stands below it, and its plugin to the right.
fn table(records: &[(usize, Record)]) -> Table {
    let mut table = Table::new(&["time", "verb", "plugin", "network", "container", "ifname", "ms", "result"]);
    for (depth, record) in records {
        let result = match &record.error {
            Some((code, msg)) => format!("error {code}: {msg}"),
            None if record.addresses.is_empty() => "ok".to_owned(),
            None => record.addresses.join(" "),
        };
        // A file may come from elsewhere: nothing of it may act on a terminal.
        let shown = |text: &str| json!(visible(text));
        table.row([
            json!(time(record)),
            shown(&record.verb),
            shown(&["  ".repeat(*depth).as_str(), who(record)].concat()),
            shown(&record.network),
            shown(&record.container),
            shown(&record.ifname),
            json!(ms(record.duration_us)),
            shown(&result.replace('\n', " ")),
        ]);
    }
    table
}

fn steps(slowest: Vec<Slow>) -> Table {
    let mut table = Table::new(&["ms", "step", "time", "verb", "plugin", "network", "container"]);
    for Slow { us, cells } in slowest {
        let [what, time, verb, plugin, network, container] = cells.map(Value::String);
        table.row([json!(ms(us)), what, time, verb, plugin, network, container]);
    }
    table
}

fn to_json(record: &Record) -> Value {
    let by = match record.by {
        By::Plugin => "plugin",
        By::Runtime => "runtime",
    };
    json!({
        "time": time(record), "by": by, "verb": record.verb, "plugin": record.plugin, "network": record.network,
        "container": record.container, "ifname": record.ifname, "beginUs": record.begin_us, "withinUs": record.within_us,
        "durationUs": record.duration_us,
        "steps": record.steps.iter().map(|step| json!({ "step": step.what, "us": step.us })).collect::<Value>(),
        "addresses": record.addresses,
        "error": record.error.as_ref().map(|(code, msg)| json!({ "code": code, "msg": msg })),
        "traceparent": record.traceparent,
    })
}
