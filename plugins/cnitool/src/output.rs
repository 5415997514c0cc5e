//! Output: results on stdout, everything else on stderr.

use crate::error_remedies::with_remedy;
use crate::progress_line;
use crate::tree_text::{COLUMNS, COLUMNS_MAX};
use anyhow::Context;
use cni_suite::text::{self, visible, visible_lines, without_numbers};
use libcni::Error;
use libcni::cni_spec::{CniError, Code, ContainerId, SpecVersion, json as cni_json};
use on_node::pod_names::Names;
use serde_json::{Map, Value};
use std::io::{self, Write};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
}

/// Writes to stdout. A closed stdout is an error like any other, not a panic.
pub(crate) fn say(bytes: &[u8]) -> anyhow::Result<()> {
    progress_line::clear();
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// A number of things in words: `1 file`, `2 files`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Whether what reads stdout takes colours.
pub(crate) fn has_colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Columns for text: a terminal's, but no more than what is read well, and no fewer than what a name needs.
pub(crate) fn columns() -> usize {
    let terminal = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if terminal == 0 { COLUMNS } else { terminal.clamp(20, COLUMNS_MAX) }
}

/// Whether stdout is a pipe that nothing reads any more.
pub(crate) fn is_pipe_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// JSON whose texts have escapes for what would act on a terminal, and is no control character to JSON: those of ISO 6429
/// beyond ASCII, and those that change the direction of text. They occur in texts only.
pub(crate) fn escaped(json: &str) -> String {
    let acts = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        match acts(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
        text
    })
}

pub(crate) struct Table {
    /// The names by which the column `container` is written for people; programs get the whole IDs.
    names: Names,
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

impl Table {
    pub(crate) fn new(columns: &'static [&'static str]) -> Self {
        Self { names: Names::default(), columns, rows: Vec::new() }
    }

    /// The table with names for the containers in its column `container`.
    pub(crate) fn named(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Value; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into());
    }

    /// An array of objects.
    fn to_json(&self) -> Value {
        let object = |row: &Vec<Value>| {
            let mut object = Map::new();
            for (column, value) in self.columns.iter().zip(row) {
                object.insert((*column).to_owned(), value.clone());
                if *column == "container" {
                    object.extend(pod_entries(&self.names, value.as_str().unwrap_or_default()));
                }
            }
            Value::Object(object)
        };
        self.rows.iter().map(object).collect()
    }

    /// Lines of comma-separated values (RFC 4180), the columns' names first.
    pub(crate) fn to_csv(&self) -> String {
        let quoted = |text: String| match text.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        };
        let plain = |value: &Value| if value.is_null() || value == "" { String::new() } else { cell(value) };
        let head = self.columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>();
        let rows = self.rows.iter().map(|row| row.iter().map(plain).map(quoted).collect());
        std::iter::once(head).chain(rows).map(|cells| format!("{}\r\n", cells.join(","))).collect()
    }

    fn to_text(&self) -> String {
        let head: Vec<String> = self.columns.iter().map(|column| column.to_uppercase()).collect();
        let mut names = self.names.clone();
        let id = |place: usize, value: &Value| match self.columns.get(place) {
            Some(&"container") => value.as_str().and_then(|text| ContainerId::parse(text).ok()),
            _ => None,
        };
        for (place, value) in self.rows.iter().flat_map(|row| row.iter().enumerate()) {
            id(place, value).into_iter().for_each(|id| names.add(&id, None));
        }
        let shown = |(place, value): (usize, &Value)| {
            id(place, value).map_or_else(|| cell(value), |id| visible(&names.name(&id)))
        };
        let rows = self.rows.iter().map(|row| row.iter().enumerate().map(shown).collect());
        text::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    }
}

/// The pod of a container for programs: its name and its namespace, null where they are not known.
pub(crate) fn pod_entries(names: &Names, container: &str) -> [(String, Value); 2] {
    let pod = ContainerId::parse(container).ok().and_then(|id| names.find_pod(&id));
    let known =
        |text: Option<&String>| text.filter(|text| !text.is_empty()).map_or(Value::Null, |text| text.clone().into());
    [("pod", known(pod.map(|pod| &pod.name))), ("namespace", known(pod.map(|pod| &pod.namespace)))]
        .map(|(key, value)| (key.to_owned(), value))
}

