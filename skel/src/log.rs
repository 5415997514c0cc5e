//! Logs: a line a step on stderr, which the runtime collects.

use crate::env::Environment;

/// Starts logging to stderr, at the level of `CNI_LOG` and without colours. A second start changes nothing.
pub(crate) fn start() {
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Environment::log_level())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("somebody else logs already");
    }
}
