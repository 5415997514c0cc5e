//! The plugins that this node has, and the versions they speak.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use cni_spec::exec::CallEnv;
use cni_spec::{PluginPath, PluginType, json};
use futures::stream::{self, StreamExt};
use libcni::Runtime;
use skel::cni_ask::Question;

use crate::other_projects::ask;
use crate::runtime_settings;
use crate::validate::finding::{Finding, Level, Notes, join};
use crate::validate::known_plugins::{self, KnownPlugin};
use crate::validate::one_file::{is_guess, refused};
use crate::validate::{Network, Report};

/// Whether a file is an executable of this suite: it has the suite's mark among its bytes.
/// Errors: as `open(2)` and `read(2)`.
pub fn is_of_this_suite(file: &Path) -> io::Result<bool> {
    Ok(has_mark(&std::fs::read(file)?))
}

/// Whether these bytes of an executable have the suite's mark.
pub(crate) fn has_mark(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, cni_suite::MARK.as_bytes()).is_some()
}

/// Whether a plugin of this suite runs an address plugin in its own process: the files of both are of one build. That file need
/// not be executable.
fn runs_within(runtime: &Runtime, caller: &PluginType, ipam: &PluginType) -> bool {
    let read = |plugin| std::fs::read(runtime.plugin_path().find_executable(plugin).ok()?).ok();
    let [caller, ipam] = [caller, ipam].map(read);
    caller.is_some_and(|bytes| has_mark(&bytes) && ipam.is_some_and(|ipam| ipam == bytes))
}

fn beside(runtime: &Runtime, plugin: &PluginType, searched: &[PathBuf]) -> Option<PathBuf> {
    let is_found = |dirs: &[PathBuf]| PluginPath::from_dirs(dirs.to_vec()).find_executable(plugin).is_ok();
    let executable = runtime.plugin_path().find_executable(plugin).ok()?;
    let is_beside = !searched.is_empty() && !is_found(searched);
    is_beside.then(|| executable.parent().map(Path::to_owned)).flatten()
}

/// How many plugins are asked at the same time.
const ASKED_MAX: usize = 16;

/// A place in a file that names a plugin.
struct Named<'a> {
    /// The plugin's place in the network's list.
    index: usize,
    base: &'a str,
    key: String,
    plugin: PluginType,
    network: &'a Network,
}

fn named(report: &Report) -> Vec<Named<'_>> {
    let mut all = Vec::new();
    for network in &report.networks {
        for (index, (plugin, written)) in network.plugins.iter().zip(&network.conf.plugins).enumerate() {
            let at =
                |key, name| Named { index, base: &plugin.base, key: join(&plugin.base, key), plugin: name, network };
            all.push(at("type", written.plugin_type.clone()));
            all.extend(plugin.ipam_type().map(|ipam| at("ipam.type", ipam)));
        }
    }
    all
}

/// Asks each plugin of all networks once for its versions, and those that `known` lacks for faults of their keys; adds what is
/// wrong to the report. `conf_dir` is the folder of these networks.
pub async fn look(report: &mut Report, runtime: &Runtime, known: &[KnownPlugin], conf_dir: &Path) {
    // A caller that names other folders means those.
    let mut searched = runtime_settings::plugin_dirs(Path::new("/"), conf_dir);
    if !searched.iter().all(|dir| runtime.plugin_path().dirs().contains(dir)) {
        searched.clear();
    }
    let named = named(report);
    let plugins: BTreeSet<&PluginType> = named.iter().map(|named| &named.plugin).collect();
    let asked = plugins.into_iter().map(async |plugin| (plugin, runtime.version(plugin).await));
    let answers: BTreeMap<_, _> = stream::iter(asked).buffer_unordered(ASKED_MAX).collect().await;
    let mut notes: BTreeMap<usize, Notes<'_>> = BTreeMap::new();
    let mut answered = BTreeSet::new();
    // Plugins that do not know the question are not asked again.
    let mut silent = BTreeSet::new();
    for Named { index, base, key, plugin, network: Network { file, conf: network, .. } } in &named {
        let version = network.cni_version.as_str();
        let notes = notes.entry(*file).or_insert_with(|| Notes::new(*file, &report.sources));
        if let Some(dir) = beside(runtime, plugin, &searched) {
            let text = format!("plugin {plugin} is in {}, where no runtime of these networks looks", dir.display());
            let dirs: Vec<String> = searched.iter().map(|dir| dir.display().to_string()).collect();
            notes.value(Level::Warning, key, text).help = format!("By its settings it looks in {}.", dirs.join(", "));
        }
        match &answers[plugin] {
            Ok(info) if info.supports(version) => {
                let is_known = known_plugins::find(known, plugin.as_str()).is_some();
                let Some(bytes) = network.plugin_conf(*index).filter(|_| !is_known && !silent.contains(plugin)) else {
                    continue;
                };
                let Ok(executable) = runtime.plugin_path().find_executable(plugin) else { continue };
                let mut env = CallEnv::default();
                env.path = runtime.plugin_path().clone();
                let Some(answer) = ask(&executable, Question::Keys, &env, &bytes).await else {
                    silent.insert(plugin);
                    continue;
                };
                answered.insert(notes.place(key));
                let has_more = !network.plugins[*index].capabilities.is_empty();
                refused(base, "", (answer.error, &answer.misspelt), has_more, notes);
            }
            // A version that there is not has its finding.
            Ok(_) if network.version().is_err() => {}
            Ok(info) => {
                let version = if version.is_empty() { "0.1.0" } else { version };
                let text = format!("plugin {plugin} does not speak cniVersion {version}");
                notes.value(Level::Error, key, text).help = format!("It speaks {}.", info.supported.join(", "));
            }
            Err(_)
                if key.ends_with("ipam.type") && runs_within(runtime, &network.plugins[*index].plugin_type, plugin) => {
            }
            Err(error) => {
                let error = error.cni_error().cloned().unwrap_or_else(|| error.to_cni_error());
                let meant = json::resembling(plugin.as_str(), known.iter().map(|one| one.name));
                let finding = notes.value(Level::Error, key, &error.msg);
                finding.help = match meant.filter(|meant| *meant != plugin.as_str()) {
                    Some(meant) => format!("Did you mean {meant}?"),
                    None => error.details,
                };
            }
        }
    }
    let findings: Vec<Finding> = notes.into_values().flat_map(Notes::into_findings).collect();
    // A guess is not needed where the executable has been looked for.
    let certain: BTreeSet<(usize, &str)> = findings.iter().map(|sure| (sure.file, sure.key.as_str())).collect();
    let is_certain = |one: &Finding| certain.contains(&(one.file, one.key.as_str()));
    let is_answered = |one: &Finding| answered.contains(&(one.file, one.key.clone()));
    report.findings.retain(|one| !is_guess(one) || !is_certain(one) && !is_answered(one));
    report.extend(findings);
}
