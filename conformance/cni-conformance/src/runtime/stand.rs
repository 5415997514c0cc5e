//! What a case for runtimes works with: a throwaway node whose plugins are judges, and runs of the runtime.

use super::daemon::Daemon;
use super::driver::Driver;
use super::judge::{self, Brief, Heard, Order};
use super::stay::Stay;
use super::trial::Trial;
use crate::finding::{CallRecord, Finding, Stop};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use testns::{Attachment, Container, Node, Output, Verb};

/// Name of the network, unless a case is about names.
pub(super) const NETWORK: &str = "conformance";
/// Endings of the names of the judges that are there.
const JUDGES: [&str; 3] = ["a", "b", "c"];
/// What the environment of the runtime has in variables of the protocol that its driver does not set.
pub(super) const STALE: &str = "stale";

const CONF_DIR: &str = "/etc/cni/net.d";

/// A throwaway node for one case. Threads may share it.
#[derive(Debug)]
pub struct Stand {
    /// The node. Make containers with [`Stand::request`].
    pub node: Node,
    /// How the runtime is driven.
    pub driver: Driver,
    /// `cniVersion` of the network.
    pub version: String,
    /// How long a runtime may wait for a plugin that hangs, if that is to be tried.
    pub patience: Option<Duration>,
    command: Vec<String>,
    deadline: Duration,
    told: Mutex<Told>,
    /// Runs as long as the stand is there.
    daemon: Option<Daemon>,
}

/// Names and values.
pub(super) type Variables = Vec<(String, String)>;

#[derive(Debug, Default)]
struct Told {
    containers: usize,
    calls: Vec<CallRecord>,
    /// Calls of judges that are forgotten, and that are recorded.
    forgotten: usize,
    recorded: usize,
    /// Runs of ADD that last as long as their containers, by container ID, and how many there were.
    stays: BTreeMap<String, Stay>,
    stayed: usize,
}

/// What a runtime is to do, and with what.
#[derive(Debug, Clone)]
pub struct Request {
    /// Name of the network.
    pub network: String,
    /// The container, as far as the driver lets the kit choose.
    pub attachment: Attachment,
    /// The same as an object: its namespace can be made to vanish.
    pub container: Container,
    /// `CNI_ARGS`.
    pub args: Vec<(String, String)>,
    /// Capability arguments, an object.
    pub capabilities: Option<Value>,
    /// Attachments that GC keeps, as `CONTAINER/IFNAME`.
    pub keep: Vec<String>,
}

/// A run of the runtime that ended.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The words it was started with.
    pub words: Vec<String>,
    /// How it ended.
    pub output: Output,
}

impl Stand {
    /// The stand of a trial.
    ///
    /// # Errors
    /// If it cannot be laid.
    pub(crate) fn new(node: Node, trial: &Trial, kit: &Path) -> io::Result<Self> {
        for folder in &trial.driver.folders {
            lay_over(folder)?;
        }
        judge::install(&node.bin_dir(), kit, &JUDGES)?;
        judge::install(&node.work_dir().join("more"), kit, &["a", "far"])?;
        fs::create_dir_all(CONF_DIR)?;
        if trial.driver.needs_root {
            let root = node.work_dir().join("root");
            fs::create_dir_all(&root)?;
            fs::copy(kit, root.join("pause"))?;
        }
        let mut stand = Self {
            node,
            driver: trial.driver.clone(),
            version: trial.version.clone(),
            patience: trial.patience_seconds.map(Duration::from_secs),
            command: trial.command.clone(),
            deadline: Duration::from_secs(trial.call_seconds),
            told: Mutex::default(),
            daemon: None,
        };
        for (path, text) in &stand.driver.files {
            let path = PathBuf::from(stand.filled(path, None));
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(path, stand.filled(text, None))?;
        }
        for (link, target) in &stand.driver.links {
            let link = PathBuf::from(stand.filled(link, None));
            fs::create_dir_all(link.parent().unwrap_or(Path::new("/")))?;
            symlink(stand.filled(target, None), link)?;
        }
        if !stand.driver.daemon.is_empty() {
            let words: Vec<_> = stand.driver.daemon.iter().map(|word| stand.filled(word, None)).collect();
            stand.daemon = Some(Daemon::start(&words, stand.surroundings(), stand.node.work_dir())?);
        }
        Ok(stand)
    }

