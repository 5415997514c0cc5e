//! The calls: networks, and the input of each verb.

use serde_json::{Value, json};
use testns::Verb;

/// A network, or a call without any.
#[derive(Debug, Clone)]
pub struct Scene {
    /// As in the tables, and in `--only`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The network config; of `Kind::Chain`, of its first plugin.
    pub(crate) config: Value,
    /// How many addresses ADD has to report.
    pub(crate) addresses: usize,
    pub(crate) verbs: &'static [Verb],
    /// Of a chain: the configs of the plugins behind the first.
    pub(crate) behind: Vec<Value>,
}

/// The executables that take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An interface plugin of this name, perhaps with an IPAM plugin.
    Plugin(&'static str),
    /// `cnitool` with a bridge and others behind it.
    Chain,
}

const LIFE: &[Verb] = &[Verb::Add, Verb::Check, Verb::Del];

/// The name of every network here.
pub(crate) const NETWORK: &str = "pods";
/// The interface in the container.
pub(crate) const IFNAME: &str = "eth0";
/// The bridge.
pub(crate) const BRIDGE: &str = "cni0";
/// The link of the node that macvlans are on.
pub(crate) const MASTER: &str = "uplink";
/// The first pod's host port, behind those of other containers.
const FIRST_PORT: u32 = 20_000;
/// Noops behind the bridge of [`CHAIN`].
pub(crate) const NOOPS: usize = 4;
/// The chain that shows what chaining costs by itself.
pub(crate) const CHAIN: &str = "chain";
/// The chain of most nodes, with a mapped port.
const PORTS: &str = "full-chain-ports";

const V4: &str = "10.88.0.0/16";
const V6: &str = "fd00:88::/64";

/// All scenes, in the order of the tables.
pub(crate) fn all() -> Vec<Scene> {
    vec![
        plugin("version", "bridge", &[Verb::Version], 0, json!({})),
        plugin("loopback", "loopback", LIFE, 2, json!({})), // 127.0.0.1 and ::1
        host_local(),
        bridge(),
        bridge_masq(),
        bridge_with("bridge-dual", 2, json!({ "ipam": dual() })),
        plugin("ptp", "ptp", LIFE, 1, json!({ "ipam": routed() })),
        plugin("macvlan", "macvlan", LIFE, 1, json!({ "master": MASTER, "ipam": routed() })),
        chain(),
        chain_without_ports(),
        // With mapped ports CHECK of the reference fails.
        full_chain(PORTS, &[Verb::Add, Verb::Del]),
    ]
}

/// The scenes whose calls are counted, in the order of their table.
pub(crate) fn counted() -> Vec<Scene> {
    vec![
        plugin("version", "bridge", &[Verb::Version], 0, json!({})),
        plugin("loopback", "loopback", LIFE, 2, json!({})),
        host_local(),
        bridge(),
        bridge_masq(),
        bridge_with("bridge-dual", 2, json!({ "ipam": dual() })),
        bridge_with("bridge-masq-dual", 2, json!({ "ipMasq": true, "ipam": dual() })),
        plugin("ptp", "ptp", LIFE, 1, json!({ "ipam": ipam() })),
        plugin("macvlan", "macvlan", LIFE, 1, json!({ "master": MASTER, "ipam": ipam() })),
        chain(),
    ]
}

/// A bridge that is the default gateway, with addresses from host-local.
pub(crate) fn bridge() -> Scene {
    bridge_with("bridge", 1, json!({}))
}

/// The same behind masquerade.
pub(crate) fn bridge_masq() -> Scene {
    bridge_with("bridge-masq", 1, json!({ "ipMasq": true }))
}

/// portmap with one port, whose number is the pod's own.
pub(crate) fn portmap() -> Scene {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [{"name": IFNAME, "sandbox": "/run/netns/pod"}],
        "ips": [{"address": "10.88.0.2/16", "interface": 0}]});
    let mapping = json!({"hostPort": FIRST_PORT, "containerPort": 80, "protocol": "tcp"});
    let own = json!({"runtimeConfig": {"portMappings": [mapping]}, "prevResult": result});
    plugin("portmap", "portmap", LIFE, 1, own)
}

/// host-local, called by itself.
pub(crate) fn host_local() -> Scene {
    plugin("host-local", "host-local", LIFE, 1, json!({ "ipam": ipam() }))
}

/// The chain of most nodes.
pub(crate) fn chain_without_ports() -> Scene {
    full_chain("full-chain", LIFE)
}

