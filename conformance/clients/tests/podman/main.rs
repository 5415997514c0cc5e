//! Real containers of podman on real networks of the suite's plugins.

#![allow(missing_docs, reason = "a test's name is its documentation")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod container;
mod engine;
mod executables;
mod left;
mod machine;

mod attached;
mod networks;
mod ports;

mod failures;
mod takeover;
mod vanished;
