//! The links of kind ifb that GC would remove if no attachment were valid.

use cni_spec::{CniError, NetworkName};
use interface::inventory::{Item, Owner, Sign};
use interface::{alias, failed};
use netops::Kernel;
use netops::link::{Kind, Link};
use netops::tc;

/// Each ifb of the network, among all `links` of the host. Changes nothing.
///
/// The veth that an ifb serves says whether the container lives: one with the same mark, which is a mark of the attachment by
/// itself, or else the one whose packets are redirected to the ifb.
///
/// # Errors
/// The host's filters cannot be read.
pub fn inventory(network: &NetworkName, links: &[Link]) -> Result<Vec<Item>, CniError> {
    let (mut items, mut redirects) = (Vec::new(), None);
    for ifb in alias::marked(links, &Kind::Ifb, network) {
        let alias = ifb.alias.clone().unwrap_or_default();
        let has_own_veth =
            alias::marked(links, &Kind::Veth, network).any(|veth| veth.alias.as_deref() == Some(&*alias));
        let mut signs = Vec::new();
        if !has_own_veth {
            let all = match &redirects {
                Some(all) => all,
                None => redirects.insert(unmarked_redirects(links)?),
            };
            signs.extend(all.iter().filter(|(_, to)| *to == ifb.index).map(|(veth, _)| Sign::Link(*veth)));
        }
        let owner = match alias::Mark::of_link(ifb).and_then(|mark| mark.attachment_to(network)) {
            Some(attachment) => (&attachment).into(),
            None => Owner::Word(alias),
        };
        items.push(Item { owner, object: format!("link {}", ifb.name), signs });
    }
    Ok(items)
}

/// Veths without a mark, as the reference's, and where their packets are redirected to.
fn unmarked_redirects(links: &[Link]) -> Result<Vec<(u32, u32)>, CniError> {
    let host = Kernel::host().map_err(failed)?;
    let mut found = Vec::new();
    for veth in links.iter().filter(|link| link.kind == Kind::Veth && !alias::is_marked(link)) {
        let redirects = match tc::list_redirects(&host, veth) {
            // The link has gone meanwhile.
            Err(error) if error.is_absent() => continue,
            redirects => redirects.map_err(failed)?,
        };
        found.extend(redirects.iter().map(|redirect| (veth.index, redirect.to)));
    }
    Ok(found)
}
