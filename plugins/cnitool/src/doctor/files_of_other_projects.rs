//! Files and sockets without which plugins of other projects refuse each ADD. Their programs make them, mostly in a container
//! of the node; a plugin that waits for them says no more than the path.

use std::path::Path;

use serde_json::Value;

use crate::doctor::{Finding, Kind, Level, advice};
use crate::parsed_network::{FLANNEL_FILE, Network, Subnets, delegates, text};

/// A file that a plugin needs.
struct Need {
    plugin: &'static str,
    /// The keys, in their order, that may name another path.
    key: &'static [&'static str],
    path: &'static str,
    /// The program that makes it.
    maker: &'static str,
}

const fn need(plugin: &'static str, key: &'static [&'static str], path: &'static str, maker: &'static str) -> Need {
    Need { plugin, key, path, maker }
}

/// From the projects' own installations. An empty path: only the key names one.
const NEEDS: [Need; 8] = [
    need("flannel", &["subnetFile"], FLANNEL_FILE, "flannel's daemon (pods kube-flannel-ds)"),
    need("calico", &["nodename_file"], "/var/lib/calico/nodename", "calico's node program (pods calico-node)"),
    need("calico", &["kubernetes", "kubeconfig"], "", "calico's installer (pods calico-node)"),
    need("multus", &["kubeconfig"], "", "Multus' installer (pods kube-multus-ds)"),
    need("multus-shim", &["daemonSocketDir"], "/run/multus", "Multus' daemon (pods kube-multus-ds)"),
    need("whereabouts", &["kubernetes", "kubeconfig"], "", "whereabouts' installer (pods whereabouts)"),
    need("cilium-cni", &[], "/var/run/cilium/cilium.sock", "cilium's agent (pods cilium)"),
    need(
        "kube-ovn",
        &["server_socket"],
        "/run/openvswitch/kube-ovn-daemon.sock",
        "kube-ovn's daemon (pods kube-ovn-cni)",
    ),
];

/// Looks for the files of each network's plugins, and of those that they call.
pub(crate) fn look<'a>(networks: impl Iterator<Item = &'a Network>, findings: &mut Vec<Finding>) {
    for network in networks {
        let own = || network.plugins.iter().map(|plugin| &plugin.object);
        let ipams = own().filter_map(|plugin| plugin.get("ipam"));
        for plugin in own().chain(own().flat_map(delegates)).chain(ipams) {
            findings.extend(NEEDS.iter().filter_map(|need| need.lacking(&network.conf.name, plugin)));
        }
    }
}

impl Need {
    fn lacking(&self, network: &str, plugin: &Value) -> Option<Finding> {
        if text(plugin, "type") != self.plugin {
            return None;
        }
        let named = self.key.iter().try_fold(plugin, |of, key| of.get(*key)).and_then(Value::as_str);
        let path = named.filter(|path| !path.is_empty() && !self.key.is_empty()).unwrap_or(self.path);
        if path.is_empty() {
            return None;
        }
        let state = match std::fs::metadata(Path::new(path)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing".to_owned(),
            Err(error) => format!("cannot be read: {error}"),
            Ok(_) if self.plugin == "flannel" && has_no_subnet(path) => "names no subnet (FLANNEL_SUBNET)".to_owned(),
            Ok(_) => return None,
        };
        let what = format!("{path}, which plugin {} needs, {state}", self.plugin);
        let see = advice(format!("See why {} does not run on this node: it makes the file.", self.maker));
        Some(Kind::NotReady.finding(Level::Error, Some(network), what).help(see))
    }
}

fn has_no_subnet(path: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| Subnets::parse(&text).subnets.is_empty())
}
