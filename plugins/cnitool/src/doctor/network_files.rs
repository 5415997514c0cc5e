//! Files of networks, executables of the plugins that they name, and what STATUS says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error_remedies::is_told_to_be_root;
use crate::validate::{Report, plugin_executables, validate_folder};
use cni_spec::{PluginType, SpecVersion};
use futures::future::join_all;
use libcni::{NetworkConf, PluginObject, Runtime};

use crate::parsed_network::{Network, Plugin};

use crate::doctor::{Finding, Kind, Level, Node, advice, network_folders, tool};

/// How long STATUS may take, and VERSION: plugins wait longer for a lock that is held.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The networks that a runtime would use: of those with one name, the first.
pub(crate) async fn look(node: Node<'_>, findings: &mut Vec<Finding>) -> Vec<Network> {
    let mut report = match validate_folder(node.conf_dir, node.known) {
        Ok(report) => report,
        Err(error) => {
            findings.push(Kind::unseen(None, &node.conf_dir.display().to_string(), &error));
            return Vec::new();
        }
    };
    plugin_executables::look(
        &mut report,
        &node.runtime.until(Instant::now() + ANSWERS_WITHIN),
        node.known,
        node.conf_dir,
    )
    .await;
    faults(&report, findings);
    network_folders::look(node, &report, findings);
    let mut networks: Vec<Network> = Vec::new();
    for network in report.networks {
        let conf = &network.conf;
        if conf.network_name().is_ok() && networks.iter().all(|earlier| earlier.conf.name != conf.name) {
            networks.push(network);
        }
    }
    let runtime = node.runtime.until(Instant::now() + ANSWERS_WITHIN);
    let makes_of = Makes::look(node.runtime, &networks);
    let asked: Vec<NetworkConf> = networks.iter().map(|network| makes_of.with_status(network)).collect();
    let states = join_all(asked.iter().map(|network| runtime.status(network))).await;
    for (Network { conf: network, .. }, state) in networks.iter().zip(states) {
        if let Err(error) = state {
            // A plugin that an ordinary user has started may do less than a runtime's.
            if is_told_to_be_root() {
                findings.push(Kind::unseen(Some(&network.name), "STATUS", &error));
                continue;
            }
            let what = format!("network {} cannot take containers", network.name);
            let lines: Vec<String> = error.with_causes().lines().map(str::to_owned).collect();
            let answer = if let libcni::Error::Plugin(answer) = error { Some(answer.error.clone()) } else { None };
            let finding = Kind::NotReady.finding(Level::Error, Some(&network.name), what).shown_by(lines);
            findings.push(Finding { answer, ..finding.help(tool(["status", &network.name])) });
        }
    }
    makes_of.tell(findings);
    networks
}

/// The plugins in use, with the path of each, and whether it is of this suite.
pub(crate) struct Makes(BTreeMap<PluginType, (PathBuf, bool)>);

impl Makes {
    pub(crate) fn look(runtime: &Runtime, networks: &[Network]) -> Self {
        let types = networks.iter().flat_map(|network| &network.conf.plugins).map(|plugin| plugin.plugin_type.clone());
        let ipams = networks.iter().flat_map(|network| &network.plugins).filter_map(Plugin::ipam_type);
        let names: BTreeSet<PluginType> = types.chain(ipams).collect();
        let found = names.into_iter().filter_map(|name| {
            let path = runtime.plugin_path().find_executable(&name).ok()?;
            let is_own = plugin_executables::is_of_this_suite(&path).unwrap_or(false);
            Some((name, (path, is_own)))
        });
        Self(found.collect())
    }

    /// Whether all of them are there and of this suite.
    pub(crate) fn are_own(runtime: &Runtime, network: &NetworkConf) -> bool {
        let is_own = |path: PathBuf| plugin_executables::is_of_this_suite(&path).unwrap_or(false);
        let find = |plugin: &PluginObject| runtime.plugin_path().find_executable(&plugin.plugin_type);
        network.plugins.iter().all(|plugin| find(plugin).is_ok_and(is_own))
    }

    fn is_own(&self, name: &PluginType) -> bool {
        self.0.get(name).is_some_and(|(_, is_own)| *is_own)
    }

    /// The network as STATUS can be asked of it: below version 1.1.0 there is none, and this suite's plugins answer it all the
    /// same if they are asked in that version.
    pub(crate) fn with_status(&self, Network { conf, plugins, .. }: &Network) -> NetworkConf {
        let mut network = conf.clone();
        if !network.version().is_ok_and(|version| !version.has_gc()) {
            return network;
        }
        let mut ipams = plugins.iter().map(Plugin::ipam_type);
        network.plugins.retain(|plugin| {
            let ipam = ipams.next().flatten();
            self.is_own(&plugin.plugin_type) && ipam.is_none_or(|ipam| self.is_own(&ipam))
        });
        SpecVersion::LATEST.as_str().clone_into(&mut network.cni_version);
        network
    }
}

/// Adds a finding for each file with errors or warnings.
fn faults(report: &Report, findings: &mut Vec<Finding>) {
    for (file, source) in report.sources.iter().enumerate() {
        let grave: Vec<_> = report.of_file(file).filter(|finding| finding.level > Level::Note).collect();
        let Some(level) = grave.iter().map(|finding| finding.level).max() else { continue };
        let own = report.files_of_network(file).start;
        let network = report.networks.iter().find(|network| network.file == own).map(|network| &*network.conf.name);
        let lines = grave.iter().map(|fault| {
            let (line, column) = source.position(fault.span.start);
            match source.text.is_empty() {
                true => fault.message.clone(),
                false => format!("line {line}, column {column}: {}", fault.message),
            }
        });
        let finding = Kind::Config.finding(level, network, format!("{} has faults", source.name)).shown_by(lines);
        findings.push(finding.help(tool(["validate", &report.sources[own].name])));
    }
}

impl Makes {
    /// Adds a finding if the executables are of several makes.
    fn tell(&self, findings: &mut Vec<Finding>) {
        let of = |make: bool| self.0.values().filter(move |(_, is_own)| *is_own == make);
        let (ours, others) = (of(true).count(), of(false).count());
        if ours == 0 || others == 0 {
            return;
        }
        let what = format!("{others} of {} plugins in use are not of this suite", ours + others);
        let leave = "Leave them if they are meant; cnitool install with --replace-foreign puts those of this suite in their place.";
        let paths = of(false).map(|(path, _)| path.display().to_string());
        findings.push(Kind::MixedMakes.finding(Level::Note, None, what).shown_by(paths).help(advice(leave)));
    }
}
