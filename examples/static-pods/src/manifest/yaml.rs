//! Text to documents, without what YAML has and JSON has not.

use serde_json::Value;

/// More than any Pod may have: the API server takes 1.5 MiB.
pub(super) const MAX_BYTES: usize = 1_572_864;

/// The documents of a file. Nulls in mappings are gone: Kubernetes takes them as absent.
///
/// Nodes that aliases repeat are counted and limited by the parser, so nested aliases cannot fill the memory.
pub(super) fn documents(bytes: &[u8]) -> Result<Vec<Value>, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("{} bytes are more than a Pod may have ({MAX_BYTES})", bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| format!("no UTF-8 text: {error}"))?;
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| one_line(&error))?;
    documents.retain(|document| !document.is_null());
    documents.iter_mut().for_each(remove_nulls);
    Ok(documents)
}

fn one_line(error: &serde_saphyr::Error) -> String {
    // The parser appends a note on its options, which is no help for the manifest's author.
    let text = error.without_snippet().to_string().replace(", set DuplicateKeyPolicy in Options if acceptable", "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("no YAML: {text}")
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}
