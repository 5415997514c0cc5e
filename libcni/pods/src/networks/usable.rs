//! Decides which of the files are usable.

use super::scan::{Executable, Lookup, Scan};
use super::versions::{Answer, Versions};
use super::{Network, Networks, PassedOver, Reason};
use cni_spec::PluginType;
use futures::StreamExt;
use libcni::{NetworkConf, Runtime};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

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
