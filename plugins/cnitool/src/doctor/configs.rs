//! Files of networks, executables of plugins, and what STATUS says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::validate::{Report, executables, validate_folder};
use futures::future::join_all;
use libcni::NetworkConf;

use crate::doctor::removal::word;
use crate::doctor::{Finding, Kind, Level, Node, folders};

/// How long STATUS may take, and VERSION: plugins wait longer for a lock that is held.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The networks that a runtime would use: of those with one name, the first.
pub(crate) async fn look(node: Node<'_>, findings: &mut Vec<Finding>) -> Vec<NetworkConf> {
    let mut report = match validate_folder(node.conf_dir, node.known) {
        Ok(report) => report,
        Err(error) => {
            findings.push(Kind::unseen(None, &node.conf_dir.display().to_string(), &error.with_causes()));
            return Vec::new();
        }
    };
    executables::look(&mut report, &node.runtime.until(Instant::now() + ANSWERS_WITHIN), node.known).await;
    faults(&report, findings);
    folders::look(node, &report, findings);
    let mut networks: Vec<NetworkConf> = Vec::new();
    for network in report.networks {
        let conf = network.conf;
        if conf.network_name().is_ok() && networks.iter().all(|earlier| earlier.name != conf.name) {
            networks.push(conf);
        }
    }
    let runtime = node.runtime.until(Instant::now() + ANSWERS_WITHIN);
    let states = join_all(networks.iter().map(|network| runtime.status(network))).await;
    for (network, state) in networks.iter().zip(states) {
        if let Err(error) = state {
            let what = format!("network {} cannot take containers", network.name);
            let mut finding = Kind::NotReady.finding(Level::Error, Some(&network.name), what);
            finding.evidence = error.with_causes().lines().map(str::to_owned).collect();
            finding.remedy = format!("cnitool status {}", network.name);
            findings.push(finding);
        }
    }
    makes(node, &networks, findings);
    networks
}

/// Adds a finding for each file with errors or warnings.
fn faults(report: &Report, findings: &mut Vec<Finding>) {
    for (file, source) in report.sources.iter().enumerate() {
        let grave: Vec<_> = report.of_file(file).filter(|finding| finding.level > Level::Note).collect();
        let Some(level) = grave.iter().map(|finding| finding.level).max() else { continue };
        let network = report.networks.iter().find(|network| network.file == file).map(|network| &*network.conf.name);
        let mut finding = Kind::Config.finding(level, network, format!("{} has faults", source.name));
        finding.evidence = grave
            .iter()
            .map(|fault| {
                let (line, column) = source.position(fault.span.start);
                match source.text.is_empty() {
                    true => fault.message.clone(),
                    false => format!("line {line}, column {column}: {}", fault.message),
                }
            })
            .collect();
        finding.remedy = format!("cnitool validate {}", word(&source.name));
        findings.push(finding);
    }
}

/// Whether the executables of the networks' plugins are all of one make.
fn makes(node: Node<'_>, networks: &[NetworkConf], findings: &mut Vec<Finding>) {
    let names = networks.iter().flat_map(|network| network.plugins.iter().map(|plugin| plugin.plugin_type.clone()));
    let names = names.collect::<BTreeSet<_>>();
    let found = names.iter().filter_map(|name| node.runtime.plugin_path().find_executable(name).ok());
    let mut by_make: BTreeMap<bool, Vec<PathBuf>> = BTreeMap::new();
    for path in found {
        by_make.entry(executables::is_of_this_suite(&path).unwrap_or(false)).or_default().push(path);
    }
    if let (Some(ours), Some(others)) = (by_make.get(&true), by_make.get(&false)) {
        let what = format!("{} of {} plugins in use are not of this suite", others.len(), ours.len() + others.len());
        let mut finding = Kind::MixedMakes.finding(Level::Note, None, what);
        finding.evidence = others.iter().map(|path| path.display().to_string()).collect();
        "Leave them if they are meant; cnitool install with --replace-foreign puts those of this suite in their place."
            .clone_into(&mut finding.remedy);
        findings.push(finding);
    }
}
