//! portmap and firewall: plugins whose objects are rules of the packet filter.

use crate::configs::with;
use serde_json::{Value, json};

/// Rules that containers share: where their own rules are, and what leads there.
const SHARED: [&str; 9] = [
    "CNI-HOSTPORT-DNAT",
    "CNI-HOSTPORT-SETMARK",
    "CNI-HOSTPORT-MASQ",
    "CNI-FORWARD",
    "CNI-ADMIN",
    "CNI-ISOLATION-STAGE-1",
    "CNI-ISOLATION-STAGE-2",
    "FORWARD",
    "OUTPUT",
];

/// Ports of two protocols, in both families.
pub fn portmap() -> Value {
    let mapping = |host: u16, container: u16, protocol: &str| json!({"hostPort": host, "containerPort": container, "protocol": protocol});
    let mappings = [mapping(8080, 80, "tcp"), mapping(5353, 53, "udp"), mapping(8081, 81, "tcp")];
    json!({"cniVersion": "1.0.0", "name": "net", "type": "portmap", "snat": true, "backend": "iptables",
        "capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": mappings}})
}

/// The same in nf_tables.
pub fn portmap_of_nft() -> Value {
    with(portmap(), json!({"backend": "nftables"}))
}

/// With a policy, which has chains of its own.
pub fn firewall() -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables",
        "ingressPolicy": "same-bridge"})
}

/// Rules of a policy stay after the reference's last container, and ours goes on without one only if it made all of them.
pub fn are_of_a_policy(line: &str) -> bool {
    line.contains("CNI-ISOLATION-STAGE-")
}

/// Whether a change is of what all containers share, which stays after the last one, as in the reference: not a rule with a
/// container's name, address or port.
pub fn are_shared(line: &str) -> bool {
    let Some(object) = line.trim_start_matches(['+', '-', ' ']).strip_prefix("nft ") else {
        return line.contains("/route_localnet");
    };
    let is_named = |attribute: &str| SHARED.iter().any(|name| object.contains(&format!(r#"{attribute}="{name}""#)));
    // A note, a comment, a port's chain, a bridge, or an address of a packet.
    let of_container = ["id: ", "CNI-DN-", "br0", "payload("].iter().any(|word| object.contains(word));
    let is_native = object.contains("\"cni_hostport\"");
    match object.split(' ').next() {
        Some("table") => true,
        Some("chain") => is_named("3") || is_native,
        Some("rule") => !of_container && (is_named("2") || object.contains("CNI-HOSTPORT-") || is_native),
        _ => false,
    }
}
