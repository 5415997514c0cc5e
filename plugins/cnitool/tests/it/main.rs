//! `cnitool` as a process, with scripts as plugins.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod cluster;
mod completing;
mod folders;
mod gc;
mod install;
mod install_watch;
mod ipam;
mod keys;
mod log;
mod metrics;
mod monitoring;
mod pages;
mod platforms;
mod schema;
mod signals;
mod terminal;
mod tool;
mod validate;
mod verbs;
mod verify;
