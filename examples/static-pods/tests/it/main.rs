//! The program on a node of its own: real processes, a real kernel, and this executable as the plugins.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adopted;
mod kills;
mod leaving;
mod manifests;
mod networks;
mod plugins;
mod pods;
mod program;
mod scene;