    /// A request for a new container with a new network namespace, interface `eth0`.
    ///
    /// # Panics
    /// When the kernel refuses a namespace.
    #[must_use]
    pub fn request(&self) -> Request {
        let number = self.with_told(|told| {
            told.containers += 1;
            told.containers
        });
        let container = self.node.container_named(&format!("container-{number}"));
        Request {
            network: NETWORK.to_owned(),
            attachment: container.attachment(),
            container,
            args: Vec::new(),
            capabilities: None,
            keep: Vec::new(),
        }
    }

    /// The plugin object of a judge at a place of the list, from 1.
    #[must_use]
    pub fn judge(&self, place: u8) -> Value {
        self.judge_with(place, &[])
    }

    /// The same with orders.
    #[must_use]
    pub fn judge_with(&self, place: u8, orders: &[(Verb, Order)]) -> Value {
        let orders = orders.iter().map(|(verb, order)| (verb.to_string(), order.clone())).collect();
        let ending = JUDGES.get(usize::from(place) - 1).unwrap_or(&"a");
        json!({ "type": format!("{}-{ending}", judge::PREFIX), judge::KEY: Brief { place, orders } })
    }

    /// A network's list with these plugin objects.
    #[must_use]
    pub fn list(&self, plugins: &[Value]) -> Value {
        json!({ "cniVersion": self.version, "name": NETWORK, "plugins": plugins })
    }

