//! The mock plugin: the kit's own plugin, which writes down how it is called and answers as the case orders.
//!
//! The mock plugin is the kit's executable under names that start with [`PREFIX`]. Its place is in its plugin object, below [`KEY`].
//! Its orders are a file of that place, not in the object: a runtime may keep the configuration of ADD. They lie below the testbed's
//! work dir, as does what it writes down.

use crate::result_conversion;
use crate::spec_version;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The prefix of the names of the mock plugin's executables.
pub const PREFIX: &str = "kit-mock";
/// The mock plugin's own key in a plugin object: its place in the list, from 1, which decides the address in its results.
pub const KEY: &str = "kitJudge";

/// As [`testns::Node::work_dir`] has it: the mock plugin is a process of its own, which cannot be given it.
const FOLDER: &str = "/run/testns/plugin";
/// Name under which it is the child that [`Order::holds`] leaves behind.
const HOLDER: &str = "kit-mock-holder";
/// Name under which it is the only process of a container.
pub const PAUSE: &str = "pause";
/// The longest time that a runtime may take to end stdin after the plugin's start.
const STDIN_PATIENCE: Duration = Duration::from_secs(10);

/// The behaviour of a mock plugin in a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Order {
    /// The whole of stdout; the plugin's own result if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    pub exit: u8,
    /// The text that the plugin logs first.
    pub stderr: String,
    /// The number of bytes that the plugin logs after that text.
    pub noise: usize,
    /// The plugin first waits until no process holds the [`Gate`].
    pub waits: bool,
    /// The plugin leaves a child behind that holds its stdout.
    pub holds: bool,
    /// SIGKILL ends it, once it has answered.
    pub dies: bool,
}

impl Order {
    /// To fail with an error object.
    pub fn fail(version: &str, code: u64, msg: &str) -> Self {
        let error = json!({ "cniVersion": version, "code": code, "msg": msg });
        Self { stdout: Some(error.to_string()), exit: 1, ..Self::default() }
    }

    /// To print something and succeed.
    pub fn print(text: &str) -> Self {
        Self { stdout: Some(text.to_owned()), ..Self::default() }
    }
}

/// A call, as the mock plugin saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The call's beginning among all beginnings and ends of calls.
    pub began: usize,
    /// The call's end among them; `None` if it has not ended.
    #[serde(default)]
    pub ended: Option<usize>,
    /// The call's command line: the executable, then what should not be there.
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub stdin: String,
    pub stdin_ended: bool,
    /// Inode of the network namespace it ran in.
    pub netns: u64,
    /// Inode of the namespace that `CNI_NETNS` names, if it is one.
    pub container_netns: Option<u64>,
    /// Open descriptors beyond stderr, and what they are.
    pub descriptors: Vec<String>,
    pub stdout: String,
    pub exit: u8,
}

impl Received {
    /// `CNI_COMMAND`, or any other variable; empty if it is not set.
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn verb(&self) -> &str {
        self.variable("CNI_COMMAND")
    }

    /// Returns the call's config; `null` if that was no JSON.
    pub fn config(&self) -> Value {
        serde_json::from_str(&self.stdin).unwrap_or_default()
    }

    /// Returns the plugin's place in the list; if the config does not say, that by its name; 0 if the name is none.
    pub fn place(&self) -> u64 {
        let by_name = || {
            let letter = self.arguments.first()?.bytes().last()?;
            letter.checked_sub(b'a').map(|index| u64::from(index) + 1)
        };
        self.config()[KEY].as_u64().or_else(by_name).unwrap_or_default()
    }

    /// Whether the call failed: by its status, or as what ADD printed is no result.
    pub fn has_failed(&self) -> bool {
        let result = self.result();
        self.exit != 0 || self.verb() == "ADD" && (!result.is_object() || result.get("code").is_some())
    }

