//! The verbs of the protocol.

use crate::about;
use crate::args::Target;
use crate::attachments;
use crate::causes::refused;
use crate::doctor::configs::Makes;
use crate::network::{Network, Plugin};
use crate::output::{Output, Table, say};
use crate::settings::Settings;
use crate::validate::Role;
use anyhow::Context;
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniError, Code, PluginType};
use libcni::{Attachment, AttachmentId, Cached, Error, Namespace, NetworkConf, PluginObject};
use netops::link;
use netops::{Kernel, Netns};
use nix::unistd::{AccessFlags, access};
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) async fn add(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let (network, attachment, cached) = settings.target(target)?;
    settings.refuse_unnamed("add", target, &attachment)?;
    if cached.is_none() {
        refuse_taken(&network, &attachment)?;
    }
    refuse_missing(settings, &network)?;
    warn_of_unused(&network, &attachment);
    let added = settings.runtime.add(&network, &attachment).await;
    let result = added.map_err(|error| with_place(&network, error))?;
    let text = result.to_json(network.version()?)?;
    let Err(error) = say(format!("{text}\n").as_bytes()) else { return Ok(()) };
    // For the caller ADD has failed.
    match settings.runtime.del(&network, &attachment).await {
        Ok(()) => Err(error.context("ADD was rolled back")),
        Err(left) => Err(error.context(format!("ADD could not be rolled back: {left}"))),
    }
}

/// Capability arguments reach the plugins that ask for them. One that no plugin asks for changes nothing, and is most likely
/// meant for another network, or misspelt.
pub(crate) fn warn_of_unused(network: &NetworkConf, attachment: &Attachment) {
    let asked: BTreeSet<&str> =
        network.plugins.iter().flat_map(|plugin| plugin.capabilities.iter().map(String::as_str)).collect();
    for (name, _) in attachment.capability_args.iter().filter(|(name, _)| !asked.contains(name)) {
        let meant = resembling(name, asked.iter().copied());
        let meant = meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
        tracing::warn!(
            "CAP_ARGS has {name}, which is not used: no plugin of network {} has capability {name}{meant}",
            network.name
        );
    }
}

/// A plugin's error about a key, with the file that has the key.
fn with_place(network: &NetworkConf, error: Error) -> anyhow::Error {
    let is_about_a_key = error.to_cni_error().msg.contains("cannot use network config: key ");
    let Some(path) = network.path().filter(|_| is_about_a_key) else { return error.into() };
    let place = format!("cnitool validate shows the place in {}.", path.display());
    error.to_cni_error().detail(place).into()
}

/// Refuses an ADD whose interface is there already, and not by an earlier ADD of the same. The plugin would refuse it as well, but then the DEL of the rollback would
/// remove the interface, if it has no mark of another attachment: one that the reference has made has none.
fn refuse_taken(network: &NetworkConf, attachment: &Attachment) -> anyhow::Result<()> {
    let makes_interface = |plugin: &PluginObject| {
        crate::keys::ALL.iter().any(|known| known.name == plugin.plugin_type.as_str() && known.role == Role::Interface)
    };
    if !network.plugins.first().is_some_and(makes_interface) {
        return Ok(());
    }
    let (netns, ifname) = (&attachment.netns, attachment.id.ifname.as_str());
    // The plugin reports best what is wrong with the namespace.
    let inside = Netns::open(Path::new(netns)).ok().and_then(|netns| Kernel::in_netns(&netns).ok());
    let Some(link) = inside.and_then(|inside| link::find(&inside, ifname).ok()).flatten() else { return Ok(()) };
    let msg = format!("cannot add network {}: interface {ifname} is in {netns} already, a {}", network.name, link.kind);
    let details = "Nothing was changed. Use another --ifname, or call del for the network that has it.";
    Err(CniError::new(Code::EXISTS, msg).detail(details).into())
}