fn chain() -> Scene {
    // A noop answers `{}`, so there is nothing that CHECK could compare with.
    let behind = vec![json!({ "type": "noop" }); NOOPS];
    Scene { name: CHAIN, kind: Kind::Chain, verbs: &[Verb::Add, Verb::Del], behind, ..bridge() }
}

/// The chain of most nodes. Mapped ports are in [`Scene::capabilities`].
fn full_chain(name: &'static str, verbs: &'static [Verb]) -> Scene {
    let behind = json!([
        { "type": "portmap", "capabilities": { "portMappings": true } },
        { "type": "firewall", "backend": "iptables" },
        { "type": "tuning", "mtu": 1400, "sysctl": { "net.core.somaxconn": "500" } },
        { "type": "bandwidth", "ingressRate": RATE_BITS, "ingressBurst": RATE_BITS, "egressRate": RATE_BITS,
          "egressBurst": RATE_BITS },
    ]);
    let behind = behind.as_array().cloned().unwrap_or_default();
    Scene { name, kind: Kind::Chain, verbs, behind, ..bridge_masq() }
}

/// Of a full chain, where nothing is sent.
const RATE_BITS: u32 = 80_000_000;

fn bridge_with(name: &'static str, addresses: usize, own: Value) -> Scene {
    let base = json!({ "bridge": BRIDGE, "isDefaultGateway": true, "ipam": ipam() });
    plugin(name, "bridge", LIFE, addresses, with(base, own))
}

fn plugin(name: &'static str, plugin: &'static str, verbs: &'static [Verb], addresses: usize, own: Value) -> Scene {
    // No call that is measured differs in 1.1.0.
    let base = json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": plugin });
    Scene { name, kind: Kind::Plugin(plugin), config: with(base, own), addresses, verbs, behind: Vec::new() }
}

fn ipam() -> Value {
    json!({ "type": "host-local", "subnet": V4 })
}

/// With a default route, as a bridge that is the default gateway sets one.
fn routed() -> Value {
    json!({ "type": "host-local", "subnet": V4, "routes": [{ "dst": "0.0.0.0/0" }] })
}

fn dual() -> Value {
    json!({ "type": "host-local", "ranges": [[{ "subnet": V4 }], [{ "subnet": V6 }]] })
}

/// `base` with the keys of `own`, which replace those of the same name.
fn with(base: Value, own: Value) -> Value {
    match (base, own) {
        (Value::Object(mut all), Value::Object(own)) => {
            all.extend(own);
            Value::Object(all)
        }
        (base, _) => base,
    }
}

impl Scene {
    /// Returns the scene's name, as in the tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether `cnitool` is called, and not a plugin.
    #[must_use]
    pub fn is_chain(&self) -> bool {
        self.kind == Kind::Chain
    }

    /// The stdin of a verb for the pod of a number: CHECK and DEL get ADD's result.
    pub(crate) fn stdin(&self, verb: Verb, number: u32, result: &Value) -> String {
        let mut config = self.config.clone();
        if let Some(port) = config.pointer_mut("/runtimeConfig/portMappings/0/hostPort") {
            *port = json!(FIRST_PORT + number);
        }
        stdin(&config, verb, result)
    }

    /// The conflist of a chain.
    pub(crate) fn conflist(&self) -> Value {
        let mut first = self.config.clone();
        if let Value::Object(keys) = &mut first {
            keys.shift_remove("cniVersion");
            keys.shift_remove("name");
        }
        let plugins: Vec<_> = std::iter::once(&first).chain(&self.behind).collect();
        json!({ "cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins })
    }

    /// The plugins of a chain, and its address plugin.
    pub(crate) fn executables(&self) -> impl Iterator<Item = &str> {
        let plugins = [&self.config, &self.config["ipam"]].into_iter().chain(&self.behind);
        plugins.filter_map(|plugin| plugin["type"].as_str())
    }

    /// The runtime's arguments to the chain for one pod: ports of the node that no other pod has.
    pub(crate) fn capabilities(&self, pod: u32) -> Option<Value> {
        let port = 20_000 + pod % 40_000;
        (self.name == PORTS)
            .then(|| json!({ "portMappings": [{ "hostPort": port, "containerPort": 80, "protocol": "tcp" }] }))
    }
}

/// The config of a chained noop that passes on its prevResult.
pub(crate) fn noop_config() -> Value {
    json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": "noop" })
}

/// A config for a verb.
pub(crate) fn stdin(config: &Value, verb: Verb, result: &Value) -> String {
    let mut config = config.clone();
    if verb != Verb::Add && !result.is_null() {
        config["prevResult"] = result.clone();
    }
    config.to_string()
}
