//! `cnitool del`: DEL by the network's file, by the cache, or by what the network has left on the node.

use crate::args::{Del, Target};
use crate::forget;
use crate::settings::Settings;
use crate::settings::container_id_and_netns::each;
use libcni::{AttachmentId, Cached, Error, Namespace, RuntimeConf};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// DEL of the attachments that are named, the newest first; with `--forget` only the cache's entries go.
pub(crate) async fn run(settings: &Settings, words: &Del) -> anyhow::Result<()> {
    if words.forget {
        return forget::run(settings, &words.attached).await;
    }
    settings.refuse_part_of_id("delete")?;
    let mut targets = settings.targets("del", &words.attached)?;
    targets.reverse();
    each(targets, del).await
}

/// DEL with the file's configuration, or, if that is gone, with the one that ADD left in the cache; of a network that has only
/// left traces on the node, with the plugins that remove these.
async fn del(settings: &Settings, target: &Target) -> anyhow::Result<()> {
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
fn warn_of_other_namespace(cached: &Cached, attachment: &RuntimeConf) {
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
