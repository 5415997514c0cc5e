//! Helpers that the tests of random and of many calls share: random numbers, the settings of a run, and the two sets of plugins.
//!
//! `tests/faults` has every point at which a call can fail or be killed, kernels of old, and many calls at once;
//! `tests/differential` and `tests/history` draw what they call, and `tests/states` what happened to a node.

pub mod random;
pub mod settings;
pub mod subjects;
