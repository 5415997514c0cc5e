//! Pods and their networks, with real folders, executables and processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deadlines;
mod gc;
mod networks;
mod ready;
mod set_up;
mod spans;
mod tear_down;
mod test_node;
