//! The costs of a call of a plugin: what it does, counted ([`call_budget`]), and how long it takes ([`side_by_side`]).
//!
//! Time never decides a test here. What is exact (system calls, messages, processes, bytes) has its limits.

pub mod call_budget;
mod scene;
pub mod side_by_side;