/// Refuses an ADD whose address plugin is not installed, before the first plugin runs: the DEL that would take the ADD back needs it,
/// too.
fn refuse_missing(settings: &Settings, network: &NetworkConf) -> anyhow::Result<()> {
    let is_ours = |plugin: &&Plugin| crate::keys::ALL.iter().any(|known| known.name == plugin.plugin_type);
    let decoded = Network::from(network.clone());
    for ipam in decoded.plugins.iter().filter(is_ours).filter_map(Plugin::ipam_type) {
        settings.runtime.plugin_path().find_executable(&ipam).with_context(|| {
            format!("cannot add network {}: nothing was called, as an address plugin is missing", network.name)
        })?;
    }
    Ok(())
}

pub(crate) async fn check(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let (network, mut attachment, cached) = settings.target(target)?;
    if let Some(cached) = &cached {
        settings.complete(&mut attachment, cached);
    } else if !network.disable_check {
        settings.find_cached(&network.name, &attachment)?;
        // SPEC 2, CHECK: not for a container that was not added, or was deleted. Plugins would only report a missing
        // prevResult.
        let (id, name) = (&attachment.id, &network.name);
        let target = format!("{}/{} in network {name}", id.container_id, id.ifname);
        let msg = format!("cannot check {target}: it was not added, or was deleted");
        return Err(refused(Code::CHECK_FAILED, msg, "cnitool attachments shows what the cache has."));
    }
    settings.runtime.check(&network, &attachment).await.map_err(|error| with_place(&network, error))
}

/// DEL with the file's configuration, or, if that is gone, with the one that ADD left in the cache; of a network that has only
/// left traces on the node, with the plugins that remove these.
pub(crate) async fn del(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let mut attachment = settings.attachment(target)?;
    let (network, cached) = match settings.network(&target.network) {
        Ok(network) => {
            let cached = settings.cached(&network.name, &attachment);
            (network, cached)
        }
        Err(error) => {
            let is_gone = matches!(error.downcast_ref(), Some(Error::NoConfig { .. } | Error::NoNetwork { .. }));
            let cached = settings.cached(&target.network, &attachment).filter(|_| is_gone);
            let of_cache = cached.as_ref().and_then(|cached| cached.network_conf().ok());
            match of_cache {
                Some(network) => {
                    tracing::warn!("{error}; using the configuration that ADD left in the cache");
                    (network, cached)
                }
                None => (settings.network_to_clear(&target.network)?, cached),
            }
        }
    };
    match &cached {
        Some(cached) => {
            settings.complete(&mut attachment, cached);
            warn_of_other_namespace(cached, &attachment);
        }
        None if !Path::new(&attachment.netns).exists() => tracing::warn!(
            "the cache has no attachment {}/{} in network {}, and there is no namespace {}: DEL only removes what the node has by \
             these names",
            attachment.id.container_id,
            attachment.id.ifname,
            network.name,
            attachment.netns
        ),
        None => {}
    }
    Ok(settings.runtime.del(&network, &attachment).await?)
}

