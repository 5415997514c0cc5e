//! Robustness: calls that are killed, refused or starved, hostile input, random walks. No sentence of the specification
//! asks for it, so `cni-conformance stress` tries it, and the verdict on the letter does without.
//!
//! A file with `RULES` has rows as those of [`rules`](crate::rules) and, below, their cases; the others are what those
//! have in common: operations that are cut off or disturbed, an address pool of a chosen size, choosing the points of a
//! call, and inputs that no honest runtime would send.

mod crash;
mod disk;
mod faults;
mod hostile;
mod model;

mod hostile_input;
mod interruption_points;
pub(crate) mod operations;
mod raw_call;
mod recovery;

use crate::rule::Rule;

/// All rules about robustness.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [crash::RULES, faults::RULES, disk::RULES, model::RULES, hostile::RULES].into_iter().flatten()
}

/// Whether a case of that name is tried only where it is asked for by name, because it takes long.
pub(crate) fn is_on_request(case: &str) -> bool {
    case == model::LONG
}
