//! The specification as tests: a module per section, then one per plugin.

#![allow(missing_docs, reason = "a test's name is its documentation")]

mod configs;
mod subjects;

mod protocol;

mod bridge;
mod host_local;
mod loopback;
mod noop;

mod crash;
