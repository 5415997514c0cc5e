//! Address pools of a chosen size, where the kit knows how to say that: in a config of host-local.

use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Makes each range set of a config's `ipam` one of so many addresses. False, and no change, if it is none of
/// host-local, or a runtime adds ranges of its own.
pub(crate) fn resize(config: &mut Value, addresses: u32) -> bool {
    let has_ranges_beside = config.pointer("/runtimeConfig/ipRanges").is_some();
    let Some(ipam) = config.get_mut("ipam").filter(|ipam| ipam["type"] == "host-local") else {
        return false;
    };
    let sets: Option<Vec<Value>> = ipam["ranges"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|set| range(set[0]["subnet"].as_str()?, addresses))
        .collect();
    match sets {
        Some(sets) if !sets.is_empty() && !has_ranges_beside && ipam.get("subnet").is_none() => {
            ipam["ranges"] = json!(sets);
            true
        }
        _ => false,
    }
}

/// A range set of the addresses from the third of a subnet on: the second is the gateway's.
fn range(subnet: &str, addresses: u32) -> Option<Value> {
    let (base, _prefix) = subnet.split_once('/')?;
    let nth = |n: u32| match (base.parse::<Ipv4Addr>(), base.parse::<Ipv6Addr>()) {
        (Ok(base), _) => Some(Ipv4Addr::from(u32::from(base).checked_add(n)?).to_string()),
        (_, Ok(base)) => Some(Ipv6Addr::from(u128::from(base).checked_add(u128::from(n))?).to_string()),
        _ => None,
    };
    Some(json!([{ "subnet": subnet, "rangeStart": nth(2)?, "rangeEnd": nth(addresses + 1)? }]))
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

#[cfg(test)]
mod tests {
    use super::{addresses, resize};
    use serde_json::json;

    #[test]
    fn a_pool_has_so_many_addresses() {
        let subnets = json!([[{ "subnet": "10.7.0.0/16" }], [{ "subnet": "fd07::/64" }]]);
        let mut config = json!({ "ipam": { "type": "host-local", "ranges": subnets } });
        assert!(resize(&mut config, 1));
        assert_eq!(config["ipam"]["ranges"][0][0]["rangeStart"], "10.7.0.2");
        assert_eq!(config["ipam"]["ranges"][0][0]["rangeEnd"], "10.7.0.2");
        assert!(resize(&mut config, 4));
        assert_eq!(config["ipam"]["ranges"][1][0]["rangeEnd"], "fd07::5");
        for other in [json!({}), json!({ "ipam": { "type": "x" } }), json!({ "ipam": { "type": "host-local" } })] {
            assert!(!resize(&mut other.clone(), 1), "{other}");
        }
    }

    #[test]
    fn addresses_of_old_and_new_results() {
        assert_eq!(addresses(&json!({ "ips": [{ "address": "10.7.0.2/16" }] })), ["10.7.0.2"]);
        assert_eq!(
            addresses(&json!({ "ip4": { "ip": "10.7.0.2/16" }, "ip6": { "ip": "fd::1/64" } })),
            ["10.7.0.2", "fd::1"]
        );
        assert!(addresses(&json!(null)).is_empty());
    }
}
