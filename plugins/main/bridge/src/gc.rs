//! GC: what attachments of this network left on the node that are no longer valid.

use std::collections::BTreeSet;

use cni_spec::{CniError, Code};
use filter::Attachment;
use interface::failed;
use interface::host_veth::{self, Owner};
use netops::link::{self, Kind, Link};
use netops::unlink::Left;
use netops::{Kernel, OpError};
use skel::{Delegate, GcRequest};

use crate::conf::Removal;
use crate::links;

/// Removes links, rules and addresses of all attachments that are not valid.
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
    let mut errors: Vec<CniError> =
        filter::gc(network.as_str(), &valid, request.raw.search_path()).into_iter().map(failed).collect();
    let kept = match (remove_links(request), errors.is_empty()) {
        (Ok(left), are_rules_gone) => {
            let owners = left.iter().map(|left| host_veth::find_owner(network, &left.link)).collect();
            errors.extend(left.into_iter().map(|left| failed(left.error)));
            if are_rules_gone { owners } else { None }
        }
        (Err(error), _) => {
            errors.push(failed(error));
            None
        }
    };
    // Behind links, as in DEL.
    errors.extend(filter::gc_spoof_guards(&valid).into_iter().map(failed));
    if let Some(ipam) = request.ipam() {
        match unmarked_stale(request) {
            Ok(0) => errors.extend(collect_addresses(&ipam, &request.valid, kept).await.err()),
            Ok(count) => tracing::warn!(
                count,
                "no address is collected: containers that are not valid have veths without a mark, as the reference makes \
                 them; delete those containers, and repeat GC"
            ),
            Err(error) => errors.push(failed(error)),
        }
    }
    CniError::join(errors).map_or(Ok(()), Err)
}

/// How many veths without a mark the bridge has beyond those that valid attachments need. What the reference made has no
/// mark, so whose they are is not known; but each speaks for an address that another container must not get.
fn unmarked_stale(request: &GcRequest<Removal>) -> Result<usize, OpError> {
    let host = Kernel::host()?;
    let Some(name) = &request.conf.own.bridge else { return Ok(0) };
    let Some(bridge) = link::find(&host, name.as_str())? else { return Ok(0) };
    let ports = link::list(&host, Some(bridge.index))?;
    // The other end of a VLAN gateway's port is in the node itself.
    let is_unmarked =
        |port: &&Link| port.kind == Kind::Veth && port.peer_netns_id.is_some() && !host_veth::is_marked(port);
    let unmarked = ports.iter().filter(is_unmarked).count();
    let marks: BTreeSet<&str> = ports.iter().filter_map(|port| port.alias.as_deref()).collect();
    let is_marked = |attachment: &&cni_spec::Attachment| {
        let cni_spec::Attachment { container_id, ifname } = attachment;
        marks.contains(&*Owner { network: &request.conf.name, container_id, ifname }.alias())
    };
    let explained = request.valid.len() - request.valid.iter().filter(is_marked).count();
    Ok(unmarked.saturating_sub(explained))
}

/// An address stays held while a rule or a link of its attachment may be there. Where those are not known one by one, all do.
async fn collect_addresses(
    ipam: &Delegate<'_>,
    valid: &[cni_spec::Attachment],
    kept: Option<Vec<cni_spec::Attachment>>,
) -> Result<(), CniError> {
    match kept {
        None => {
            Err(CniError::new(Code::KERNEL, "cannot collect addresses: it is not known whose rules or links are left")
                .detail("Repeat GC when what is said before is mended."))
        }
        Some(kept) if kept.is_empty() => ipam.gc().await,
        Some(kept) => ipam.gc_but(&[valid, &kept].concat()).await,
    }
}

fn remove_links(request: &GcRequest<Removal>) -> Result<Vec<Left>, OpError> {
    let stale = host_veth::list_stale(&Kernel::host()?, &request.conf.name, &request.valid)?;
    Ok(links::remove_stale(&stale))
}
