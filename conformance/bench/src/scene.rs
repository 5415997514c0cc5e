//! The calls: networks, and the input of each verb.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testns::{Call, Container, Node, Output, Subject, Verb};

/// A network, or a call without any.
#[derive(Debug, Clone)]
pub struct Scene {
    /// As in the tables, and in `--only`.
    pub(crate) name: &'static str,
    /// Whether `cnitool` is called, with a bridge and others behind it, and not a plugin.
    pub(crate) is_chain: bool,
    /// The network config; of a chain, of its first plugin.
    pub(crate) config: Value,
    pub(crate) verbs: &'static [Verb],
    /// Of a chain: the configs of the plugins behind the first.
    behind: Vec<Value>,
}

const LIFE: &[Verb] = &[Verb::Add, Verb::Check, Verb::Del];

/// The name of every network here.
pub(crate) const NETWORK: &str = "pods";
/// Where cnitool finds the network.
pub(crate) const NET_D: &str = "/etc/cni/net.d";
/// The link of the node that macvlans are on.
const MASTER: &str = "uplink";

const V4: &str = "10.88.0.0/16";
const V6: &str = "fd00:88::/64";

pub(crate) fn all() -> Vec<Scene> {
    let rules = json!({ "rules": "shared" });
    let shared = bridge("bridge-masq-shared", with(json!({ "ipMasq": true }), rules.clone()));
    let iptables = json!({ "backend": "iptables" });
    let alone = [
        plugin("portmap", "portmap", LIFE, json!({})),
        plugin("portmap-shared", "portmap", LIFE, rules.clone()),
        plugin("firewall", "firewall", LIFE, iptables.clone()),
        plugin("firewall-shared", "firewall", LIFE, with(iptables, rules)),
    ];
    counted().into_iter().chain([full_chain(), shared]).chain(alone).chain([egress()]).collect()
}

/// A bridge, and a firewall with a policy behind it.
fn egress() -> Scene {
    let policy = json!({ "deny": ["metadata", "private"] });
    let firewall = json!({ "type": "firewall", "backend": "iptables", "rules": "shared", "egressPolicy": policy });
    Scene { is_chain: true, behind: vec![firewall], ..bridge("egress", json!({})) }
}

pub(crate) fn counted() -> Vec<Scene> {
    vec![
        plugin("version", "bridge", &[Verb::Version], json!({})),
        plugin("loopback", "loopback", LIFE, json!({})),
        plugin("host-local", "host-local", LIFE, json!({ "ipam": ipam() })),
        bridge("bridge", json!({})),
        bridge("bridge-masq", json!({ "ipMasq": true })),
        bridge("bridge-dual", json!({ "ipam": dual() })),
        bridge("bridge-masq-dual", json!({ "ipMasq": true, "ipam": dual() })),
        plugin("ptp", "ptp", LIFE, json!({ "ipam": ipam() })),
        plugin("macvlan", "macvlan", LIFE, json!({ "master": MASTER, "ipam": ipam() })),
        chain(),
    ]
}

/// A bridge and four noops, which show what chaining costs by itself.
fn chain() -> Scene {
    // A noop answers `{}`, so there is nothing that CHECK could compare with.
    let behind = vec![json!({ "type": "noop" }); 4];
    Scene { is_chain: true, verbs: &[Verb::Add, Verb::Del], behind, ..bridge("chain", json!({})) }
}

/// The chain of most nodes, without a mapped port, with which CHECK of the reference fails.
fn full_chain() -> Scene {
    /// Nothing is sent.
    const RATE_BITS: u32 = 80_000_000;
    let behind = json!([
        { "type": "portmap", "capabilities": { "portMappings": true } },
        { "type": "firewall", "backend": "iptables" },
        { "type": "tuning", "mtu": 1400, "sysctl": { "net.core.somaxconn": "500" } },
        { "type": "bandwidth", "ingressRate": RATE_BITS, "ingressBurst": RATE_BITS, "egressRate": RATE_BITS,
          "egressBurst": RATE_BITS },
    ]);
    let behind = behind.as_array().cloned().unwrap_or_default();
    Scene { is_chain: true, behind, ..bridge("full-chain", json!({ "ipMasq": true })) }
}

fn bridge(name: &'static str, own: Value) -> Scene {
    let base = json!({ "bridge": "cni0", "isDefaultGateway": true, "ipam": ipam() });
    plugin(name, "bridge", LIFE, with(base, own))
}

fn plugin(name: &'static str, plugin: &'static str, verbs: &'static [Verb], own: Value) -> Scene {
    // No call that is measured differs in 1.1.0.
    let base = json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": plugin });
    Scene { name, is_chain: false, config: with(base, own), verbs, behind: Vec::new() }
}

fn ipam() -> Value {
    json!({ "type": "host-local", "subnet": V4 })
}

