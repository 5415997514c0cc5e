//! `cnitool add`: ADD of a container, after what would make it fail halfway is refused.

use crate::args::Target;
use crate::error_remedies::with_place_of_key;
use crate::output::say;
use crate::parsed_network::{Network, Plugin};
use crate::settings::Settings;
use crate::validate::Role;
use anyhow::Context;
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniError, Code};
use libcni::{NetworkConf, PluginObject, RuntimeConf};
use netops::{Kernel, Netns, link};
use on_node::plugin_of;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) async fn run(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let (network, attachment, cached) = settings.target(target)?;
    settings.refuse_unnamed("add", target, &attachment)?;
    if cached.is_none() {
        // A broken file of the cache may be why it is unknown.
        refuse_taken(&network, &attachment).inspect_err(|_| drop(settings.find_cached(&network.name, &attachment)))?;
    }
    refuse_missing(settings, &network)?;
    warn_of_unused(&network, &attachment);
    let added = settings.runtime.add(&network, &attachment).await;
    let result = added.map_err(|error| with_place_of_key(&network, Some(&attachment), error))?;
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
pub(crate) fn warn_of_unused(network: &NetworkConf, attachment: &RuntimeConf) {
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

/// Refuses an ADD whose interface is there already, and not by an earlier ADD of the same. The plugin would refuse it as well, but then the DEL of the rollback would
/// remove the interface, if it has no mark of another attachment: one that the reference has made has none.
fn refuse_taken(network: &NetworkConf, attachment: &RuntimeConf) -> anyhow::Result<()> {
    let makes_interface = |plugin: &PluginObject| {
        let name = plugin_of(plugin.plugin_type.as_str());
        crate::keys::ALL.iter().any(|known| known.name == name && known.role == Role::Interface)
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
