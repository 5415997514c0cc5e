//! The testbed of a case for runtimes: a throwaway node whose plugins are mock plugins, and runs of the runtime.

mod command_line;
mod received;

use super::daemon::Daemon;
use super::driver::Driver;
use super::foreground_run::ForegroundRun;
use super::mock_plugin;
use super::trial::Trial;
use crate::finding::{CallRecord, Finding, Stop};
use crate::runtime::mock_plugin::Order;
use crate::write_protection::lay_empty;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};
use testns::{Attachment, Container, Node, Output, Verb};

/// Name of the network, unless a case is about names.
pub(super) const NETWORK: &str = "conformance";
/// Endings of the names of the mock plugins that are there.
const MOCK_PLUGINS: [&str; 3] = ["a", "b", "c"];
/// The value, in the runtime's environment, of variables of the protocol that its driver does not set.
pub(super) const STALE: &str = "stale";

const CONF_DIR: &str = "/etc/cni/net.d";

/// A throwaway node for one case. Threads may share it.
#[derive(Debug)]
pub struct RuntimeTestbed {
    /// The node. Make containers with [`RuntimeTestbed::request`].
    pub node: Node,
    pub driver: Driver,
    pub version: String,
    seed: u64,
    /// The longest time that a runtime may wait for a plugin that hangs, if that is to be tried.
    pub patience: Option<Duration>,
    command: Vec<String>,
    deadline: Duration,
    state: Mutex<State>,
    /// Runs as long as the testbed is there.
    daemon: Option<Daemon>,
}

/// Names and values.
pub(super) type Variables = Vec<(String, String)>;

#[derive(Debug, Default)]
struct State {
    containers: usize,
    calls: Vec<CallRecord>,
    /// Calls of mock plugins that are forgotten, and that are recorded.
    forgotten: usize,
    recorded: usize,
    /// Runs of ADD that last as long as their containers, by container ID, and how many there were.
    stays: BTreeMap<String, ForegroundRun>,
    stayed: usize,
}

/// The network, container and arguments of an operation of the runtime.
#[derive(Debug, Clone)]
pub struct Request {
    pub network: String,
    /// The container, as far as the driver lets the kit choose.
    pub attachment: Attachment,
    /// The same as an object: its namespace can be made to vanish.
    pub container: Container,
    pub args: Vec<(String, String)>,
    /// Capability arguments, an object.
    pub capabilities: Option<Value>,
    /// Attachments that GC keeps, as `CONTAINER/IFNAME`.
    pub keep: Vec<String>,
}

impl RuntimeTestbed {
    pub(crate) fn new(node: Node, trial: &Trial, kit: &Path) -> io::Result<Self> {
        for folder in &trial.driver.folders {
            let laid = lay_empty(Path::new(folder), "mode=0755");
            laid.map_err(|errno| io::Error::other(format!("cannot lay an empty folder over {folder}: {errno}")))?;
        }
        mock_plugin::install(&node.bin_dir(), kit, &MOCK_PLUGINS)?;
        mock_plugin::install(&node.work_dir().join("more"), kit, &["a", "far"])?;
        fs::create_dir_all(CONF_DIR)?;
        if trial.driver.needs_root {
            let root = node.work_dir().join("root");
            fs::create_dir_all(&root)?;
            fs::copy(kit, root.join("pause"))?;
        }
        let mut testbed = Self {
            node,
            driver: trial.driver.clone(),
            version: trial.version.clone(),
            seed: trial.seed,
            patience: trial.patience_seconds.map(Duration::from_secs),
            command: trial.command.clone(),
            deadline: Duration::from_secs(trial.call_seconds),
            state: Mutex::default(),
            daemon: None,
        };
        for (path, text) in &testbed.driver.files {
            let path = PathBuf::from(testbed.filled(path, None));
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(path, testbed.filled(text, None))?;
        }
        for (link, target) in &testbed.driver.links {
            let link = PathBuf::from(testbed.filled(link, None));
            fs::create_dir_all(link.parent().unwrap_or(Path::new("/")))?;
            symlink(testbed.filled(target, None), link)?;
        }
        if !testbed.driver.daemon.is_empty() {
            let arguments: Vec<_> = testbed.driver.daemon.iter().map(|word| testbed.filled(word, None)).collect();
            testbed.daemon = Some(Daemon::start(&arguments, testbed.surroundings(), testbed.node.work_dir())?);
        }
        Ok(testbed)
    }

