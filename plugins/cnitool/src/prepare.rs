//! `cnitool prepare`: what the first ADD makes of the node's own, before there is a container.

use crate::args::{Prepare, Target};
use crate::error_remedies::with_place_of_key;
use crate::output::Output;
use crate::settings::Settings;
use libcni::cni_spec::{CniError, Code};
use netops::Netns;
use on_node::plugin_of;
use serde_json::json;
use std::os::fd::AsRawFd;

/// Plugins with something on the node that outlives their containers. An ADD of others moves or borrows a device of the node.
const LASTING: [&str; 2] = ["bridge", "ptp"];

/// ADD of a namespace without processes, CHECK of it if wanted, and DEL, which leaves what all containers share.
pub(crate) async fn run(settings: &Settings, words: &Prepare, output: Output) -> anyhow::Result<()> {
    let network = settings.network(&words.network)?;
    let first = network.plugins.first().map(|plugin| plugin_of(plugin.plugin_type.as_str())).unwrap_or_default();
    if !LASTING.contains(&first) {
        let msg = format!("cannot prepare network {}: its first plugin is {first}", network.name);
        let details = "Nothing was changed. Only bridge and ptp make things that stay when a container goes.";
        return Err(CniError::new(Code::INVALID_CONFIG, msg).detail(details).into());
    }
    let place = Netns::create()?;
    let netns = format!("/proc/{}/fd/{}", std::process::id(), place.as_raw_fd());
    let mut settings = settings.clone();
    settings.container_id.get_or_insert_with(|| format!("cnitool-prepare-{}", std::process::id()));
    let attachment = settings.attachment(&Target { network: network.name.clone(), netns })?;
    let failed = |error| with_place_of_key(&network, Some(&attachment), error);
    let mut made = settings.runtime.add(&network, &attachment).await.map(drop);
    if words.check && made.is_ok() {
        made = settings.runtime.check(&network, &attachment).await;
    }
    // Also after a failure: what ADD could not take back is tried once more.
    let removed = settings.runtime.del(&network, &attachment).await;
    made.map_err(failed)?;
    removed.map_err(failed)?;
    if output.is_json {
        return output.json(&json!({ "network": network.name, "checked": words.check }));
    }
    Ok(())
}
