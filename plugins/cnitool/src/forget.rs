//! `cnitool del --forget`: an attachment is removed from the cache without a plugin, if neither the node nor its container has anything of it.

use crate::args::{Attached, Target};
use crate::error_remedies::refused;
use crate::settings::Settings;
use crate::settings::container_id_and_netns::each;
use anyhow::Context;
use libcni::cni_spec::{CniError, Code, NetworkName};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, Cache, Cached, Namespace, NetworkConf, RuntimeConf};
use netops::{Kernel, Netns, link};
use on_node::networks::conf_of_traces;

/// Removes the cache's entry of an attachment for which no plugin's DEL succeeds, if the node has nothing of it.
pub(crate) async fn run(settings: &Settings, words: &Attached) -> anyhow::Result<()> {
    each(settings.targets("del --forget", words)?, forget).await
}

async fn forget(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let mut attachment = settings.attachment(target)?;
    let cached = settings.cached(&target.network, &attachment);
    if let Some(cached) = &cached {
        settings.complete(&mut attachment, cached);
    }
    let cached_conf = || cached.as_ref().and_then(|cached| cached.network_conf().ok());
    let network = settings.network(&target.network).ok().or_else(cached_conf);
    // No configuration is readable: any plugin may have left something.
    let network = network.or_else(|| conf_of_traces(&target.network));
    let network = network.with_context(|| format!("{} is no name of a network", target.network))?;
    let id = &attachment.id;
    match settings
        .runtime
        .forget(&network, id)
        .with_inventory(&AlsoInside { on_node: &settings.inventory, cache: settings.runtime.cache() })
        .await?
    {
        true => Ok(()),
        false => {
            settings.find_cached(&network.name, &attachment)?;
            let (container, ifname) = (&id.container_id, &id.ifname);
            let msg =
                format!("cannot forget {container}/{ifname} in network {}: the cache does not have it", network.name);
            Err(refused(Code::UNKNOWN_CONTAINER, msg, "cnitool list shows what the cache has."))
        }
    }
}

/// The node with what a container has of an attachment whose link is in its namespace alone.
struct AlsoInside<'a> {
    on_node: &'a on_node::Node,
    cache: &'a Cache,
}

impl Inventory for AlsoInside<'_> {
    fn list(&self, network: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        let mut found = self.on_node.list(network, known)?;
        let name = network.network_name()?;
        let inside = known.iter().filter_map(|id| {
            let cached = self.cache.find(&name, id).ok().flatten();
            let object = in_namespace(&name, cached.as_ref(), id)?;
            Some(OnNode { id: Some(id.clone()), objects: vec![object], life: Life::Lives })
        });
        found.extend(inside);
        Ok(found)
    }
}

/// What the container still has of an attachment whose link is in its namespace alone: a link with its mark, or its interface.
fn in_namespace(network: &NetworkName, cached: Option<&Cached>, id: &AttachmentId) -> Option<String> {
    let cached = cached.filter(|cached| cached.namespace() == Namespace::Present);
    if let Some(RuntimeConf { netns, .. }) = cached.map(|cached| &cached.attachment) {
        let inside = Netns::open(netns.as_str()).ok().and_then(|netns| Kernel::in_netns(&netns).ok());
        let link = inside.and_then(|inside| link::find(&inside, id.ifname.as_str()).ok().flatten());
        if let Some(link) = link {
            return Some(format!("interface {} in its namespace, {netns}", link.name));
        }
    }
    on_node::is_in_a_namespace(network, id).then(|| "an interface with its mark in a namespace".to_owned())
}
