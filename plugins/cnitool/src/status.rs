//! `cnitool status`: whether the network can take containers.

use crate::doctor::network_files::Makes;
use crate::error_remedies::with_place_of_key;
use crate::output::Output;
use crate::parsed_network::Network;
use crate::settings::Settings;
use serde_json::json;

/// Whether the network can take containers. Below version 1.1.0 there is no STATUS, and the output says so.
pub(crate) async fn run(settings: &Settings, network: &str, output: Output) -> anyhow::Result<()> {
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
    settings.runtime.status(&asking).await.map_err(|error| with_place_of_key(&network, None, error))?;
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
