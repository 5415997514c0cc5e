//! What `libcni` logs, on stderr: a line an event, with the fields of the spans it is in.

use std::fmt::Debug;
use std::io::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Shows warnings and errors, and with `verbose` each call of a plugin.
pub(crate) fn start(verbose: bool) {
    let most = if verbose { Level::DEBUG } else { Level::WARN };
    if let Err(error) = tracing::subscriber::set_global_default(Registry::default().with(Stderr { most })) {
        // Nobody is left to tell when stderr is closed.
        drop(writeln!(io::stderr(), "warning: nothing will be logged: {error}"));
    }
}

struct Stderr {
    most: Level,
}

/// An event's message, and its other fields after it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push_str(&format!(" {name}={value:?}")),
        }
    }
}

/// What is remembered of a span.
struct SpanFields(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.level() <= &self.most
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
                line.fields.push_str(fields);
            }
        }
        let label = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        // Nobody is left to tell when stderr is closed.
        drop(io::stderr().write_all(format!("{label}{}{}\n", line.message, line.fields).as_bytes()));
    }
}
