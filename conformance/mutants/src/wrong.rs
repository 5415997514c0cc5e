//! Every mutant, by the kit's files of rules.

mod add;
mod add_result;
mod at_once;
mod crash;
mod del;
mod errors;
mod gc;
mod results;
mod status;
mod version;

use crate::Mutant;
use serde_json::Value;

/// Mutants by the kit's files of rules.
pub const GROUPS: &[(&str, &[Mutant])] = &[
    ("add", add::MUTANTS),
    ("add_result", add_result::MUTANTS),
    ("del", del::MUTANTS),
    ("gc", gc::MUTANTS),
    ("status", status::MUTANTS),
    ("version", version::MUTANTS),
    ("errors", errors::MUTANTS),
    ("results", results::MUTANTS),
    ("crash", crash::MUTANTS),
];

/// All mutants.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    GROUPS.iter().flat_map(|(_, mutants)| *mutants)
}

/// One entry more in a list of a result.
fn push(result: &mut Value, list: &str, entry: Value) {
    match result[list].as_array_mut() {
        Some(list) => list.push(entry),
        None => result[list] = Value::from(vec![entry]),
    }
}
