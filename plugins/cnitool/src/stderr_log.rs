//! `libcni`'s log on stderr: a line for each event, with the fields of its spans.

use crate::output::escaped;
use crate::progress_line;
use cni_suite::text::{visible_lines, without_numbers};
use libcni::Origin;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::io::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Shows warnings and errors; of `verbose`, 1 shows each call of a plugin as well, and 2 all else; with `is_json` each as an object.
pub(crate) fn start(verbose: u8, is_json: bool) {
    let (most, requests) = match verbose {
        0 => (Level::WARN, Level::WARN),
        1 => (Level::DEBUG, Level::WARN),
        2.. => (Level::TRACE, Level::TRACE),
    };
    if let Err(error) =
        tracing::subscriber::set_global_default(Registry::default().with(Stderr { most, requests, is_json }))
    {
        // If stderr is closed, the error cannot be reported.
        drop(writeln!(io::stderr(), "warning: nothing will be logged: {error}"));
    }
}

struct Stderr {
    /// The level of messages about calls of plugins and operations.
    most: Level,
    /// The level of messages about this program's requests to the kernel.
    requests: Level,
    is_json: bool,
}

/// An event's message, and its other fields after it.
#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}").into())),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }
}

impl Line {
    fn to_text(&self, level: Level) -> String {
        let label = match level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let text = self.as_call().unwrap_or_else(|| {
            let (causes, others): (Vec<_>, Vec<_>) =
                self.fields.iter().partition(|(name, _)| ["error", "reason"].contains(name));
            let others: String = others.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            let causes = causes.iter().filter_map(|(_, value)| value.as_str()).map(|cause| format!(": {cause}"));
            format!("{}{others}{}", self.message, causes.collect::<String>())
        });
        format!("{label}{}\n", visible_lines(&without_numbers(&text)))
    }

    /// The end of a plugin's call or of an operation: what ran, on what, how it ended, and for how long it ran.
    fn as_call(&self) -> Option<String> {
        let field = |name: &str| self.fields.iter().find(|(have, _)| *have == name).map(|(_, value)| value);
        let text = |name: &str| field(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let ran = match self.message.as_str() {
            "plugin ended" => format!("plugin {} {}", text("plugin")?, text("command")?),
            "operation ended" => text("operation")?.to_owned(),
            _ => return None,
        };
        let attachment = text("container").zip(text("ifname")).map(|(id, ifname)| format!(" of {id}/{ifname}"));
        let network = text("network").map(|network| format!(" in network {network}"));
        let us = field("duration_us").and_then(Value::as_u64)?;
        let (attachment, network) = (attachment.unwrap_or_default(), network.unwrap_or_default());
        Some(format!("{ran}{attachment}{network}: {}, {}.{} ms", text("outcome")?, us / 1000, us / 100 % 10))
    }

    /// In the form of the error object: a line for each object.
    fn to_json(&self, level: Level) -> String {
        let level = level.as_str().to_ascii_lowercase();
        let own = [("level", level.into()), ("msg", self.message.clone().into())];
        let fields = own.into_iter().chain(self.fields.clone()).map(|(name, value)| (name.to_owned(), value));
        format!("{}\n", escaped(&Value::Object(fields.collect()).to_string()))
    }
}

struct SpanFields(Vec<(&'static str, Value)>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let is_trace = *metadata.level() > Level::INFO && !metadata.target().starts_with("libcni");
        metadata.level() <= if is_trace { &self.requests } else { &self.most }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(line.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        // The innermost span comes first.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.fields.extend(fields.clone());
            }
        }
        let level = *event.metadata().level();
        let text = if self.is_json { line.to_json(level) } else { line.to_text(level) };
        progress_line::clear();
        // If stderr is closed, the error cannot be reported.
        drop(io::stderr().write_all(text.as_bytes()));
    }
}

/// A plugin's stderr, as lines, or as one object for each line. A character that is cut in two between two pieces is shown
/// as one that cannot be read.
pub(crate) fn plugin_said(is_json: bool) -> impl Fn(&Origin, &[u8]) + Send + Sync + 'static {
    move |origin, bytes| {
        let text = String::from_utf8_lossy(bytes);
        let object = |line| json!({ "plugin": origin.plugin, "command": origin.command.as_str(), "msg": line });
        let shown = match is_json {
            true => text.lines().map(|line| format!("{}\n", escaped(&object(line).to_string()))).collect(),
            false => visible_lines(&text),
        };
        progress_line::clear();
        // If stderr is closed, that cannot be reported.
        drop(io::stderr().write_all(shown.as_bytes()));
    }
}
