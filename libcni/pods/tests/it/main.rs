//! Pods and their networks, with real folders, executables and processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod gc;
mod killed;
mod limits;
mod networks;
mod ready;
mod set_up;
mod site;
mod tear_down;
mod watching;
