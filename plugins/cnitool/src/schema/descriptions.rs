//! Descriptions of keys, from the tables of the plugins' pages.

use crate::validate::{KnownPlugin, Role};
use serde_json::{Value, json};

/// The words in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Gives each key in the tables of the plugin's page its description.
pub(super) fn describe(schema: &mut Value, plugin: &KnownPlugin) {
    let mut head: Vec<&str> = Vec::new();
    for line in plugin.readme.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells[0].to_lowercase().starts_with("key") {
            head = cells;
            continue;
        }
        if cells.len() != head.len() || !head[0].to_lowercase().starts_with("key") {
            continue;
        }
        let default = head.iter().position(|name| name.eq_ignore_ascii_case("default")).map(|at| cells[at]);
        let default = default.filter(|text| !["", "none", "required"].contains(text));
        let default = default.map(|text| format!(" (default: {text})")).unwrap_or_default();
        let text = format!("{}{default}", cells[cells.len() - 1]);
        for key in quoted(cells[0]) {
            let place = if plugin.role == Role::Address { "ipam." } else { "" };
            if let Some(property) = find(schema, &format!("{place}{key}")).and_then(Value::as_object_mut) {
                property.insert("description".to_owned(), json!(text));
            }
        }
    }
}

/// The schema of a key.
fn find<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(schema, |schema, key| schema.get_mut("properties")?.get_mut(key))
}