/// Characters that a cell shows at most. Names and addresses are shorter; what is longer is damaged, and JSON has it whole.
const CELL_CHARACTERS_MAX: usize = 1000;

fn cell(value: &Value) -> String {
    let text = cell_text(value);
    match text.char_indices().nth(CELL_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => visible(text),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

impl Output {
    pub(crate) fn table(self, table: &Table) -> anyhow::Result<()> {
        if self.is_json {
            return self.json(&table.to_json());
        }
        if table.rows.is_empty() {
            return Ok(());
        }
        say(table.to_text().as_bytes())
    }

    pub(crate) fn json(self, value: &Value) -> anyhow::Result<()> {
        say(format!("{}\n", escaped(&cni_json::to_text(value))).as_bytes())
    }

    pub(crate) fn note(self, text: &str) {
        let line = match self.is_json {
            true => escaped(&serde_json::json!({ "level": "info", "msg": text }).to_string()),
            false => visible(&format!("note: {text}")),
        };
        progress_line::clear();
        // If stderr is closed, the note cannot be shown.
        drop(writeln!(io::stderr(), "{line}"));
    }

    /// An error with its causes, and below it what else is known: how it was left, and what to do. As JSON, an error object on
    /// one line: code, message and details apart.
    pub(crate) fn error(self, error: &anyhow::Error) {
        let object = to_cni_error(error);
        let text = if self.is_json { one_line(&object) } else { without_numbers(&for_people(&object)) };
        let text = if self.is_json { escaped(&text) } else { visible_lines(&text) };
        progress_line::clear();
        // If stderr is closed, the error cannot be reported.
        drop(writeln!(io::stderr(), "{text}"));
    }
}

/// The error object of an error, with the context added to its message, and with what is to be done; 999 where no table has a code.
pub(crate) fn to_cni_error(error: &anyhow::Error) -> CniError {
    let object = error.downcast_ref::<Error>().map(of_runtime).or_else(|| error.downcast_ref().cloned());
    let Some(inner) = object else {
        return with_remedy(CniError::new(Code::INTERNAL, format!("{error:#}")), error);
    };
    let is_inner = |cause: &(dyn std::error::Error + 'static)| cause.is::<Error>() || cause.is::<CniError>();
    let before = error.chain().take_while(|cause| !is_inner(*cause)).map(|cause| format!("{cause}: "));
    with_remedy(CniError { msg: before.chain([inner.msg]).collect(), ..inner }, error)
}

fn of_runtime(error: &Error) -> CniError {
    let has_ignored = matches!(error, Error::NoNetwork { passed_over, .. } if !passed_over.is_empty());
    let help = if has_ignored { "cnitool validate shows the place of each fault." } else { "" };
    error.to_cni_error().detail(help)
}

/// An error as `validate` and `doctor` write their findings.
fn for_people(CniError { msg, details, .. }: &CniError) -> String {
    let below: String = details.lines().map(|line| format!("\n  {}", line.trim())).collect();
    format!("error: {}{below}", msg.trim_end())
}

fn one_line(error: &CniError) -> String {
    let text = error.to_json(SpecVersion::LATEST);
    serde_json::from_str::<Value>(&text).map_or(text, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_any_length_is_printed() {
        let mut table = Table::new(&["name", "addresses"]);
        table.row([Value::from("\u{e4}".repeat(70_000)), vec!["10.0.0.1"; 100_000].into()]);
        let text = table.to_text();
        assert!(text.lines().all(|line| line.chars().count() < 2100), "{}", text.len());
        assert!(text.contains("..."));
    }

    #[test]
    fn json_does_not_act_on_a_terminal() {
        let value = Value::from("a\u{9b}31m\u{202e}\u{1b}\u{7f}\u{e4}");
        let text = escaped(&cni_json::to_text(&value));
        assert_eq!(text, "\"a\\u009b31m\\u202e\\u001b\\u007f\u{e4}\"");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
