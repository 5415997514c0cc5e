//! The log of calls: one [`Record`] for each operation of a runtime, and for each call of a plugin, written to a [`Sink`].
//!
//! Logging is off unless the environment, the node or the network asks for it, and its failure never is one of the call.
//! No write waits: where the journal's queue is full, the record is dropped. README says who may set what, and why.
//!
//! ```
//! let record = call_log::Record { verb: "ADD".into(), container: "c1".into(), ..call_log::Record::default() };
//! assert!(record.fields().contains(&("CNI_CONTAINERID", "c1".into())));
//! ```

mod record;
mod setting;
mod sink;

pub use record::{By, Record, Step, WITHIN, is_traceparent};
pub use setting::{DEFAULT_FILE, NODE_FILE, WORDS};
pub use sink::Sink;
