//! Results as the kit itself writes them, in the form of each version (SPEC 5 of each).

use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// A result with each address as the kernel has it: those of IPv6 and of Ethernet have many notations.
pub fn in_one_notation(mut result: Value) -> Value {
    let rewrite = |entry: &mut Value| {
        for key in ["address", "gateway", "dst", "gw", "ip"] {
            if let Some(Value::String(text)) = entry.get_mut(key) {
                *text = plain(text);
            }
        }
    };
    let each = |object: &mut Value, list: &str, change: &dyn Fn(&mut Value)| {
        object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
    };
    each(&mut result, "ips", &rewrite);
    each(&mut result, "routes", &rewrite);
    each(&mut result, "interfaces", &|entry| {
        if let Some(Value::String(mac)) = entry.get_mut("mac") {
            *mac = mac.to_lowercase();
        }
    });
    for family in ["ip4", "ip6"] {
        if let Some(object) = result.get_mut(family) {
            rewrite(object);
            each(object, "routes", &rewrite);
        }
    }
    result
}

/// An address, with or without prefix length, as the kernel has it.
fn plain(text: &str) -> String {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address = address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), |address| address.to_string());
    prefix.map_or(address.clone(), |prefix| format!("{address}/{prefix}"))
}

/// A result in the newest form in that of `version`.
pub fn in_version(newest: &Value, version: &str) -> Value {
    match version {
        "0.1.0" | "0.2.0" => by_family(newest, version),
        "0.3.0" | "0.3.1" | "0.4.0" => with_families(newest, version),
        _ => {
            let mut result = newest.clone();
            result["cniVersion"] = json!(version);
            if version == "1.0.0" {
                keep_only(&mut result, "interfaces", &["name", "mac", "sandbox"]);
                keep_only(&mut result, "routes", &["dst", "gw"]);
            }
            result
        }
    }
}

/// 0.1.0 and 0.2.0: at most one address of each family, no interfaces.
fn by_family(newest: &Value, version: &str) -> Value {
    let mut result = json!({ "cniVersion": version });
    for (key, is_six) in [("ip4", false), ("ip6", true)] {
        let is_it = |entry: &&Value, key: &str| entry[key].as_str().is_some_and(|text| text.contains(':') == is_six);
        let Some(address) = list(newest, "ips").find(|ip| is_it(ip, "address")) else {
            continue;
        };
        let routes: Vec<_> =
            list(newest, "routes").filter(|route| is_it(route, "dst")).map(|r| only(r, &["dst", "gw"])).collect();
        result[key] = json!({ "ip": address["address"] });
        if !address["gateway"].is_null() {
            result[key]["gateway"] = address["gateway"].clone();
        }
        if !routes.is_empty() {
            result[key]["routes"] = json!(routes);
        }
    }
    result["dns"] = newest.get("dns").cloned().unwrap_or_else(|| json!({}));
    result
}

/// 0.3.0 to 0.4.0: each address says its family.
fn with_families(newest: &Value, version: &str) -> Value {
    let mut result = newest.clone();
    result["cniVersion"] = json!(version);
    for ip in result.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_six = ip["address"].as_str().is_some_and(|text| text.contains(':'));
        ip["version"] = json!(if is_six { "6" } else { "4" });
    }
    keep_only(&mut result, "interfaces", &["name", "mac", "sandbox"]);
    keep_only(&mut result, "routes", &["dst", "gw"]);
    if result.get("dns").is_none() {
        result["dns"] = json!({});
    }
    result
}

fn list<'a>(result: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    result.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn only(entry: &Value, keys: &[&str]) -> Value {
    let kept = entry.as_object().into_iter().flatten().filter(|(key, _)| keys.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

fn keep_only(result: &mut Value, list: &str, keys: &[&str]) {
    for entry in result.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
        *entry = only(entry, keys);
    }
}
