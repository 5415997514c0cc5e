//! The networks of the tests.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

pub(crate) const NAME: &str = "pods";

/// Gateways of containers, the bridge's addresses.
pub(crate) const GATEWAYS: [&str; 2] = ["10.88.0.1", "fd00:88::1"];

/// The usual network of nodes: a bridge with addresses of both families, and the plugins behind it.
pub(crate) fn pods() -> Value {
    json!({"cniVersion": "1.0.0", "name": NAME, "plugins": [
        {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "firewall", "backend": "iptables"},
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}}]})
}

/// The same, and at the end [noop](../../../../../plugins/meta/noop), which writes down how it was called.
pub(crate) fn recorded(control_file: &Path, log: &Path) -> Value {
    let mut list = pods();
    let capabilities = json!({"portMappings": true, "bandwidth": true, "dns": true});
    let noop = json!({"type": "noop", "debugFile": control_file, "commandLog": log, "capabilities": capabilities});
    fs::write(control_file, r#"{"ReportResult": "PASSTHROUGH"}"#).unwrap();
    fs::write(log, "").unwrap();
    list["plugins"].as_array_mut().unwrap().push(noop);
    list
}

pub(crate) fn print_nothing(control_file: &Path) {
    fs::write(control_file, "{}").unwrap();
}

/// A line of a node's changes that is about where host-local goes on counting, in the reference's form or in ours.
pub(crate) fn is_counter(line: &str) -> bool {
    let folder = format!("/var/lib/cni/networks/{NAME}/");
    let file = line.split_once(&folder).map_or("", |(_, file)| file);
    file.starts_with("last_reserved_ip.") || line.contains(" /run/cni")
}
