//! Links of the node that have another name or Ethernet address than ADD reported, and the command that gives them theirs back.

use libcni::AttachmentId;
use libcni::cni_spec::Interface;
use netops::link::Mac;

use super::Survey;
use super::gateways::mac_of_host;
use super::host_links::rename;
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// A link of the node that is not as ADD reported it.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The change, in words that fit all attachments that have the link.
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Survey {
    /// The first change of a link of this attachment's.
    pub(crate) fn changed_link(&self, network: &str, id: &AttachmentId) -> Option<Changed> {
        let network = self.view.networks.iter().find(|of| of.name == network)?;
        let attachment = network.attachments.iter().find(|attachment| attachment.id == *id)?;
        self.renamed_end(attachment).or_else(|| self.other_address(attachment))
    }

    /// The host's end, which is the only link of the result that no link has the name of.
    fn renamed_end(&self, attachment: &Attachment) -> Option<Changed> {
        let mut lost = of_host(attachment).filter(|entry| self.host.find(&entry.name).is_none());
        let (Some(was), None) = (lost.next(), lost.next()) else { return None };
        let [end] = &*attachment.links else { return None };
        if of_host(attachment).any(|entry| entry.name == end.name) {
            return None;
        }
        let what = format!("link {} is called {} now", was.name, end.name);
        Some(Changed { what, remedy: rename(&end.name, &was.name) })
    }

    /// A link that each attachment which has it knows by one other Ethernet address.
    fn other_address(&self, attachment: &Attachment) -> Option<Changed> {
        let all = || self.view.networks.iter().flat_map(|network| &network.attachments);
        of_host(attachment).find_map(|entry| {
            let (wanted, found): (Mac, Mac) = (entry.mac.parse().ok()?, self.host.find(&entry.name)?.mac?);
            let mut known = all().filter_map(|of| mac_of_host(of, &entry.name));
            if found == wanted || known.any(|mac| mac != wanted) {
                return None;
            }
            let what = format!("link {} has Ethernet address {found}, and ADD found it with {wanted}", entry.name);
            Some(Changed { what, remedy: format!("ip link set {} address {wanted}", word(&entry.name)) })
        })
    }
}

/// The links of the node in the result of ADD.
fn of_host(attachment: &Attachment) -> impl Iterator<Item = &Interface> {
    attachment.result.interfaces.iter().filter(|entry| entry.sandbox.is_empty())
}