    /// Lays a network's list in the folder of configs, in place of the one before.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn lay(&self, list: &Value) {
        self.lay_text(&list.to_string());
    }

    /// The same as text.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn lay_text(&self, list: &str) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::write(&file, list).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }

    /// Lays a list of three judges that succeed.
    pub fn lay_three(&self) {
        self.lay(&self.list(&[self.judge(1), self.judge(2), self.judge(3)]));
    }

    /// Puts a plugin object into the folder of the network's own.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn lay_aside(&self, name: &str, plugin: &Value) {
        let folder = Path::new(CONF_DIR).join(NETWORK);
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), plugin.to_string()));
        written.unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    }

    /// Takes the network's list away.
    ///
    /// # Panics
    /// If it is not there.
    pub fn take_away(&self) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::remove_file(file).unwrap_or_else(|error| panic!("cannot remove the list: {error}"));
    }

    /// The folders of plugins, in the order of `CNI_PATH`.
    #[must_use]
    pub fn bin_dirs(&self) -> [PathBuf; 2] {
        [self.node.bin_dir(), self.node.work_dir().join("more")]
    }

    /// Skips a case that needs something which the runtime chooses itself.
    ///
    /// # Errors
    /// The skip.
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
    ///
    /// # Errors
    /// A skip if the runtime has no such verb, a finding if it does not end in time.
    pub fn run(&self, verb: Verb, request: &Request) -> Result<Ran, Stop> {
        self.run_within(verb, request, self.deadline)
    }

    /// The same with another deadline.
    ///
    /// # Errors
    /// As [`Stand::run`].
    pub fn run_within(&self, verb: Verb, request: &Request, deadline: Duration) -> Result<Ran, Stop> {
        let (words, environment) = self.line(verb, request)?;
        let mut command = Command::new(words.first().map(String::as_str).unwrap_or_default());
        command.args(words.iter().skip(1)).env_clear().envs(environment.iter().cloned());
        command.current_dir(self.node.work_dir());
        let output = match (self.driver.stays, verb) {
            (true, Verb::Add) => self.stay(command, request, deadline),
            (true, Verb::Del) => self.end_stay(command, request, deadline),
            _ => testns::try_run(command, b"", deadline),
        };
        self.record(&words, environment, output.as_ref(), deadline);
        match output {
            Some(output) => Ok(Ran { words, output }),
            None => {
                let seen = format!("the runtime did not end within {} s", deadline.as_secs());
                Err(Finding::new(format!("an end of {verb}"), seen).into())
            }
        }
    }

    /// The same for a run that has to succeed. ADD does not without the call of a plugin.
    ///
    /// # Errors
    /// As [`Stand::run`], and a finding if it fails.
    pub fn does(&self, verb: Verb, request: &Request) -> Result<Ran, Stop> {
        let known = self.heard_of(verb).len();
        let ran = self.run(verb, request)?.succeeds()?;
        if verb == Verb::Add && self.heard_of(verb).len() == known {
            return Err(Finding::new(format!("a plugin is called with {verb}"), "none was").into());
        }
        Ok(ran)
    }

    /// Shows that ADD and DEL of another container work, and forgets them: where it is expected that ADD fails, or that
    /// no plugin is called, a runtime that never does anything is to get no praise.
    ///
    /// # Errors
    /// As [`Stand::does`].
    pub fn works(&self) -> Result<(), Stop> {
        self.lay(&self.list(&[self.judge(1)]));
        let request = self.request();
        self.does(Verb::Add, &request)?;
        self.does(Verb::Del, &request)?;
        self.forget();
        Ok(())
    }

    /// ADD of a runtime whose run lasts as long as the container.
    fn stay(&self, command: Command, request: &Request, deadline: Duration) -> Option<Output> {
        let number = self.with_told(|told| {
            told.stayed += 1;
            told.stayed
        });
        let program = command.get_program().display().to_string();
        let stay = Stay::start(command, self.node.work_dir().join(format!("stderr-{number}")));
        let stay = stay.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let id = request.attachment.container_id.clone();
        self.with_told(|told| told.stays.insert(id, stay.clone()));
        stay.attached(deadline)
    }

    /// DEL of one: the end of the run of ADD.
    fn end_stay(&self, command: Command, request: &Request, deadline: Duration) -> Option<Output> {
        let stay = self.with_told(|told| told.stays.get(&request.attachment.container_id).cloned());
        Stay::end(stay, command, deadline)
    }

    /// What every process of the runtime has in its environment.
    fn surroundings(&self) -> Variables {
        vec![
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME".to_owned(), self.node.work_dir().display().to_string()),
        ]
    }

    /// Words and environment of a run.
    fn line(&self, verb: Verb, request: &Request) -> Result<(Vec<String>, Variables), Stop> {
        let Some(template) = self.driver.verbs.get(&verb.to_string()) else {
            return Err(Stop::Skips(format!("{} has no {verb}", self.driver.name)));
        };
        let mut words = self.command.clone();
        for word in template {
            match word.contains("{keep}") {
                true => words.extend(request.keep.iter().map(|keep| word.replace("{keep}", keep))),
                false => words.push(self.filled(word, Some(request))),
            }
        }
        let mut environment = self.surroundings();
        for name in ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            if !self.driver.environment.contains_key(name) {
                environment.push((name.to_owned(), STALE.to_owned()));
            }
        }
        let set = self.driver.environment.iter().map(|(name, value)| (name.clone(), self.filled(value, Some(request))));
        environment.extend(set.filter(|(_, value)| !value.is_empty()));
        Ok((words, environment))
    }

    /// A template with its placeholders filled in; without a request only those that are the same for all.
    fn filled(&self, template: &str, request: Option<&Request>) -> String {
        let [first, second] = self.bin_dirs().map(|dir| dir.display().to_string());
        let work = self.node.work_dir().display().to_string();
        let mut values = vec![
            ("conf_dir", CONF_DIR.to_owned()),
            ("bin_dir", format!("{first}:{second}")),
            ("first_bin_dir", first),
            ("second_bin_dir", second),
            ("root", format!("{work}/root")),
            ("work_dir", work),
        ];
        if let Some(Request { network, attachment, args, capabilities, .. }) = request {
            let args: Vec<_> = args.iter().map(|(key, value)| format!("{key}={value}")).collect();
            values.extend([
                ("network", network.clone()),
                ("netns", attachment.netns.clone()),
                ("ifname", attachment.ifname.clone()),
                ("container", attachment.container_id.clone()),
                ("name", attachment.container_id.clone()),
                ("args", args.join(";")),
                ("capabilities", capabilities.as_ref().map(Value::to_string).unwrap_or_default()),
            ]);
        }
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("{{{name}}}"), value);
        values.iter().fold(template.to_owned(), fill)
    }

    /// What judges heard since they were last forgotten, in the order in which the calls began. Calls with VERSION are
    /// left out: a runtime may ask at any time.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        let forgotten = self.with_told(|told| told.forgotten);
        judge::calls().into_iter().skip(forgotten).filter(|call| call.verb() != "VERSION").collect()
    }

    /// Those with one verb.
    #[must_use]
    pub fn heard_of(&self, verb: Verb) -> Vec<Heard> {
        self.heard().into_iter().filter(|call| call.verb() == verb.to_string()).collect()
    }

    /// Forgets what judges heard so far.
    pub fn forget(&self) {
        let count = judge::calls().len();
        self.with_told(|told| told.forgotten = count);
    }

    /// Waits until judges have heard something; `false` if that takes too long.
    ///
    /// # Panics
    /// If it cannot be waited.
    #[must_use]
    pub fn hears(&self, deadline: Duration, is_it: impl Fn(&[Heard]) -> bool) -> bool {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .unwrap_or_else(|error| panic!("inotify: {error}"));
        let added = watch.add_watch(judge::folder(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE);
        added.unwrap_or_else(|error| panic!("cannot watch the judges: {error}"));
        let start = Instant::now();
        loop {
            if is_it(&self.heard()) {
                return true;
            }
            let left = deadline.saturating_sub(start.elapsed());
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if left.is_zero() || poll(&mut fds, timeout).unwrap_or(0) == 0 {
                return is_it(&self.heard());
            }
            watch.read_events().ok(); // what they are about is looked at above
        }
    }

    fn with_told<T>(&self, work: impl FnOnce(&mut Told) -> T) -> T {
        work(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, words: &[String], environment: Variables, output: Option<&Output>, deadline: Duration) {
        let text = |of: fn(&Output) -> &String| output.map(|output| of(output).clone()).unwrap_or_default();
        let elapsed = output.map_or(deadline, |output| output.elapsed);
        let own = CallRecord {
            executable: words.first().cloned().unwrap_or_default(),
            arguments: words.iter().skip(1).cloned().collect(),
            environment,
            stdin: String::new(),
            exit: output.map(Output::code),
            stdout: text(|output| &output.stdout),
            stderr: text(|output| &output.stderr),
            milliseconds: elapsed.as_millis().try_into().unwrap_or(u64::MAX),
        };
        let heard = judge::calls();
        self.with_told(|told| {
            told.calls.push(own);
            told.calls.extend(heard.iter().skip(told.recorded).map(record_of));
            told.recorded = heard.len();
        });
    }

    /// The runs so far, each followed by the calls of judges that came of it.
    pub(crate) fn take_calls(&self) -> Vec<CallRecord> {
        self.with_told(|told| std::mem::take(&mut told.calls))
    }
}

/// An empty folder of one's own over one of the machine.
fn lay_over(folder: &str) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let laid = mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some("mode=0755"));
    laid.map_err(|errno| io::Error::other(format!("cannot lay an empty folder over {folder}: {errno}")))
}

