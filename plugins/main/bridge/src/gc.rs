//! GC: what attachments of this network left on the node that are no longer valid.

use cni_spec::CniError;
use filter::Attachment;
use interface::{failed, host_veth};
use netops::{Kernel, OpError, unlink};
use skel::GcRequest;

use crate::conf::Removal;

/// Removes rules, links and addresses of all attachments that are not valid.
///
/// # Errors
/// What could not be removed, together.
pub async fn gc(request: &GcRequest<Removal>) -> Result<(), CniError> {
    let network = &request.conf.name;
    let valid: Vec<Attachment<'_>> = request
        .valid
        .iter()
        .map(|attachment| Attachment {
            network: network.as_str(),
            container: attachment.container_id.as_str(),
            ifname: attachment.ifname.as_str(),
        })
        .collect();
    let removed = filter::gc(network.as_str(), &valid, request.raw.search_path());
    let mut errors: Vec<CniError> = removed.into_iter().map(failed).collect();
    errors.extend(remove_links(request).err().map(failed));
    if let Some(ipam) = request.ipam() {
        errors.extend(ipam.gc().await.err());
    }
    CniError::join(errors).map_or(Ok(()), Err)
}

fn remove_links(request: &GcRequest<Removal>) -> Result<(), OpError> {
    let host = Kernel::host()?;
    let stale = host_veth::list_stale(&host, &request.conf.name, &request.valid)?;
    for link in &stale {
        tracing::info!(link = link.name, alias = link.alias, "removing the host end of an attachment that is gone");
    }
    unlink::remove_announced(&stale)
}