    pub fn result(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_default()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Start(Box<Received>),
    End { began: usize },
}

/// While it exists, mock plugins that were ordered to wait do.
#[derive(Debug)]
pub struct Gate(File);

impl Gate {
    pub fn close() -> Self {
        fs::create_dir_all(FOLDER).unwrap_or_else(|error| panic!("cannot create {FOLDER}: {error}"));
        let file = File::create(path("gate")).and_then(|file| file.lock().map(|()| file));
        Self(file.unwrap_or_else(|error| panic!("cannot close the gate: {error}")))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.unlock().ok(); // the end of the process does it, too
    }
}

/// Whether an executable of this name is a mock plugin, or something else that [`main`] is.
pub fn is_called(called_as: &Path) -> bool {
    let name = called_as.file_name().unwrap_or_default();
    name == PAUSE || name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
}

/// Puts mock plugins into a folder, under these endings of their names.
pub(crate) fn install(bin_dir: &Path, kit: &Path, endings: &[&str]) -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    fs::create_dir_all(bin_dir)?;
    endings.iter().try_for_each(|end| std::os::unix::fs::symlink(kit, bin_dir.join(format!("{PREFIX}-{end}"))))
}

/// Gives the mock plugin of a place its orders: by verb, what it does other than succeed.
pub(crate) fn order(place: u8, orders: &BTreeMap<String, Order>) -> io::Result<()> {
    fs::write(self::orders(place.into()), serde_json::to_string(orders)?)
}

fn orders(place: u64) -> PathBuf {
    path(&format!("orders-{place}"))
}

/// All calls so far, in the order in which they began.
pub(crate) fn calls() -> Vec<Received> {
    let text = locked(|| Ok(fs::read_to_string(path("calls")).unwrap_or_default()));
    let text = text.unwrap_or_else(|error| panic!("cannot read what the plugins wrote: {error}"));
    let mut calls: Vec<Received> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(Line::Start(received)) => calls.push(Received { began: number, ..*received }),
            Ok(Line::End { began }) => {
                calls.iter_mut().filter(|call| call.began == began).for_each(|call| call.ended = Some(number));
            }
            Err(error) => panic!("cannot read {line}: {error}"),
        }
    }
    calls
}

/// Returns the folder of the records, for those who wait for the next.
pub(crate) fn folder() -> &'static Path {
    Path::new(FOLDER)
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn locked<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // Emptying it would be a change of the folder: those who look at each change would then never have to wait.
    let lock = File::options().create(true).truncate(false).write(true).open(path("lock"))?;
    lock.lock()?;
    work()
}

fn write_down(line: &Line) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path("calls"))?;
    file.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())
}

/// The plugin's `main`. Returns the exit status.
pub fn main(called_as: &Path) -> u8 {
    if called_as.file_name().is_some_and(|name| name == PAUSE) {
        return pause();
    }
    if called_as.file_name().is_some_and(|name| name == HOLDER) {
        pass_gate();
        return 0;
    }
    match plugin() {
        Ok(status) => status,
        Err(error) => {
            let error = json!({ "cniVersion": "0.1.0", "code": 5, "msg": format!("the kit's plugin: {error}") });
            write!(io::stdout(), "{error}").ok();
            1
        }
    }
}

/// The only process of a container: it says that it is there, and ends when it is asked to.
fn pause() -> u8 {
    // The first process of a namespace gets no signal whose handler is the default one (pid_namespaces(7)); it can take it in.
    let mut end = SigSet::empty();
    end.add(Signal::SIGTERM);
    let blocked = end.thread_block();
    writeln!(io::stdout(), "up").ok();
    match blocked.and_then(|()| end.wait()) {
        Ok(_) => 0,
        Err(_) => 1,
    }
}

fn plugin() -> io::Result<u8> {
    let (mut received, order) = hear()?;
    received.began = locked(|| {
        let before = fs::read_to_string(path("calls")).unwrap_or_default().lines().count();
        write_down(&Line::Start(Box::new(received.clone()))).map(|()| before)
    })?;
    if order.waits {
        pass_gate();
    }
    // A runtime need not listen; its pipe may be closed.
    io::stderr().write_all(order.stderr.as_bytes()).ok();
    io::stderr().write_all("noise\n".repeat(order.noise.div_ceil(6)).as_bytes()).ok();
    io::stdout().write_all(received.stdout.as_bytes()).ok();
    io::stdout().flush().ok();
    if order.holds {
        Command::new("/proc/self/exe").arg0(HOLDER).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    }
    locked(|| write_down(&Line::End { began: received.began }))?;
    if order.dies {
        raise(Signal::SIGKILL)?;
    }
    Ok(order.exit)
}

fn pass_gate() {
    if let Ok(gate) = File::open(path("gate")) {
        gate.lock_shared().ok();
    }
}

