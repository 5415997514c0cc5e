//! Logs: a line for each step on stderr, which the runtime collects.

use std::io::{self, Write};
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::env::Environment;

/// Starts logging to stderr, at the level of `CNI_LOG` and without colours. A second start changes nothing.
pub(crate) fn start() {
    start_at(Level::WARN);
}

/// As the plugins log, for a program that is none: at the level of `CNI_LOG`, or at `level` without it.
pub fn start_at(level: Level) {
    let log = Log { level: Environment::find_log_level().unwrap_or(level), lines: OnceLock::new() };
    if tracing::subscriber::set_global_default(log).is_err() {
        tracing::debug!("another subscriber is installed already");
    }
}

/// The log, created at the first message: most calls have none, and its tables take a tenth of their time.
struct Log {
    level: Level,
    lines: OnceLock<Box<dyn Subscriber + Send + Sync>>,
}

impl Log {
    fn lines(&self) -> &dyn Subscriber {
        self.lines.get_or_init(|| {
            let lines = tracing_subscriber::fmt().with_writer(|| Escaping).with_max_level(self.level);
            // That a line cannot be written would be said on stderr, too, by a macro that panics where that cannot be written.
            let lines = lines.log_internal_errors(false);
            Box::new(lines.with_ansi(false).with_target(false).without_time().finish())
        })
    }
}

/// stderr, with control characters escaped: a value may be another program's, such as a rule's comment, and a terminal that shows
/// the line would obey it.
struct Escaping;

impl Write for Escaping {
    /// Writes one line, with its end.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(escaped(&String::from_utf8_lossy(line)).as_bytes()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn escaped(line: &str) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    let mut escaped = String::with_capacity(line.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped + end
}

/// Only the level is decided here.
impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.lines().new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.lines().record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.lines().record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.lines().event(event);
    }

    fn enter(&self, span: &Id) {
        self.lines().enter(span);
    }

    fn exit(&self, span: &Id) {
        self.lines().exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.lines().clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.lines().try_close(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_value_are_escaped() {
        assert_eq!(
            escaped(" WARN held by \u{1b}[2J\r\nZürich\t\u{9b}1m\n"),
            " WARN held by \\u{1b}[2J\\r\\nZürich\\t\\u{9b}1m\n"
        );
    }
}