fn dual() -> Value {
    json!({ "type": "host-local", "ranges": [[{ "subnet": V4 }], [{ "subnet": V6 }]] })
}

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
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether `cnitool` is called, and not a plugin.
    pub fn is_chain(&self) -> bool {
        self.is_chain
    }

    /// Starts a node that has copies of the plugins, `cnitool`, and what the scene needs.
    pub(crate) fn start_node(&self, plugins: &Subject, cnitool: Option<&Path>) -> Result<Node, String> {
        let node = Node::new();
        // Into the node's memory: how many pages a fault maps hangs on how a file system happens to hold the file.
        let copies = node.work_dir().join("copies");
        let copy = |from: &Path, name: &str| {
            let to = copies.join(name);
            fs::copy(from, &to).map(|_| to).map_err(|error| format!("cannot copy {}: {error}", from.display()))
        };
        let io = |error: std::io::Error| format!("cannot prepare a node: {error}");
        fs::create_dir_all(&copies).and_then(|()| fs::create_dir_all(NET_D)).map_err(io)?;
        node.install(&match plugins {
            Subject::Multicall(executable) => Subject::Multicall(copy(executable, "cni-plugins")?),
            Subject::Folder(_) => {
                for (name, executable) in plugins.executables() {
                    copy(&executable, &name)?;
                }
                Subject::Folder(copies.clone())
            }
        });
        if let Some(cnitool) = cnitool {
            let copied = copy(cnitool, "cnitool-itself")?;
            symlink(copied, node.work_dir().join("cnitool")).map_err(io)?;
        }
        fs::write(PathBuf::from(NET_D).join("pods.conflist"), self.conflist().to_string()).map_err(io)?;
        if self.config["master"] == MASTER {
            node.host().add_veth(MASTER, &node.remote("outside"), "outside");
        }
        Ok(node)
    }

    /// The same on a bridge of its own, which has as many ports as its kernel serves well.
    pub(crate) fn on_bridge(&self, number: usize) -> Self {
        let mut other = self.clone();
        if other.config["type"] == "bridge" {
            other.config["bridge"] = json!(format!("other{number}"));
            other.config["ipam"] = json!({ "type": "host-local", "subnet": format!("10.{}.0.0/16", 100 + number) });
        }
        other
    }

    /// Returns a verb's call for a pod; CHECK and DEL get ADD's result, if there is one.
    pub(crate) fn call(&self, verb: Verb, node: &Node, pod: &Container, result: &Value) -> Invocation {
        if self.config["type"] == "portmap" || self.config["type"] == "firewall" {
            return self.call_behind_none(verb, node, pod);
        }
        if self.is_chain {
            return Invocation::of_cnitool(node, &verb.to_string(), pod.namespace().path());
        }
        let call = Call::new(verb, &self.config, pod);
        Invocation::of_plugin(&if result.is_null() { call } else { call.prev_result(result) }, node)
    }

    /// Returns the call of a plugin that reads of the container in the result alone, which is made up: an address, and for portmap a port.
    fn call_behind_none(&self, verb: Verb, node: &Node, pod: &Container) -> Invocation {
        let number: u16 = pod.id().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        let [high, low] = number.to_be_bytes();
        let interface = json!({ "name": "eth0", "sandbox": pod.namespace().path() });
        let ip = json!({ "address": format!("10.88.{high}.{low}/16"), "interface": 0 });
        let result = json!({ "cniVersion": "1.0.0", "interfaces": [interface], "ips": [ip] });
        let port = json!({ "hostPort": 10_000 + number, "containerPort": 80, "protocol": "tcp" });
        let config = with(self.config.clone(), json!({ "runtimeConfig": { "portMappings": [port] } }));
        Invocation::of_plugin(&Call::new(verb, &config, pod).prev_result(&result), node)
    }

    fn conflist(&self) -> Value {
        let mut first = self.config.clone();
        if let Value::Object(keys) = &mut first {
            keys.shift_remove("cniVersion");
            keys.shift_remove("name");
        }
        let plugins: Vec<_> = std::iter::once(&first).chain(&self.behind).collect();
        json!({ "cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins })
    }
}

/// A call takes milliseconds, a hundred times that under valgrind.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) executable: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) stdin: String,
}

impl Invocation {
    pub(crate) fn of_plugin(call: &testns::Call, node: &Node) -> Self {
        let (executable, environment, stdin) = call.invocation(node);
        Self { executable, arguments: Vec::new(), environment, stdin }
    }

    pub(crate) fn of_cnitool(node: &Node, verb: &str, netns: &Path) -> Self {
        let netns = netns.display().to_string();
        let environment = [("CNI_PATH", node.bin_dir()), ("NETCONFPATH", PathBuf::from(crate::scene::NET_D))];
        Self {
            executable: node.work_dir().join("cnitool"),
            arguments: vec![verb.to_lowercase(), crate::scene::NETWORK.to_owned(), netns],
            environment: environment.map(|(name, path)| (name.to_owned(), path.display().to_string())).to_vec(),
            stdin: String::new(),
        }
    }

    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes it behind `before`, a program that runs programs, or by itself.
    pub(crate) fn run(&self, before: &[String]) -> Output {
        let mut arguments = before.iter().cloned().chain([self.executable.display().to_string()]);
        let mut command = Command::new(arguments.next().unwrap_or_default());
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(arguments).args(&self.arguments).env_clear().envs(environment);
        testns::run(command, self.stdin.as_bytes(), DEADLINE)
    }
}