/// Takes in everything there is to be known of this call, and thinks of an answer.
fn hear() -> io::Result<(Received, Order)> {
    let descriptors = descriptors();
    let (stdin, stdin_ended) = read_stdin()?;
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let environment: BTreeMap<_, _> = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let netns = environment.get("CNI_NETNS").cloned().unwrap_or_default();
    let mut received = Received {
        began: 0,
        ended: None,
        arguments: std::env::args_os().map(text).collect(),
        environment,
        stdin,
        stdin_ended,
        netns: fs::metadata("/proc/self/ns/net")?.ino(),
        container_netns: namespace(Path::new(&netns)),
        descriptors,
        stdout: String::new(),
        exit: 0,
    };
    let place = received.place();
    let orders = fs::read_to_string(orders(place)).unwrap_or_default();
    let mut orders: BTreeMap<String, Order> = serde_json::from_str(&orders).unwrap_or_default();
    let order = orders.remove(received.verb()).unwrap_or_default();
    received.stdout = order.stdout.clone().unwrap_or_else(|| answer(&received, place));
    received.exit = if order.dies { 128 + Signal::SIGKILL as u8 } else { order.exit };
    Ok((received, order))
}

/// Reads stdin to its end, if that comes in time.
fn read_stdin() -> io::Result<(String, bool)> {
    let (mut bytes, mut stdin) = (Vec::new(), io::stdin());
    let mut some = [0; 4096];
    let ended = loop {
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(STDIN_PATIENCE).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, patience)? == 0 {
            break false;
        }
        match stdin.read(&mut some)? {
            0 => break true,
            count => bytes.extend(some.iter().take(count)),
        }
    };
    Ok((String::from_utf8_lossy(&bytes).into_owned(), ended))
}

/// This process's open descriptors beyond stderr.
pub(crate) fn descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = entries.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let what = fs::read_link(entry.path()).ok()?.display().to_string();
        let is_this_listing = what.starts_with("/proc/") && what.ends_with("/fd");
        (number > 2 && !is_this_listing).then(|| format!("{number} {what}"))
    });
    open.collect()
}

/// The inode of a network namespace, if the path is one.
pub(crate) fn namespace(path: &Path) -> Option<u64> {
    use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, statfs};
    let kind = statfs(path).ok()?.filesystem_type();
    (kind == NSFS_MAGIC || kind == PROC_SUPER_MAGIC).then(|| fs::metadata(path).ok().map(|about| about.ino()))?
}

/// The output of a plugin without orders.
fn answer(received: &Received, place: u64) -> String {
    let config = received.config();
    let version = config["cniVersion"].as_str().unwrap_or("0.1.0");
    match received.verb() {
        "ADD" => add(received, &config, place, version).to_string(),
        "VERSION" => {
            let version = config["cniVersion"].as_str().unwrap_or("1.1.0");
            json!({ "cniVersion": version, "supportedVersions": spec_version::VERSIONS }).to_string()
        }
        _ => String::new(),
    }
}

/// The previous result with one address and one route more.
fn add(received: &Received, config: &Value, place: u64, version: &str) -> Value {
    let own = json!({
        "interfaces": [{
            "name": received.variable("CNI_IFNAME"),
            "mac": "0a:00:00:00:00:01",
            "sandbox": received.variable("CNI_NETNS"),
        }],
        "ips": [{ "address": format!("10.{place}.0.2/16"), "gateway": format!("10.{place}.0.1"), "interface": 0 }],
        "routes": [{ "dst": format!("10.{place}.0.0/16") }],
        "dns": { "nameservers": ["10.1.0.1"], "search": ["conformance.test"] },
    });
    let own = result_conversion::in_version(&own, version);
    let mut result = match config.get("prevResult") {
        Some(previous) if previous.get("ips").is_some_and(Value::is_array) => previous.clone(),
        _ => return own,
    };
    result["cniVersion"] = json!(version);
    for list in ["ips", "routes"] {
        let more = own.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        match result.get_mut(list).and_then(Value::as_array_mut) {
            Some(entries) => entries.extend(more),
            None => result[list] = Value::Array(more),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::{calls, folder};
    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use std::fs;

    #[test]
    fn to_read_the_calls_changes_nothing_that_those_who_wait_for_one_look_at() {
        let _node = testns::Node::new();
        fs::create_dir_all(folder()).unwrap();
        calls();
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(folder(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE).unwrap();
        calls();
        assert_eq!(watch.read_events().err(), Some(Errno::EAGAIN));
    }
}
