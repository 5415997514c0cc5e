//! Addresses in results and in configs.

use serde_json::Value;

/// Whether an address, without its prefix, is in a config: then each container that is given this config has it.
pub(crate) fn stands_in(config: &Value, address: &str) -> bool {
    match config {
        Value::String(text) => text.split('/').next() == Some(address),
        Value::Array(values) => values.iter().any(|value| stands_in(value, address)),
        Value::Object(object) => object.iter().any(|(key, value)| key != "prevResult" && stands_in(value, address)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether each attachment gets addresses of its own: not where the config has them, nor where there are none.
pub(crate) fn hands_out(config: &Value) -> bool {
    config.pointer("/ipam/type").and_then(Value::as_str).is_some_and(|kind| !kind.is_empty() && kind != "static")
}

/// The addresses of a result of any version, without their prefixes.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
    let older = ["ip4", "ip6"].into_iter().map(|key| &result[key]["ip"]);
    let texts = ips.chain(older).filter_map(Value::as_str);
    texts.map(|text| text.split('/').next().unwrap_or(text).to_owned()).collect()
}
