//! GC: what attachments of this network left on the node that are no longer valid.

use cni_spec::{CniError, Code};
use filter::Attachment;
use interface::{failed, host_veth};
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
        errors.extend(collect_addresses(&ipam, &request.valid, kept).await.err());
    }
    CniError::join(errors).map_or(Ok(()), Err)
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
