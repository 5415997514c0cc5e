//! Ranges of host-local: how many addresses a config has, and how it is made to have a chosen number.

use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Makes each range set of a config's `ipam` one of so many addresses. False, and no change, if it is none of
/// host-local, or a runtime adds ranges of its own.
pub(super) fn resize(config: &mut Value, addresses: u32) -> bool {
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

/// The number of attachments that a config of host-local has addresses for: that of the smallest of its range sets.
pub(super) fn capacity(config: &Value) -> Option<usize> {
    let ipam = config.get("ipam").filter(|ipam| ipam["type"] == "host-local")?;
    let sets: Vec<Vec<&Value>> = match ipam["ranges"].as_array() {
        Some(sets) => sets.iter().map(|set| set.as_array().into_iter().flatten().collect()).collect(),
        None => vec![vec![ipam]],
    };
    sets.iter().map(|set| set.iter().filter_map(|range| of_range(range)).sum()).min()
}

/// The number of addresses that a range has for containers: not those of the network, the gateway and broadcast.
fn of_range(range: &Value) -> Option<usize> {
    let (base, prefix) = range["subnet"].as_str()?.split_once('/')?;
    let bits = if base.contains(':') { 128 } else { 32 };
    let host_bits = bits - prefix.parse::<u32>().ok().filter(|prefix| *prefix <= bits)?;
    let all = 1_usize.checked_shl(host_bits).filter(|_| host_bits < 48).unwrap_or(usize::MAX).saturating_sub(3);
    let number = |key: &str| match range[key].as_str()?.parse().ok()? {
        std::net::IpAddr::V4(address) => Some(u128::from(u32::from(address))),
        std::net::IpAddr::V6(address) => Some(u128::from(address)),
    };
    match (number("rangeStart"), number("rangeEnd")) {
        (Some(start), Some(end)) => usize::try_from(end.checked_sub(start)?.checked_add(1)?).ok(),
        _ => Some(all),
    }
}

#[cfg(test)]
mod tests {
    use super::{capacity, resize};
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
    fn a_pool_serves_as_many_as_its_smallest_set() {
        let of = |ipam: serde_json::Value| capacity(&json!({ "ipam": ipam }));
        assert_eq!(of(json!({ "type": "host-local", "subnet": "10.1.0.0/24" })), Some(253));
        let sets = json!([[{ "subnet": "10.1.0.0/24" }, { "subnet": "10.2.0.0/24" }], [{ "subnet": "fd01::/64" }]]);
        assert_eq!(of(json!({ "type": "host-local", "ranges": sets })), Some(506));
        let range = json!([[{ "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.5" }]]);
        assert_eq!(of(json!({ "type": "host-local", "ranges": range })), Some(4));
        assert_eq!(of(json!({ "type": "other", "subnet": "10.1.0.0/24" })), None);
    }
}
