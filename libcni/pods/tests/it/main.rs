//! Pods and their networks, with real folders, executables and processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod networks;
mod set_up;
mod site;
