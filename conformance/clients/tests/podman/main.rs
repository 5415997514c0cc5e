//! Real containers of podman on real networks of the suite's plugins.

#![allow(missing_docs, reason = "a test's name is its documentation")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod container;
mod engine;
mod executables;
mod folders;
mod leftovers;

mod add_result;
mod networks;
mod ports;

mod failures;
mod lost_namespace;
mod upgrade;
