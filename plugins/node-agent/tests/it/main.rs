//! The agent as a process, on throwaway nodes, with a server that behaves as Kubernetes' API.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

mod bench;

mod file;
mod range_changes;
mod routes;
mod watch;
