//! Logs: a line for each step on stderr, which the runtime collects.

use std::io::{self, Write};
use std::sync::OnceLock;

use cni_suite::text::visible;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::env::Environment;

/// Starts logging to stderr, at the level of `CNI_LOG` and without colours. A second start changes nothing.
pub(crate) fn start() {
    start_at(Level::WARN);
}

/// Logs as the plugins do, for a program that is none: at the level of `CNI_LOG`, or at `level` without it.
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
            let lines = tracing_subscriber::fmt().with_writer(|| Visible(std::io::stderr())).with_max_level(self.level);
            // An unwritable line would be reported on stderr, too, by a macro that panics if stderr cannot be written.
            let lines = lines.log_internal_errors(false);
            Box::new(lines.with_ansi(false).with_target(false).without_time().finish())
        })
    }
}

/// Writes each event as one line, in which nothing acts on a terminal: a value may come from a container or a file.
struct Visible<W>(W);

impl<W: Write> Write for Visible<W> {
    /// Takes a whole event, with its line feed, as `tracing_subscriber::fmt` writes it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = visible(text.strip_suffix('\n').unwrap_or(&text));
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
    use std::io::Read;

    #[test]
    fn an_event_is_one_line_that_does_not_act_on_a_terminal() {
        let (mut reader, writer) = io::pipe().unwrap();
        let lines = tracing_subscriber::fmt().with_writer(move || Visible(writer.try_clone().unwrap()));
        let lines = lines.without_time().with_ansi(false);
        tracing::subscriber::with_default(lines.with_target(false).finish(), || {
            tracing::warn!(network = %"a\u{1b}[2J", "key \u{9b}x\u{202e}\r\nis unknown");
            tracing::warn!("second");
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains(|c: char| c != '\n' && cni_suite::text::acts(c)), "{text:?}");
        assert!(text.contains("u{202e}") && text.ends_with("WARN second\n"), "{text}");
    }
}
