//! Every mutant, by the kit's files of rules.

mod add;
mod add_result;
mod at_once;
mod check;
mod concurrency;
mod configuration;
mod conventions;
mod crash;
pub(crate) mod daemon;
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

use crate::{Act, Mutant, Row};
use serde_json::Value;
use skel::Reply;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The faults of each group, by the names of mutants.
const ACTS: &[(&str, &[Act])] = &[
    ("configuration", configuration::ACTS),
    ("parameters", parameters::ACTS),
    ("add", add::ACTS),
    ("prev_result", prev_result::ACTS),
    ("add_result", add_result::ACTS),
    ("del", del::ACTS),
    ("check", check::ACTS),
    ("gc", gc::ACTS),
    ("status", status::ACTS),
    ("version", version::ACTS),
    ("results", results::ACTS),
    ("errors", errors::ACTS),
    ("delegation", delegation::ACTS),
    ("ipam", ipam::ACTS),
    ("links", links::ACTS),
    ("daemon", daemon::ACTS),
    ("conventions", conventions::ACTS),
    ("relied", relied::ACTS),
    ("crash", crash::ACTS),
    ("faults", faults::ACTS),
    ("concurrency", concurrency::ACTS),
    ("model", model::ACTS),
    ("hostile", hostile::ACTS),
];

/// Mutants by the kit's files of rules.
///
/// # Panics
/// If `wrong.json` names a fault that there is not.
pub fn groups() -> &'static [(&'static str, Vec<Mutant>)] {
    static ALL: OnceLock<Vec<(&str, Vec<Mutant>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let rows = serde_json::from_str::<BTreeMap<&str, Vec<Row>>>(include_str!("wrong.json"));
        let mut rows = rows.unwrap_or_else(|error| panic!("wrong.json: {error}"));
        let mutant = |row: Row, acts: &[Act]| {
            let name = row.acts_as.unwrap_or(row.name);
            let act = acts.iter().find(|(other, _)| *other == name);
            Mutant { act: act.unwrap_or_else(|| panic!("{name} has no fault")).1, row }
        };
        let group = |(name, acts): &(&'static str, &[Act])| {
            let rows = rows.remove(name).unwrap_or_default();
            (*name, rows.into_iter().map(|row| mutant(row, acts)).collect())
        };
        ACTS.iter().map(group).collect()
    })
}

/// All mutants.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    groups().iter().flat_map(|(_, mutants)| mutants)
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
