//! `libcni` with real child processes: scripts that log their calls, and the reference's plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add;
mod add_again;
mod cache;
mod conflist;
mod deadlines;
mod errors;
mod killed;
mod lock;
mod test_folder;
mod unfinished_add;
