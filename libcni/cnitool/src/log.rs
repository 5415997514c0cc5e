//! What `libcni` logs, on stderr: a line an event. Spans are not shown, so none is remembered.

use std::fmt::Debug;
use std::io::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Shows warnings and errors, and with `verbose` each call of a plugin.
pub(crate) fn start(verbose: bool) {
    let most = if verbose { Level::DEBUG } else { Level::WARN };
    if let Err(error) = tracing::subscriber::set_global_default(Stderr { most }) {
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

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.most
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let label = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        // Nobody is left to tell when stderr is closed.
        drop(io::stderr().write_all(format!("{label}{}{}\n", line.message, line.fields).as_bytes()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
