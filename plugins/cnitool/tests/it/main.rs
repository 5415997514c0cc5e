//! `cnitool` as a process, with scripts as plugins.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add_check_del;
mod cluster;
mod completions_and_man;
mod fixture;
mod gc_and_attachments;
mod install;
mod ipam;
mod log;
mod metrics;
mod monitoring_folder;
mod network_folder;
mod options_and_errors;
mod output;
mod pages_for_operators;
mod schema;
mod signals;
mod status_and_version;
mod validate;
mod verify;
