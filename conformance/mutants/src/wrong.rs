//! Every mutant, by the kit's files of rules.

mod add;
mod answers;
mod check;
pub(crate) mod del;
mod gc;
mod ipam;
mod requests;
mod stress;

use crate::{Act, Mutant, Row};
use serde_json::Value;
use skel::Reply;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The faults, by the names of mutants.
const ACTS: [&[Act]; 8] =
    [add::ACTS, answers::ACTS, check::ACTS, del::ACTS, gc::ACTS, ipam::ACTS, requests::ACTS, stress::ACTS];

/// Mutants by the kit's files of rules.
///
/// # Panics
/// If `wrong.json` names a fault that there is not.
pub fn groups() -> &'static [(&'static str, Vec<Mutant>)] {
    static ALL: OnceLock<Vec<(&str, Vec<Mutant>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let rows = serde_json::from_str::<BTreeMap<&str, Vec<Row>>>(include_str!("wrong.json"));
        let rows = rows.unwrap_or_else(|error| panic!("wrong.json: {error}"));
        let mutant = |row: Row| {
            let name = row.acts_as.unwrap_or(row.name);
            let act = ACTS.iter().copied().flatten().find(|(other, _)| *other == name);
            Mutant { act: act.unwrap_or_else(|| panic!("{name} has no fault")).1, row }
        };
        rows.into_iter().map(|(group, rows)| (group, rows.into_iter().map(mutant).collect())).collect()
    })
}

pub fn all() -> impl Iterator<Item = &'static Mutant> {
    groups().iter().flat_map(|(_, mutants)| mutants)
}

fn says(reply: &Reply, words: &str) -> bool {
    String::from_utf8_lossy(&reply.stdout).contains(words)
}

fn push(result: &mut Value, list: &str, entry: Value) {
    match result[list].as_array_mut() {
        Some(list) => list.push(entry),
        None => result[list] = Value::from(vec![entry]),
    }
}

fn put(result: &mut Value, object: &str, key: &str, value: Value) {
    if let Some(object) = result.pointer_mut(object) {
        object[key] = value;
    }
}
