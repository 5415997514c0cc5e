//! Decides which of the files are usable.

use super::scan::{Executable, Lookup, Scan};
use super::{Network, Networks, PassedOver, Reason};
use cni_spec::{CniError, Code, PluginType};
use futures::StreamExt;
use libcni::{Error, NetworkConf, Runtime, VersionInfo};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How many executables are asked at the same time; each costs a process and three pipes.
const ASKED_AT_ONCE: usize = 32;

/// Asks the executables and sorts the files into usable and skipped.
pub(super) async fn select(scan: Scan, runtime: &Runtime, versions: &Versions) -> Networks {
    let answers = ask_all(&scan, runtime, versions).await;
    let mut networks = Networks { usable: Vec::new(), passed_over: Vec::new(), problem: scan.problem };
    let mut names: HashMap<String, PathBuf> = HashMap::new();
    for (path, file) in scan.files {
        let usable = file.and_then(|conf| {
            check(&conf, &scan.executables, &scan.looked_in, &answers)?;
            match names.get(&conf.name) {
                Some(by) => Err(Reason::NameTaken { name: conf.name, by: by.clone() }),
                None => Ok(conf),
            }
        });
        match usable {
            Ok(conf) => {
                names.insert(conf.name.clone(), path);
                let capabilities = conf.plugins.iter().flat_map(|plugin| plugin.capabilities.iter().cloned()).collect();
                networks.usable.push(Network { conf, capabilities });
            }
            Err(reason) => networks.passed_over.push(PassedOver { path, reason }),
        }
    }
    networks
}

/// Asks every executable of the networks that are not skipped already.
async fn ask_all(scan: &Scan, runtime: &Runtime, versions: &Versions) -> HashMap<PluginType, Answer> {
    let has_all = |conf: &&NetworkConf| {
        conf.version().is_ok() && conf.plugins.iter().all(|plugin| is_found(scan, &plugin.plugin_type))
    };
    let plugins: BTreeSet<&PluginType> = scan
        .files
        .iter()
        .filter_map(|(_, file)| file.as_ref().ok())
        .filter(has_all)
        .flat_map(|conf| conf.plugins.iter().map(|plugin| &plugin.plugin_type))
        .collect();
    let mut calls = Vec::new();
    for plugin in plugins {
        calls.extend(executable(scan, plugin).map(|executable| ask(runtime, versions, plugin, executable)));
    }
    futures::stream::iter(calls).buffer_unordered(ASKED_AT_ONCE).collect().await
}

async fn ask(
    runtime: &Runtime,
    versions: &Versions,
    plugin: &PluginType,
    executable: &Executable,
) -> (PluginType, Answer) {
    (plugin.clone(), versions.ask(runtime, plugin, executable).await)
}

fn is_found(scan: &Scan, plugin: &PluginType) -> bool {
    executable(scan, plugin).is_some()
}

fn executable<'a>(scan: &'a Scan, plugin: &PluginType) -> Option<&'a Executable> {
    scan.executables.get(plugin).and_then(Lookup::found)
}

/// Why a network is unusable; the first reason, in the order of its plugins.
fn check(
    conf: &NetworkConf,
    executables: &HashMap<PluginType, Lookup>,
    looked_in: &[PathBuf],
    answers: &HashMap<PluginType, Answer>,
) -> Result<(), Reason> {
    if conf.version().is_err() {
        return Err(Reason::UnknownVersion { version: conf.cni_version.clone() });
    }
    let mut found = Vec::new();
    for plugin in conf.plugins.iter().map(|plugin| &plugin.plugin_type) {
        match executables.get(plugin) {
            Some(Lookup::Found(executable)) => found.push((plugin, executable)),
            Some(Lookup::NotExecutable { path, errno }) => {
                return Err(Reason::NotExecutable { plugin: plugin.clone(), path: path.clone(), errno: *errno });
            }
            Some(Lookup::Missing) | None => {
                return Err(Reason::MissingExecutable { plugin: plugin.clone(), looked_in: looked_in.to_vec() });
            }
        }
    }
    for (plugin, executable) in found {
        match answers.get(plugin) {
            Some(Ok(info)) if info.supports(&conf.cni_version) => {}
            Some(Ok(info)) => {
                let (plugin, version) = (plugin.clone(), conf.cni_version.clone());
                return Err(Reason::UnsupportedVersion { plugin, version, speaks: info.supported.clone() });
            }
            Some(Err(error)) => {
                let path = executable.path.clone();
                return Err(Reason::NoVersion { plugin: plugin.clone(), path, error: error.clone() });
            }
            None => {}
        }
    }
    Ok(())
}

/// The deadline of VERSION: a plugin only prints a constant.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a failure is cached. Its cause may be the node: no memory, a disk that is slow while the node starts.
const FAILURE_HOLDS: Duration = Duration::from_secs(30);
/// At most one part in this many of the time is spent on asking an executable that fails.
const FAILURE_SHARE: u32 = 20;

type Answer = Result<VersionInfo, CniError>;

/// The answers. The path is part of the key: one file may be many plugins by its name.
#[derive(Debug, Default)]
pub(super) struct Versions {
    answers: Mutex<HashMap<Executable, Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    answer: Answer,
    /// The time of the next question; `None` once the executable answered.
    until: Option<Instant>,
}

impl Versions {
    /// The cached answer, or else the executable's own.
    pub(super) async fn ask(&self, runtime: &Runtime, plugin: &PluginType, executable: &Executable) -> Answer {
        if let Some(answer) = self.find(executable) {
            return answer;
        }
        let begin = Instant::now();
        let answer = ask_version(runtime, plugin).await;
        let holds = FAILURE_HOLDS.max(begin.elapsed() * FAILURE_SHARE);
        let until = answer.is_err().then(|| Instant::now() + holds);
        // If the file was replaced meanwhile, it is unknown which one answered.
        if executable.is_as_it_was() {
            self.lock().insert(executable.clone(), Remembered { answer: answer.clone(), until });
        }
        answer
    }

    fn find(&self, executable: &Executable) -> Option<Answer> {
        let answers = self.lock();
        let remembered = answers.get(executable)?;
        let holds = remembered.until.is_none_or(|until| Instant::now() < until);
        holds.then(|| remembered.answer.clone())
    }

    /// Drops the answers of all executables but these.
    pub(super) fn forget_others(&self, executables: &HashSet<Executable>) {
        self.lock().retain(|executable, _| executables.contains(executable));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Executable, Remembered>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_version(runtime: &Runtime, plugin: &PluginType) -> Answer {
    // A dropped call ends its process in the background.
    match timeout(DEADLINE, runtime.version(plugin)).await {
        Ok(Ok(info)) => Ok(info),
        Ok(Err(Error::Plugin(plugin))) => Err(plugin.error),
        Ok(Err(other)) => Err(CniError::new(Code::INTERNAL, other.with_causes())),
        Err(_) => Err(CniError::new(Code::TIMEOUT, format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}