    /// A request for a new container with a new network namespace, interface `eth0`.
    pub fn request(&self) -> Request {
        let number = self.with_state(|state| {
            state.containers += 1;
            state.containers
        });
        let container = self.node.container_named(&format!("container-{:x}-{number}", self.seed));
        Request {
            network: NETWORK.to_owned(),
            attachment: container.attachment(),
            container,
            args: Vec::new(),
            capabilities: None,
            keep: Vec::new(),
        }
    }

    /// Makes a mock plugin a file of its own that is open for writing as long as what is returned.
    pub fn keep_busy(&self, plugin: usize) -> fs::File {
        let name = MOCK_PLUGINS.get(plugin - 1).copied().unwrap_or_default();
        let link = self.node.bin_dir().join(format!("{}-{name}", mock_plugin::PREFIX));
        let (own, real) = (link.with_extension("own"), fs::canonicalize(&link));
        let laid = real.and_then(|real| fs::copy(real, &own)).and_then(|_| fs::rename(&own, &link));
        let opened = laid.and_then(|()| fs::OpenOptions::new().append(true).open(&link));
        opened.unwrap_or_else(|error| panic!("cannot write {}: {error}", link.display()))
    }

    /// The folders of plugins, in the order of `CNI_PATH`.
    pub fn bin_dirs(&self) -> [PathBuf; 2] {
        [self.node.bin_dir(), self.node.work_dir().join("more")]
    }

    /// Skips a case that needs something which the runtime chooses itself.
    pub fn needs(&self, placeholder: &str) -> Result<(), Stop> {
        match self.driver.gives(placeholder) {
            true => Ok(()),
            false => {
                let name = &self.driver.name;
                Err(Stop::Skips(format!("{name}'s driver has no way to say {{{placeholder}}}")))
            }
        }
    }

    /// Has the runtime do something and waits for its end.
    pub fn run(&self, verb: Verb, request: &Request) -> Result<FinishedRun, Stop> {
        self.run_within(verb, request, self.deadline)
    }

    /// The same with another deadline.
    pub fn run_within(&self, verb: Verb, request: &Request, deadline: Duration) -> Result<FinishedRun, Stop> {
        let (arguments, environment) = self.line(verb, request)?;
        let mut command = Command::new(arguments.first().map(String::as_str).unwrap_or_default());
        command.args(arguments.iter().skip(1)).env_clear().envs(environment.iter().cloned());
        command.current_dir(self.node.work_dir());
        let output = match (self.driver.stays, verb) {
            (true, Verb::Add) => self.stay(command, request, deadline),
            (true, Verb::Del) => self.end_stay(command, request, deadline),
            _ => testns::try_run(command, b"", deadline),
        };
        self.record(&arguments, environment, output.as_ref(), deadline);
        match output {
            Some(output) => Ok(FinishedRun { arguments, output }),
            None => {
                let seen = format!("the runtime did not end within {} s", deadline.as_secs());
                Err(Finding::new(format!("an end of {verb}"), seen).into())
            }
        }
    }

    /// The same for a run that has to succeed. ADD does not without the call of a plugin. Where no ADD succeeds, nothing is known of most
    /// rules.
    pub fn does(&self, verb: Verb, request: &Request) -> Result<FinishedRun, Stop> {
        let basis = (verb == Verb::Add).then_some("call.command");
        let known = self.received_of(verb).len();
        let ran = self.run(verb, request).and_then(FinishedRun::succeeds).map_err(|stop| stop.of_call(basis))?;
        if verb == Verb::Add && self.received_of(verb).len() == known {
            let finding = Finding::new(format!("a plugin is called with {verb}"), "none was");
            return Err(finding.of_call(basis).into());
        }
        Ok(ran)
    }

