//! `cnitool cluster`: the addresses that nodes share.
//!
//! The verbs are the plugin's own: this program becomes the executable `cluster` of the plugin folder, which has TLS, and gives it
//! the network's configuration as standard input.

use crate::args::{Cluster, Phase, Shared};
use crate::error_remedies::{Remedy, refused};
use crate::output::Output;
use crate::settings::Settings;
use anyhow::{Context, anyhow};
use libcni::cni_spec::{Code, PluginType, json};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

const PLUGIN: &str = "cluster";

pub(crate) fn run(settings: &Settings, words: &Cluster, output: Output) -> anyhow::Result<()> {
    let (verb, shared, more) = parts(words);
    let network = settings.known(&shared.network)?;
    let Some(object) = network.requests.clusters().next() else {
        let msg = format!("no plugin of network {} has addresses of plugin {PLUGIN}", network.conf.name);
        return Err(refused(Code::INVALID_CONFIG, msg, "cnitool ipam has verbs for those of host-local."));
    };
    let plugin = PluginType::parse(PLUGIN)?;
    let path = settings.runtime.plugin_path().find_executable(&plugin);
    let path =
        path.remedy(|| format!("Copy the executable {PLUGIN} of a release there, or name its folder by --cni-path."))?;
    let config =
        memory(json::to_text(object.value()).as_bytes()).context("cannot give the plugin its configuration")?;
    let mut command = Command::new(&path);
    command.arg(verb).arg("-").args(more).args(output.is_json.then_some("--json")).stdin(config);
    let error = command.exec();
    Err(anyhow!(error).context(format!("cannot execute {}", path.display())))
}

/// The verb, the network, and the further words of the plugin's command line.
fn parts(words: &Cluster) -> (&'static str, &Shared, Vec<OsString>) {
    match words {
        Cluster::Show(shared) => ("show", shared, Vec::new()),
        Cluster::Check { shared, probe, link } => {
            let probe = probe.then(|| "--probe".into());
            let link = link.iter().flat_map(|link| ["--link".into(), link.into()]);
            ("check", shared, probe.into_iter().chain(link).collect())
        }
        Cluster::Init(shared) => ("init", shared, Vec::new()),
        Cluster::Repair { shared, phase } => ("repair", shared, words_of(phase)),
        Cluster::Adopt { shared, phase } => ("adopt", shared, words_of(phase)),
        Cluster::Leave { shared, ending } => ("leave", shared, ending.then(|| "--ending".into()).into_iter().collect()),
        Cluster::Forget { shared, node, fenced, force, cancel } => {
            let given = [(fenced, "--fenced"), (force, "--force"), (cancel, "--cancel")];
            let given = given.into_iter().filter(|(is_given, _)| **is_given).map(|(_, word)| word.into());
            ("forget", shared, std::iter::once(node.into()).chain(given).collect())
        }
        Cluster::Release { shared, claim } => ("release", shared, vec![claim.into()]),
        Cluster::Import { shared, file } => ("import", shared, vec![file.into()]),
    }
}

fn words_of(phase: &Phase) -> Vec<OsString> {
    let words = [(phase.begin, "--begin"), (phase.end, "--end")];
    words.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word.into()).collect()
}

/// A file without a name.
fn memory(bytes: &[u8]) -> anyhow::Result<File> {
    let mut file = File::from(memfd_create("config", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
