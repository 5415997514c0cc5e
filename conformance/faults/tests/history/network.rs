//! The networks of a history: one for each kind of interface, each with chained plugins.

use serde_json::{Value, json};
use testns::{Attachment, Node};

/// The number of networks: bridge, ptp, macvlan.
pub(crate) const NETWORKS: usize = 3;
/// Places for pods in each.
pub(crate) const SLOTS: usize = 4;

/// The node's uplink, and the other machine at its end.
pub(crate) const UPLINK: &str = "up0";
pub(crate) const OUTSIDE: &str = "192.0.2.2";
pub(crate) const NODE: &str = "192.0.2.1";
const FOLDER: &str = "/etc/cni/net.d";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) usize);

impl Network {
    pub(crate) fn of(slot: usize) -> Self {
        Self(slot % NETWORKS)
    }

    pub(crate) fn name(self) -> &'static str {
        ["hbridge", "hptp", "hmacvlan"][self.0]
    }

    /// Whether packets of the network's pods pass the node's routing and rules.
    pub(crate) fn is_routed(self) -> bool {
        self.0 < 2
    }

    /// Whether a pod reaches the others by its gateway alone, as if it were alone in its network.
    pub(crate) fn has_single_addresses(self) -> bool {
        self.0 == 1
    }

    /// The address of a result, `10.66.1.5/24`, as a machine in the pod's place has it.
    pub(crate) fn address_of_machine(self, address: &str) -> String {
        match address.split_once('/') {
            Some((ip, _)) if self.has_single_addresses() => format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 }),
            _ => address.to_owned(),
        }
    }

    fn interface(self) -> Value {
        let routes = if self.is_routed() { json!([]) } else { json!([{"dst": "198.51.100.0/24"}]) };
        let (four, six) = (format!("10.66.{}.0/24", self.0), format!("fd66:{}::/112", self.0));
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": four}], [{"subnet": six}]], "routes": routes});
        match self.0 {
            0 => json!({"type": "bridge", "bridge": "hbr0", "isDefaultGateway": true, "ipMasq": true,
                "ipMasqBackend": "iptables", "ipam": ipam}),
            1 => json!({"type": "ptp", "ipMasq": true, "ipMasqBackend": "iptables",
                "ipam": {"type": "host-local", "ranges": ipam["ranges"],
                    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}),
            _ => json!({"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": ipam}),
        }
    }

    fn plugins(self) -> Vec<Value> {
        let portmap = json!({"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}});
        let firewall = json!({"type": "firewall", "backend": "iptables"});
        let rate = 4_000_000_000_u64;
        let bandwidth = json!({"type": "bandwidth", "ingressRate": rate, "ingressBurst": 400_000_000,
            "egressRate": rate, "egressBurst": 400_000_000});
        let sbr = json!({"type": "sbr"});
        match self.0 {
            0 => vec![self.interface(), portmap, firewall, bandwidth],
            1 => vec![self.interface(), portmap, firewall],
            _ => vec![self.interface(), sbr],
        }
    }

    /// Writes the network's conflist, and that of the other network with the same plugins; from then on calls have its rules.
    pub(crate) fn configure(self, is_shared: bool) {
        let mut plugins = self.plugins();
        for plugin in plugins.iter_mut().filter(|plugin| is_shared && self.is_routed() && plugin["type"] != "bandwidth")
        {
            let of_rules_of_each = if plugin["type"] == "portmap" { "backend" } else { "ipMasqBackend" };
            plugin.as_object_mut().unwrap().remove(of_rules_of_each);
            plugin["rules"] = "shared".into();
        }
        let mut list = json!({"cniVersion": "1.1.0", "name": self.name(), "plugins": plugins});
        std::fs::write(self.conflist(), list.to_string()).unwrap();
        let other = other_network(self.0);
        list["name"] = other.as_str().into();
        std::fs::write(format!("{FOLDER}/20-{other}.conflist"), list.to_string()).unwrap();
    }

    pub(crate) fn is_shared(self) -> bool {
        self.configs(0)[0]["rules"] == "shared"
    }

    fn conflist(self) -> String {
        format!("{FOLDER}/10-{}.conflist", self.name())
    }

    pub(crate) fn capabilities(self, slot: usize) -> Value {
        if !self.is_routed() {
            return json!({});
        }
        json!({"portMappings": [{"hostPort": host_port(slot), "containerPort": 7, "protocol": "udp"}]})
    }

    /// The plugins' configs for a slot's pod, as SPEC 3 derives them.
    pub(crate) fn configs(self, slot: usize) -> Vec<Value> {
        let mut list: Value = serde_json::from_slice(&std::fs::read(self.conflist()).unwrap()).unwrap();
        let mut all: Vec<Value> = serde_json::from_value(list["plugins"].take()).unwrap();
        for config in &mut all {
            config["name"] = self.name().into();
            config["cniVersion"] = "1.1.0".into();
            if config.as_object_mut().and_then(|config| config.remove("capabilities")).is_some() {
                config["runtimeConfig"] = self.capabilities(slot);
            }
        }
        all
    }

    pub(crate) fn store(self) -> String {
        format!("/var/lib/cni/networks/{}", self.name())
    }
}

pub(crate) fn host_port(slot: usize) -> u16 {
    20_000 + u16::try_from(slot).unwrap_or_default()
}

pub(crate) fn attachment(slot: usize, netns: &str) -> Attachment {
    Attachment { container_id: format!("slot{slot}"), netns: netns.to_owned(), ifname: "eth0".to_owned() }
}

pub(crate) fn bogus() -> Attachment {
    Attachment { container_id: "bogus".to_owned(), ..attachment(0, "") }
}

pub(crate) fn prepare(node: &Node) -> testns::Namespace {
    let outside = node.remote("outside");
    node.host().add_veth(UPLINK, &outside, "eth0");
    node.host().add_address(UPLINK, &format!("{NODE}/24"));
    outside.add_address("eth0", &format!("{OUTSIDE}/24"));
    std::fs::create_dir_all(FOLDER).unwrap();
    for network in (0..NETWORKS).map(Network) {
        if !network.is_routed() {
            outside.add_address("eth0", &format!("10.66.{}.1/24", network.0));
        }
        network.configure(false);
    }
    outside
}

/// A network with the same plugins, which no pod is in.
pub(crate) fn other_network(network: usize) -> String {
    format!("other{}", Network(network).name())
}
