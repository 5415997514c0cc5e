//! Real containers of podman on real networks of the suite's plugins.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod engine;
mod folders;
mod leftovers;

mod add_result;
mod networks;
mod ports;

mod failures;
mod upgrade;
