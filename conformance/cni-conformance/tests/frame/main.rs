//! The kit itself: what it says of plugins that do as they should, that do not, that hang, and of machines that
//! forbid it to work.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_lines;
mod honest_plugins;
mod pages;
mod restricted_machine;
mod run_kit;
mod strangers;
mod verdicts;
