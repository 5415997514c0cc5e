//! The frame itself: what the kit says of plugins that do as they should, that do not, that hang, and of machines that
//! forbid it to work.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_lines;
mod dhcp;
mod kit;
mod machine;
mod pages;
mod shield;
mod size;
mod strangers;
mod verdicts;
