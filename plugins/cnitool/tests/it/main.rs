//! `cnitool` as a process, with scripts as plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixture;
mod install;
mod log;
mod man_pages;
mod metrics;
mod output;
mod pages_for_operators;
mod schemas_and_parsers;
mod signals;
mod transcripts;
mod validate;
