//! Calls of plugins and of `cnitool` for a slot's pod.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testns::{Attachment, Call, Node, Verb};

use crate::network::Network;
use crate::step::By;

/// Time limit of a call: none may wait for ever.
const DEADLINE: Duration = Duration::from_secs(60);

/// A slot's pod as a runtime calls for it.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    pub(crate) node: &'a Node,
    pub(crate) slot: usize,
    /// The network's name, where it is not that of the slot's network.
    pub(crate) other_network: Option<String>,
    pub(crate) attachment: Attachment,
}

impl Target<'_> {
    fn network(&self) -> Network {
        Network::of(self.slot)
    }

    fn configs(&self) -> Vec<Value> {
        let mut all = self.network().configs(self.slot);
        if let Some(network) = &self.other_network {
            all.iter_mut().for_each(|config| config["name"] = network.as_str().into());
        }
        all
    }

    pub(crate) fn add(&self, by: By) -> Result<Value, String> {
        if by == By::Cnitool {
            return self.cnitool("add").map(|text| serde_json::from_str(&text).expect("a result"));
        }
        let mut result = None;
        for config in self.configs() {
            result = Some(self.one(by, Verb::Add, &config, result.as_ref())?);
        }
        Ok(result.expect("a plugin"))
    }

    pub(crate) fn add_twice(&self, by: By) -> [Result<Value, String>; 2] {
        let start = Barrier::new(2);
        let add = || {
            start.wait();
            self.add(by)
        };
        std::thread::scope(|scope| [scope.spawn(add), scope.spawn(add)].map(|call| call.join().expect("an outcome")))
    }

    /// CHECK of the whole list by our plugins.
    pub(crate) fn check(&self, result: &Value) -> Result<(), String> {
        self.configs().iter().try_for_each(|config| self.one(By::Ours, Verb::Check, config, Some(result)).map(drop))
    }

    pub(crate) fn del(&self, by: By, result: Option<&Value>) -> Result<(), String> {
        if by == By::Cnitool {
            return self.cnitool("del").map(drop);
        }
        self.configs().iter().rev().try_for_each(|config| self.one(by, Verb::Del, config, result).map(drop))
    }

    pub(crate) fn del_interface(&self) -> Result<(), String> {
        self.one(By::Ours, Verb::Del, &self.configs().remove(0), None).map(drop)
    }

    /// ADD or DEL of the interface plugin, killed before its `n`th state-changing system call.
    pub(crate) fn killed(&self, verb: Verb, n: usize) {
        let config = self.configs().remove(0);
        drop(self.call(By::Ours, verb, &config, None).kill_before(self.node, n));
    }

    fn call(&self, by: By, verb: Verb, config: &Value, result: Option<&Value>) -> Call {
        let folder = match by {
            By::Cnitool | By::Ours => self.node.bin_dir(),
            By::Theirs => testns::find_reference().expect("the reference's plugins").to_owned(),
        };
        let plugin = folder.join(config["type"].as_str().expect("a type"));
        let call = Call::new(verb, config, &self.attachment).deadline(DEADLINE).plugin(&plugin.display().to_string());
        let call = call.variable("CNI_PATH", &folder.display().to_string());
        // The reference's plugins call iptables; ours need no program.
        let call = if by == By::Theirs { call.variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin") } else { call };
        result.map_or(call.clone(), |result| call.prev_result(result))
    }

    fn one(&self, by: By, verb: Verb, config: &Value, result: Option<&Value>) -> Result<Value, String> {
        let kind = &config["type"];
        let reply = self.call(by, verb, config, result).try_run(self.node);
        let reply = reply.ok_or_else(|| format!("{verb} of {kind} by {by:?} takes longer than {DEADLINE:?}"))?;
        if reply.output.code() == 0 {
            return Ok(serde_json::from_str(&reply.output.stdout).unwrap_or_default());
        }
        let error: Value = serde_json::from_str(&reply.output.stdout).unwrap_or_default();
        Err(format!("{verb} of {kind} by {by:?}: {} {}", error["msg"], error["details"]))
    }

    fn command(&self, verb: &str) -> Command {
        let Attachment { container_id, netns, .. } = &self.attachment;
        let network = self.other_network.as_deref().unwrap_or(self.network().name());
        let mut command = Command::new(testns::cnitool());
        command.args([verb, network, netns, "--container-id", container_id]).env_clear();
        let capabilities = self.network().capabilities(self.slot).to_string();
        command.env("CNI_PATH", self.node.bin_dir()).env("CAP_ARGS", capabilities);
        command
    }

    fn cnitool(&self, verb: &str) -> Result<String, String> {
        run(self.command(verb))
    }

    /// `cnitool add`, killed after a while.
    pub(crate) fn killed_runtime(&self, time: Duration) {
        let mut command = self.command("add");
        let mut runtime =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start cnitool");
        // Any moment is as good as another.
        std::thread::sleep(time);
        kill(Pid::from_raw(runtime.id().cast_signed()), Signal::SIGKILL).ok();
        runtime.wait().expect("see the end of cnitool");
    }
}

/// GC of each of the network's plugins, with a list of valid attachments and one of those that were seen.
pub(crate) fn collect(node: &Node, network: Network, valid: &[Attachment], seen: Option<&[Attachment]>) {
    for config in network.configs(network.0) {
        collect_one(node, None, config, valid, seen);
    }
}

pub(crate) fn collect_addresses(node: &Node, network: Network, valid: &[Attachment]) {
    collect_one(node, Some("host-local"), network.configs(network.0).remove(0), valid, None);
}

fn collect_one(
    node: &Node,
    plugin: Option<&str>,
    mut config: Value,
    valid: &[Attachment],
    seen: Option<&[Attachment]>,
) {
    let list = |all: &[Attachment]| -> Value {
        all.iter().map(|one| json!({"containerID": one.container_id, "ifname": one.ifname})).collect()
    };
    config["cni.dev/valid-attachments"] = list(valid);
    if let Some(seen) = seen {
        config["cni-plugins/seen"] = list(seen);
    }
    let call = Call::new(Verb::Gc, config, Attachment::none()).deadline(DEADLINE).without("PATH");
    let call = plugin.map_or(call.clone(), |plugin| call.plugin(plugin));
    // An object that cannot be removed yet is reported; the next call removes it.
    drop(call.run(node));
}

pub(crate) fn cnitool(node: &Node, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(testns::cnitool());
    command.args(words).env_clear().env("CNI_PATH", node.bin_dir());
    run(command)
}

fn run(command: Command) -> Result<String, String> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let words = words.join(" ");
    let output = testns::try_run(command, b"", DEADLINE);
    let output = output.ok_or_else(|| format!("cnitool {words} takes longer than {DEADLINE:?}"))?;
    match output.code() {
        0 => Ok(output.stdout),
        code => Err(format!("cnitool {words} ends with {code}: {}", output.stderr.trim_end())),
    }
}