/// DEL goes by the caller's namespace, as with the reference: what is in that of ADD may stay.
fn warn_of_other_namespace(cached: &Cached, attachment: &Attachment) {
    let (of_add, of_del) = (&cached.attachment.netns, &attachment.netns);
    let is_same = || match (std::fs::metadata(of_add), std::fs::metadata(of_del)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    if of_add != of_del && cached.namespace() == Namespace::Present && !is_same() {
        let (AttachmentId { container_id, ifname }, network) = (&attachment.id, &cached.network);
        tracing::warn!(
            "del of {container_id}/{ifname} in network {network} looks in namespace {of_del}, and add was for {of_add}, \
             which exists: what is in there may stay, without its addresses"
        );
    }
}

/// Whether the network can take containers. Below version 1.1.0 there is no STATUS, and the output says so.
pub(crate) async fn status(settings: &Settings, network: &str, output: Output) -> anyhow::Result<()> {
    let network = settings.network(network)?;
    let version = network.version()?;
    // Below 1.1.0 there is no STATUS, and this suite's plugins answer it all the same.
    let asking = match version.has_gc() {
        true => network.clone(),
        false => {
            let network = Network::from(network.clone());
            Makes::look(&settings.runtime, std::slice::from_ref(&network)).with_status(&network)
        }
    };
    settings.runtime.status(&asking).await.map_err(|error| with_place(&network, error))?;
    let asked = asking.plugins.len();
    if asked < network.plugins.len() {
        let name = &network.name;
        let whom = match asked {
            0 => "no plugin was asked".to_owned(),
            _ => format!("of its {} plugins only those of this suite were asked, {asked}", network.plugins.len()),
        };
        tracing::warn!("network {name} is of version {version}, which has no STATUS: {whom}");
    }
    if output.is_json {
        let asked = asked > 0;
        return output.json(&json!({ "network": network.name, "cniVersion": network.cni_version, "asked": asked }));
    }
    Ok(())
}

/// Asks plugins for their versions. A failure is reported in the plugin's line, and at the end.
pub(crate) async fn version(settings: &Settings, plugins: &[String], output: Output) -> anyhow::Result<()> {
    let names = if plugins.is_empty() { executables(settings)? } else { plugins.iter().cloned().collect() };
    if names.is_empty() {
        let folders = settings.runtime.plugin_path();
        output.note(&format!("no executable is in {folders}: cnitool install puts the plugins there"));
    }
    let mut table = Table::new(&["plugin", "path", "release", "versions"]);
    let mut errors = Vec::new();
    for name in names {
        let plugin = PluginType::parse(&name).map_err(|error| {
            let msg = format!("cannot ask {name} for its version: {}", error.msg);
            CniError::new(error.code, msg).detail("Name its folder by --cni-path, and the plugin by its file's name.")
        })?;
        let path = settings.runtime.plugin_path().find_executable(&plugin);
        match settings.runtime.version(&plugin).await {
            Ok(info) => {
                let release = match &path {
                    Ok(path) => about::release(path).await,
                    Err(_) => None,
                };
                let path = path.map(|path| path.display().to_string()).unwrap_or_default();
                table.row([json!(name), json!(path), json!(release.unwrap_or_default()), json!(info.supported)]);
            }
            // Not every file in the folder is a plugin; only those named by the caller must answer.
            Err(error) if plugins.is_empty() && error.code() != Some(Code::INTERRUPTED) => {
                tracing::warn!("{}", error.with_causes());
            }
            Err(error) => errors.push(error),
        }
    }
    output.table(&table)?;
    Error::join(errors).map_or(Ok(()), |error| Err(error.into()))
}

/// The names of all executables in the plugin folders, without hidden files and this program.
///
/// # Errors
/// No folder exists.
fn executables(settings: &Settings) -> anyhow::Result<BTreeSet<String>> {
    let dirs = settings.runtime.plugin_path().dirs();
    let (mut paths, mut failed) = (Vec::new(), Vec::new());
    for dir in dirs {
        match std::fs::read_dir(dir) {
            Ok(entries) => paths.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path()))),
            Err(error) => failed.push(format!("cannot list plugins in {}: {error}", dir.display())),
        }
    }
    if failed.len() == dirs.len() {
        let help = "Name the folder of the plugins by --cni-path (CNI_PATH).";
        return Err(refused(Code::INVALID_ENVIRONMENT, failed.join("; "), help));
    }
    failed.iter().for_each(|reason| tracing::warn!("{reason}"));
    let names = paths
        .iter()
        .filter(|path| path.is_file() && access(path.as_path(), AccessFlags::X_OK).is_ok())
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .filter(|name| !name.starts_with('.') && name != attachments::OWN_NAME);
    Ok(names.collect())
}