/// A call of a judge for a report; of its environment what the protocol has.
fn record_of(heard: &Heard) -> CallRecord {
    let is_protocol = |(name, _): &(&String, &String)| name.starts_with("CNI_");
    CallRecord {
        executable: heard.arguments.first().cloned().unwrap_or_default(),
        arguments: heard.arguments.iter().skip(1).cloned().collect(),
        environment: heard.environment.iter().filter(is_protocol).map(|(n, v)| (n.clone(), v.clone())).collect(),
        stdin: heard.stdin.clone(),
        exit: heard.ended.map(|_| i32::from(heard.exit)),
        stdout: heard.stdout.clone(),
        stderr: String::new(),
        milliseconds: 0,
    }
}

impl Ran {
    /// That it succeeded.
    ///
    /// # Errors
    /// A finding if not.
    pub fn succeeds(self) -> Result<Self, Stop> {
        match self.output.code() {
            0 => Ok(self),
            code => Err(Finding::new(
                format!("{} succeeds", self.told()),
                format!("it ended with {code}: {}", self.output.stderr.trim()),
            )
            .into()),
        }
    }

    /// That it failed, other than by a signal.
    ///
    /// # Errors
    /// A finding if not.
    pub fn fails(self, why: &str) -> Result<Self, Stop> {
        let end = match self.output.code() {
            0 => "it succeeded".to_owned(),
            code if code > 128 => format!("it ended with {code}"),
            _ => return Ok(self),
        };
        Err(Finding::new(format!("{} fails: {why}", self.told()), end).into())
    }

    /// Its words without the folder of the program.
    fn told(&self) -> String {
        let program = self.words.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        std::iter::once(program).chain(self.words.iter().skip(1).map(String::as_str)).collect::<Vec<_>>().join(" ")
    }
}
