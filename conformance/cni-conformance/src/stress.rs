//! Robustness: calls that are killed, refused or starved, hostile input, random walks. No sentence of the specification
//! asks for it, so `cni-conformance stress` tries it, and the verdict on the letter does without.
//!
//! A file with `CASES` has the cases of the rules in its `.json`, as in [`rules`](crate::rules); the others are what those
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

use crate::rule::{Code, Rule, read};
use crate::rules::steps;
use std::sync::OnceLock;

/// The rules of each theme, with the cases that need code.
const THEMES: &[(&str, &[Code])] = &[
    (include_str!("stress/crash.json"), crash::CASES),
    (include_str!("stress/faults.json"), faults::CASES),
    (include_str!("stress/disk.json"), disk::CASES),
    (include_str!("stress/model.json"), model::CASES),
    (include_str!("stress/hostile.json"), hostile::CASES),
];

pub fn rules() -> impl Iterator<Item = &'static Rule> {
    static ALL: OnceLock<Vec<Rule>> = OnceLock::new();
    let read = |(text, code): &(&str, &[Code])| read(text, code, steps::play).unwrap_or_else(|why| panic!("{why}"));
    ALL.get_or_init(|| THEMES.iter().flat_map(read).collect()).iter()
}

/// Whether a case of that name is tried only where it is asked for by name, because it takes long.
pub(crate) fn is_on_request(case: &str) -> bool {
    case == model::LONG
}
