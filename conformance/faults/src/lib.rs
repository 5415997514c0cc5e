//! Helpers that the tests of random and of many calls share: the numbers that they draw, and the two sets of plugins.
//!
//! `tests/faults` has every point at which a call can fail or be killed, kernels of old, and many calls at once;
//! `tests/differential`, `tests/history` and `tests/load` draw what they call, and `tests/states` what happened to a node.

pub mod numbers;
pub mod subjects;
