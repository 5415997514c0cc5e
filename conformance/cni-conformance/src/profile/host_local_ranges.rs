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
