//! Warnings of a plugin's parser: what it accepts, and an operator most likely did not mean. Keys themselves are checked in
//! `one_file.rs`, which asks for these.
//!
//! A parser logs such a warning with the key as the field that has the value.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A warning about the value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Warning {
    pub(crate) message: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Visit for Warning {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            key => (self.key, self.value) = (key.to_owned(), format!("{value:?}")),
        }
    }
}

/// Takes the warnings of the calling thread, in place of the program's own log.
#[derive(Default, Clone)]
struct Listener(Arc<Mutex<Vec<Warning>>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut warning = Warning::default();
        event.record(&mut warning);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Calls a parser, and returns its warnings as well.
pub(crate) fn listen<T>(parse: impl FnOnce() -> T) -> (T, Vec<Warning>) {
    let listener = Listener::default();
    let parsed = tracing::subscriber::with_default(listener.clone(), parse);
    let warnings = std::mem::take(&mut *listener.0.lock().unwrap_or_else(PoisonError::into_inner));
    (parsed, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_its_key_and_value_and_reaches_no_other_log() {
        let ((), outer) = listen(|| {
            let (parsed, warnings) = listen(|| {
                tracing::warn!(backend = "x", "unknown");
                tracing::info!("not a warning");
                5
            });
            let warning = Warning { message: "unknown".into(), key: "backend".into(), value: "\"x\"".into() };
            assert_eq!((parsed, warnings), (5, vec![warning]));
        });
        assert_eq!(outer, []);
    }
}