    /// Shows that ADD and DEL of another container work, and forgets them: where it is expected that ADD fails, or that
    /// no plugin is called, a runtime that never does anything is to get no praise.
    pub fn works(&self) -> Result<(), Stop> {
        self.lay(&self.list(&[self.plugin(1)]));
        let request = self.request();
        self.does(Verb::Add, &request)?;
        self.does(Verb::Del, &request)?;
        self.forget();
        Ok(())
    }

    /// ADD of a runtime whose run lasts as long as the container.
    fn stay(&self, command: Command, request: &Request, deadline: Duration) -> Option<Output> {
        let number = self.with_state(|state| {
            state.stayed += 1;
            state.stayed
        });
        let program = command.get_program().display().to_string();
        let stay = ForegroundRun::start(command, self.node.work_dir().join(format!("stderr-{number}")));
        let stay = stay.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let id = request.attachment.container_id.clone();
        self.with_state(|state| state.stays.insert(id, stay.clone()));
        stay.attached(deadline)
    }

    /// DEL of one: the end of the run of ADD.
    fn end_stay(&self, command: Command, request: &Request, deadline: Duration) -> Option<Output> {
        let stay = self.with_state(|state| state.stays.get(&request.attachment.container_id).cloned());
        ForegroundRun::end(stay, command, deadline)
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Clone)]
pub struct FinishedRun {
    pub arguments: Vec<String>,
    /// The output and exit status of the run.
    pub output: Output,
}

impl FinishedRun {
    pub fn succeeds(self) -> Result<Self, Stop> {
        match self.output.code() {
            0 => Ok(self),
            code => Err(Finding::new(
                format!("{} succeeds", self.described()),
                format!("it ended with {code}: {}", self.output.stderr.trim()),
            )
            .into()),
        }
    }

    /// Checks that the run failed, other than by a signal.
    pub fn fails(self, why: &str) -> Result<Self, Stop> {
        let end = match self.output.code() {
            0 => "it succeeded".to_owned(),
            code if code > 128 => format!("it ended with {code}"),
            _ => return Ok(self),
        };
        Err(Finding::new(format!("{} fails: {why}", self.described()), end).into())
    }

    /// Returns the run's arguments without the folder of the program.
    fn described(&self) -> String {
        let program = self.arguments.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        std::iter::once(program).chain(self.arguments.iter().skip(1).map(String::as_str)).collect::<Vec<_>>().join(" ")
    }
}

impl RuntimeTestbed {
    /// The plugin object of a mock plugin at a place of the list, from 1.
    pub fn plugin(&self, place: u8) -> Value {
        self.plugin_with(place, &[])
    }

    /// The same with orders, in place of earlier ones.
    pub fn plugin_with(&self, place: u8, orders: &[(Verb, Order)]) -> Value {
        let orders = orders.iter().map(|(verb, order)| (verb.to_string(), order.clone())).collect();
        mock_plugin::order(place, &orders).unwrap_or_else(|error| panic!("cannot give orders to a plugin: {error}"));
        let ending = MOCK_PLUGINS.get(usize::from(place) - 1).unwrap_or(&"a");
        json!({ "type": format!("{}-{ending}", mock_plugin::PREFIX), mock_plugin::KEY: place })
    }

    pub fn list(&self, plugins: &[Value]) -> Value {
        json!({ "cniVersion": self.version, "name": NETWORK, "plugins": plugins })
    }

    /// Lays a network's list in the folder of configs, in place of the one before.
    pub fn lay(&self, list: &Value) {
        self.lay_text(&list.to_string());
    }

    /// The same as text.
    pub fn lay_text(&self, list: &str) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::write(&file, list).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }

    /// Lays a list of three mock plugins that succeed.
    pub fn lay_three(&self) {
        self.lay(&self.list(&[self.plugin(1), self.plugin(2), self.plugin(3)]));
    }

    /// Puts a plugin object into the folder of the network's own.
    pub fn lay_aside(&self, name: &str, plugin: &Value) {
        let folder = Path::new(CONF_DIR).join(NETWORK);
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), plugin.to_string()));
        written.unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    }

    pub fn take_away(&self) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::remove_file(file).unwrap_or_else(|error| panic!("cannot remove the list: {error}"));
    }
}
