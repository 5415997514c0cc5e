//! Runtimes on a node, which run chains of plugins: `libcni` in this process, `cnitool` in a process of its own, and no
//! runtime, where the test calls the plugins one by one as SPEC 3 says.

use crate::configs::with;
use crate::subjects::skip;
pub(crate) use conformance::wait;
use libcni::cni_spec::SpecVersion;
use libcni::{CapabilityArgs, NetworkConf, Runtime};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::Command;
use testns::{Attachment, Call, Node, Reply, Verb};

/// The source of each plugin of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    Reference,
    /// Ours, and the reference's for types that we lack: a node on the day of its migration.
    OursFirst,
}

impl Set {
    /// A new node whose folder of plugins has this set. `None`, with a SKIP line, where the set is not available.
    pub(crate) fn node(self) -> Option<Node> {
        let reference = crate::subjects::reference_or_skip()?;
        if !is_in_path("iptables") {
            skip("no iptables in PATH, which the reference's plugins need");
            return None;
        }
        let node = Node::with(&reference);
        if self == Self::OursFirst {
            for entry in cni_plugins::ENTRIES {
                node.install_one(&crate::subjects::ours(), entry.name);
            }
        }
        Some(node)
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// The driver of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The test itself calls one plugin after the other.
    ByHand,
    /// Our library.
    Libcni,
    /// Our command line.
    Cnitool,
}

/// A container's attachment to a network, by one driver.
pub(crate) struct Chain<'a> {
    pub(crate) node: &'a Node,
    pub(crate) driver: Driver,
    /// The conflist.
    pub(crate) network: &'a Value,
    /// What the runtime offers, by capability.
    pub(crate) capabilities: &'a Value,
    pub(crate) attachment: Attachment,
}

impl Chain<'_> {
    /// ADD; the last plugin's result.
    pub(crate) fn add(&self) -> Result<Value, String> {
        match self.driver {
            Driver::ByHand => self.forward(Verb::Add, None).map(|last| last.expect("a result")),
            Driver::Libcni => {
                let (network, attachment) = self.for_libcni();
                let result = wait(self.libcni().add(&network, &attachment)).map_err(|error| error.to_string())?;
                Ok(result.to_value(self.version()).expect("the version can express it"))
            }
            Driver::Cnitool => self.cnitool("add").map(|text| serde_json::from_str(&text).expect("a result")),
        }
    }

    /// CHECK, with the result of ADD, which runtimes keep in their cache.
    pub(crate) fn check(&self, result: &Value) -> Result<(), String> {
        match self.driver {
            Driver::ByHand => self.forward(Verb::Check, Some(result)).map(drop),
            Driver::Libcni => {
                let (network, attachment) = self.for_libcni();
                wait(self.libcni().check(&network, &attachment)).map_err(|error| error.to_string())
            }
            Driver::Cnitool => self.cnitool("check").map(drop),
        }
    }

    /// DEL, with the result of ADD from version 0.4.0 on.
    pub(crate) fn del(&self, result: &Value) -> Result<(), String> {
        match self.driver {
            Driver::ByHand => {
                let prev_result = Some(result).filter(|_| self.version() >= SpecVersion::V0_4_0);
                self.plugins().iter().rev().try_for_each(|plugin| self.call(Verb::Del, plugin, prev_result).map(drop))
            }
            Driver::Libcni => {
                let (network, attachment) = self.for_libcni();
                wait(self.libcni().del(&network, &attachment)).map_err(|error| error.to_string())
            }
            Driver::Cnitool => self.cnitool("del").map(drop),
        }
    }

    fn version(&self) -> SpecVersion {
        SpecVersion::find(self.network["cniVersion"].as_str().expect("a version")).expect("a released version")
    }

    fn plugins(&self) -> &[Value] {
        self.network["plugins"].as_array().expect("a list")
    }

    /// Calls all plugins in order: ADD each with the result before it, CHECK each with ADD's result.
    fn forward(&self, verb: Verb, result: Option<&Value>) -> Result<Option<Value>, String> {
        let mut prev_result = result.cloned();
        for plugin in self.plugins() {
            let answer = self.call(verb, plugin, prev_result.as_ref())?;
            if verb == Verb::Add {
                prev_result = Some(answer);
            }
        }
        Ok(prev_result)
    }

    /// Calls a plugin with the config that SPEC 3 derives for it.
    fn call(&self, verb: Verb, plugin: &Value, prev_result: Option<&Value>) -> Result<Value, String> {
        let mut config = plugin.as_object().expect("a plugin").clone();
        let wanted = config.remove("capabilities").unwrap_or_default();
        let offered = self.capabilities.as_object().expect("an object").iter();
        let runtime_config: Map<_, _> = offered
            .filter(|(name, _)| wanted[name.as_str()] == json!(true))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !runtime_config.is_empty() {
            config.insert("runtimeConfig".to_owned(), runtime_config.into());
        }
        let common = json!({"name": self.network["name"], "cniVersion": self.network["cniVersion"]});
        let mut call = Call::new(verb, with(config.into(), common), &self.attachment);
        if let Some(result) = prev_result {
            call = call.prev_result(result);
        }
        let reply = call.run(self.node);
        if reply.output.code() == 0 {
            return Ok(reply.ok());
        }
        Err(in_words(verb, plugin, &reply))
    }

    fn libcni(&self) -> Runtime {
        Runtime::builder().plugin_dirs([self.node.bin_dir()]).build()
    }

    fn for_libcni(&self) -> (NetworkConf, libcni::Attachment) {
        let network = NetworkConf::parse(self.network.to_string().as_bytes()).expect("a network");
        let Attachment { container_id, netns, ifname } = &self.attachment;
        let mut attachment = libcni::Attachment::new(container_id, ifname).expect("names").netns(netns);
        attachment.capability_args = CapabilityArgs::parse(&self.capabilities.to_string()).expect("arguments");
        (network, attachment)
    }

    fn cnitool(&self, verb: &str) -> Result<String, String> {
        let file = self.node.work_dir().join("network.conflist");
        std::fs::write(&file, self.network.to_string()).expect("write the network");
        let mut command = cnitool(&self.node.bin_dir());
        let Attachment { container_id, netns, ifname } = &self.attachment;
        command.arg(verb).arg(&file).args([netns, "--container-id", container_id, "--ifname", ifname]);
        // `check` and `del` use what `add` recorded.
        command.args(["--cap-args", &self.capabilities.to_string()].iter().filter(|_| verb == "add"));
        let output = command.output().expect("run cnitool");
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).expect("text")),
            false => Err(String::from_utf8(output.stderr).expect("text")),
        }
    }
}

/// `cnitool` on the plugins of a folder.
pub(crate) fn cnitool(bin_dir: &Path) -> Command {
    let mut command = Command::new(testns::cnitool());
    command.env_clear().env("CNI_PATH", bin_dir).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// A failure in the words of our library.
fn in_words(verb: Verb, plugin: &Value, reply: &Reply) -> String {
    let error = reply.fails();
    let verb = verb.to_string().to_lowercase();
    let error = cni_spec::CniError::new(cni_spec::Code::INTERNAL, error.msg).detail(error.details);
    format!("plugin type={} failed ({verb}): {error}", plugin["type"])
}
