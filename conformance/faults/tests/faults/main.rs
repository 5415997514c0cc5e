//! The state of a node after calls that failed, were killed or came all at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use conformance::{chained_plugins, configs, interface_plugins, shared_objects, subjects};

mod crash;

mod concurrency;
mod namespace_swap;
mod old_kernels;

mod repeated_add;
