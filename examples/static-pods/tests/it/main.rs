//! The program on a node of its own: real processes, a real kernel, and the suite's plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failing_plugins;
mod pods;
mod restart;
mod test_node;
