//! `libcni` with real child processes: scripts that log their calls, and the reference's plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add;
mod add_again;
mod cache;
mod check_del;
mod conflist;
mod deadlines;
mod errors;
mod execute;
mod gc_status;
mod killed;
mod lock;
mod test_folder;
mod unfinished_add;
