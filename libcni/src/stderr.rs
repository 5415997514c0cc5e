//! The plugins' stderr: streamed as it comes, with the call that it belongs to.

use cni_spec::Command;
use cni_spec::exec::{CallEnv, Stderr};
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// The call that a piece of stderr belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// `type` of the plugin.
    pub plugin: String,
    /// The verb.
    pub command: Command,
    /// The container; empty for GC, STATUS and VERSION.
    pub container_id: String,
    /// The interface; empty for GC, STATUS and VERSION.
    pub ifname: String,
}

/// Receives a plugin's stderr, in pieces that need not be lines.
type Sink = dyn Fn(&Origin, &[u8]) + Send + Sync;

#[derive(Clone)]
pub(crate) struct StderrTo(Arc<Sink>);

impl StderrTo {
    pub(crate) fn sink(sink: impl Fn(&Origin, &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// The process's own stderr.
    pub(crate) fn own() -> Self {
        Self::sink(|_, bytes| {
            // If stderr itself is closed, the error cannot be reported.
            drop(std::io::stderr().write_all(bytes));
        })
    }

    pub(crate) fn of(&self, plugin: &str, command: Command, env: &CallEnv) -> Stderr {
        let origin = Origin {
            plugin: plugin.to_owned(),
            command,
            container_id: env.container_id.clone(),
            // VERSION is called with a placeholder.
            ifname: if command == Command::Version { String::new() } else { env.ifname.clone() },
        };
        let sink = self.0.clone();
        Stderr::To(Box::new(move |bytes| sink(&origin, bytes)))
    }
}

impl fmt::Debug for StderrTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StderrTo")
    }
}
