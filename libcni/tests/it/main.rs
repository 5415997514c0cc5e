//! `libcni` with real child processes: scripts that log their calls, and the reference's plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add;
mod again;
mod cache;
mod check_del;
mod conflist;
mod deadlines;
mod errors;
mod folder;
mod gc_status;
mod intent;
mod killed;
mod lock;
mod misbehaving;
mod reference;
mod threads;
mod vanished;
mod versions;
