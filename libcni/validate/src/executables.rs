//! Whether this node has the plugins, and the versions they speak.

use std::io;
use std::path::Path;

use cni_spec::{PluginType, SUITE_MARK, json};
use futures::future::join_all;
use libcni::Runtime;

use crate::Report;
use crate::finding::{Finding, Level, Notes, join};
use crate::known::Known;
use crate::network::base;

/// Whether a file is an executable of this suite: it has the suite's mark among its bytes.
///
/// # Errors
/// As `open(2)` and `read(2)`.
pub fn is_of_this_suite(file: &Path) -> io::Result<bool> {
    Ok(memchr::memmem::find(&std::fs::read(file)?, SUITE_MARK.as_bytes()).is_some())
}

/// Asks each plugin of each network for its versions, all at the same time, and adds what is wrong to the report.
pub async fn look(report: &mut Report, runtime: &Runtime, known: &[Known]) {
    let mut asked: Vec<(usize, String, PluginType, &str)> = Vec::new();
    for network in &report.networks {
        let source = &report.sources[network.file];
        for (index, plugin) in network.conf.plugins.iter().enumerate() {
            let (base, version) = (base(source, index), network.conf.cni_version.as_str());
            asked.push((network.file, join(&base, "type"), plugin.plugin_type.clone(), version));
            let ipam = network.conf.plugin_conf(index).and_then(|bytes| json::parse(&bytes).ok());
            let ipam = ipam.and_then(|value| json::find::<String>(&value, &["ipam", "type"]).ok().flatten());
            if let Some(ipam) = ipam.and_then(|name| PluginType::parse(&name).ok()) {
                asked.push((network.file, join(&base, "ipam.type"), ipam, version));
            }
        }
    }
    let answers = join_all(asked.iter().map(|(_, _, plugin, _)| runtime.version(plugin))).await;
    let mut findings: Vec<Finding> = Vec::new();
    for ((file, key, plugin, version), answer) in asked.iter().zip(answers) {
        let mut notes = Notes::new(*file, &report.sources[*file]);
        match answer {
            Ok(info) if info.supports(version) => (),
            Ok(info) => {
                let version = if version.is_empty() { "0.1.0" } else { version };
                let text = format!("plugin {plugin} does not speak cniVersion {version}");
                notes.value(Level::Error, key, text).help = format!("It speaks {}.", info.supported.join(", "));
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
        findings.extend(notes.into_findings());
    }
    // A guess is not needed where the executable has been looked for.
    let is_certain = |one: &Finding| findings.iter().any(|sure| sure.file == one.file && sure.key == one.key);
    report.findings.retain(|one| one.level == Level::Error || !is_certain(one));
    report.extend(findings);
}
