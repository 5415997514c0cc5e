//! Every mutant, by the kit's files of rules.

mod add;
mod add_result;
mod at_once;
mod check;
mod concurrency;
mod configuration;
mod conventions;
mod crash;
mod daemon;
mod del;
mod delegation;
mod errors;
mod faults;
mod gc;
mod hostile;
mod ipam;
mod links;
mod model;
mod parameters;
mod prev_result;
mod relied;
mod results;
mod status;
mod version;

use crate::Mutant;
use serde_json::Value;
use skel::Reply;

/// Mutants by the kit's files of rules.
pub const GROUPS: &[(&str, &[Mutant])] = &[
    ("configuration", configuration::MUTANTS),
    ("parameters", parameters::MUTANTS),
    ("add", add::MUTANTS),
    ("prev_result", prev_result::MUTANTS),
    ("add_result", add_result::MUTANTS),
    ("del", del::MUTANTS),
    ("check", check::MUTANTS),
    ("gc", gc::MUTANTS),
    ("status", status::MUTANTS),
    ("version", version::MUTANTS),
    ("results", results::MUTANTS),
    ("errors", errors::MUTANTS),
    ("delegation", delegation::MUTANTS),
    ("ipam", ipam::MUTANTS),
    ("links", links::MUTANTS),
    ("daemon", daemon::MUTANTS),
    ("conventions", conventions::MUTANTS),
    ("relied", relied::MUTANTS),
    ("crash", crash::MUTANTS),
    ("faults", faults::MUTANTS),
    ("concurrency", concurrency::MUTANTS),
    ("model", model::MUTANTS),
    ("hostile", hostile::MUTANTS),
];

/// All mutants.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    GROUPS.iter().flat_map(|(_, mutants)| *mutants)
}

/// Whether a reply has some words.
fn says(reply: &Reply, words: &str) -> bool {
    String::from_utf8_lossy(&reply.stdout).contains(words)
}

/// Adds an entry to a list of a result.
fn push(result: &mut Value, list: &str, entry: Value) {
    match result[list].as_array_mut() {
        Some(list) => list.push(entry),
        None => result[list] = Value::from(vec![entry]),
    }
}

/// Sets a key of an object in a result that has that object.
fn put(result: &mut Value, object: &str, key: &str, value: Value) {
    if let Some(object) = result.pointer_mut(object) {
        object[key] = value;
    }
}
