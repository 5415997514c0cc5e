//! The result of ADD: what earlier plugins of the chain created, followed by what this one created.

use std::collections::{BTreeMap, BTreeSet};

use cni_spec::{AddResult, Interface, SpecVersion};
use netops::link::Link;
use skel::NetnsPath;

use crate::plan::Side;

/// The result of an ADD that created `links`, one of which is in the container and has the leased addresses. They are
/// appended to `result`, the earlier plugins' result.
pub(crate) fn assemble(
    netns: &NetnsPath,
    version: SpecVersion,
    mut result: AddResult,
    (lease, replaces_dns): (AddResult, bool),
    links: &[(Side, Link)],
) -> AddResult {
    let first = result.interfaces.len();
    let container = links.iter().position(|(side, _)| *side == Side::Container).map(|index| first + index);
    // Results contain MTUs since version 1.1.0.
    let with_mtu = version >= SpecVersion::V1_1_0;
    result.interfaces.extend(links.iter().map(|(side, link)| {
        Interface::new(&link.name)
            .mac(link.mac.map(|mac| mac.to_string()).unwrap_or_default())
            .mtu(if with_mtu { link.mtu_bytes } else { 0 })
            .sandbox(if *side == Side::Container { netns.as_str() } else { "" })
    }));
    result.ips.extend(lease.ips.into_iter().map(|ip| ip.of(container)));
    result.routes.extend(lease.routes);
    if !lease.dns.is_empty() || replaces_dns {
        result.dns = lease.dns;
    }
    result
}

/// Removes the interfaces that have loopback addresses only, such as `lo` as reported by a loopback plugin earlier in
/// the chain (nomad's bridge network has one). The container cannot be reached by them, but some plugins use the first
/// address of a result: portmap would map ports to 127.0.0.1. The reference's bridge ignores earlier results.
pub fn without_loopback(mut result: AddResult) -> AddResult {
    let had_addresses = with_addresses(&result);
    result.ips.retain(|ip| !ip.address.ip().is_loopback());
    let have_addresses = with_addresses(&result);
    let stays = |index: &usize| !had_addresses.contains(index) || have_addresses.contains(index);
    // The new index of each interface that stays.
    let places: BTreeMap<usize, usize> = (0..result.interfaces.len()).filter(stays).zip(0..).collect();
    for ip in &mut result.ips {
        ip.interface = ip.interface.and_then(|old| places.get(&old).copied());
    }
    let mut index = 0..;
    result.interfaces.retain(|_| index.next().is_some_and(|index| places.contains_key(&index)));
    result
}

/// The interfaces that addresses are on, by index.
fn with_addresses(result: &AddResult) -> BTreeSet<usize> {
    result.ips.iter().filter_map(|ip| ip.interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
    fn check(result: &str, expected: Expect) {
        let prev =
            AddResult::from_value(&cni_spec::json::parse(result.as_bytes()).unwrap(), SpecVersion::V1_0_0).unwrap();
        let AddResult { interfaces, ips, .. } = without_loopback(prev);
        let names: Vec<&str> = interfaces.iter().map(|entry| entry.name.as_str()).collect();
        let ips: Vec<String> = ips.iter().map(|ip| format!("{} on {:?}", ip.address, ip.interface)).collect();
        expected.assert_eq(&format!("{} | {}", names.join(" "), ips.join(", ")));
    }

    #[test]
    fn loopback_is_left_out_of_an_earlier_result() {
        check(
            r#"{"interfaces": [{"name": "lo", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "127.0.0.1/8"}, {"interface": 0, "address": "::1/128"}]}"#,
            expect![" | "],
        );
        check(
            r#"{"interfaces": [{"name": "ens1"}, {"name": "lo"}, {"name": "net1", "sandbox": "/n"}],
                "ips": [{"interface": 1, "address": "127.0.0.1/8"}, {"interface": 2, "address": "192.0.2.9/24"},
                        {"address": "198.51.100.1/24"}]}"#,
            expect!["ens1 net1 | 192.0.2.9/24 on Some(1), 198.51.100.1/24 on None"],
        );
        // With an address that is reachable from elsewhere, the interface is not a mere loopback.
        check(
            r#"{"interfaces": [{"name": "lo", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "127.0.0.1/8"}, {"interface": 0, "address": "192.0.2.9/32"}]}"#,
            expect!["lo | 192.0.2.9/32 on Some(0)"],
        );
    }
}
