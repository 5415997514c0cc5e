//! The largest packets that the links of an attachment's way take.

use netops::Family;
use netops::link::{Kind, Link};

use super::container_routes::has_way_out;
use super::way_to_container::Carrier;
use super::{Cause, Findings, Level, Reason, Sight, container_interface};
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// The MTU of a container's link whose network sets none: `ETH_DATA_LEN` of linux/if_ether.h.
const MTU_BYTES: u32 = 1500;

/// The least MTU of IPv6, in bytes (`IPV6_MIN_MTU` of linux/ipv6.h).
pub(super) const IPV6_MIN_MTU: u32 = 1280;

impl Sight<'_> {
    /// The largest packet of the container against those that the links on its way take.
    pub(super) fn width(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let links = attachment.links.iter().filter_map(|link| self.host.find(&link.name));
        let Some(own) = links.map(|link| link.mtu_bytes).max() else { return };
        let has = |family: &Family| attachment.addresses.iter().any(|address| Family::from(*address) == *family);
        // What stays on its network may be larger.
        let ways = Family::BOTH.into_iter().filter(has);
        let ways = ways.filter(|family| has_way_out(attachment, carrier, *family == Family::V4));
        let narrowest = ways.filter_map(|family| self.link_out(family)).min_by_key(|(_, mtu)| *mtu);
        if let Some((link, mtu)) = narrowest.filter(|(_, mtu)| *mtu < own) {
            let of = if mtu < link.mtu_bytes { "the route out by " } else { "" };
            let (of, by) = (format!("{of}{}", link.name), if of.is_empty() { ", the way out," } else { "" });
            let what = format!("mtu of containers is {own}, and that of {of}{by} {mtu}");
            let why = format!("its mtu is {own}, and that of {of}{by} {mtu}: large packets do not pass");
            let reason = Reason::new(Cause::Mtu, Level::Warning, why).shared(what);
            let is_too_narrow = mtu < IPV6_MIN_MTU && has(&Family::V6);
            let remedy = match is_too_narrow {
                true => vec![format!("Raise it to {IPV6_MIN_MTU} at least, which IPv6 needs.")],
                false => both_ends(attachment, mtu),
            };
            findings.reasons.push(reason.mended_by(remedy));
        } else if let Some(bridge) = carrier.bridge().and_then(|bridge| self.host.find(&bridge.name))
            && bridge.mtu_bytes < own
            && !self.is_narrowed_by_a_port(bridge)
        {
            let mtu = bridge.mtu_bytes;
            let what = format!("mtu of containers is {own}, and that of their bridge {} {mtu}", bridge.name);
            if let Some(narrow) = self.narrowed_since_add(bridge) {
                let what = format!("{what}, by {}, which ADD gave {}", narrow.full_name(), mtu_at_add(narrow));
                let wider = both_ends(narrow, mtu_at_add(narrow));
                let bridge = format!("ip link set {} mtu {own}", word(&bridge.name));
                let reason = Reason::new(Cause::Mtu, Level::Warning, what);
                findings.reasons.push(reason.mended_by(wider.into_iter().chain([bridge])));
                return;
            }
            let reason = Reason::new(Cause::Mtu, Level::Warning, what);
            // Unless its network wants it, one link of all is the one that was changed; and a narrow one has no IPv6.
            let wants = |conf: &libcni::NetworkConf| {
                let mut keys = conf.plugins.iter().filter_map(|plugin| plugin.find("mtu"));
                keys.any(|text| text == mtu.to_string())
            };
            let is_wanted = attachment.conf.as_ref().is_some_and(wants) && !(mtu < IPV6_MIN_MTU && has(&Family::V6));
            let wider = Some(format!("ip link set {} mtu {own}", word(&bridge.name))).filter(|_| !is_wanted);
            let narrowed = is_wanted.then(|| both_ends(attachment, mtu)).into_iter().flatten();
            findings.reasons.push(reason.mended_by(wider.into_iter().chain(narrowed)));
        }
    }

    /// The attachment whose link has been narrowed since its ADD, and the bridge with it.
    fn narrowed_since_add(&self, bridge: &Link) -> Option<&Attachment> {
        let is_narrow = |attachment: &&Attachment| {
            let links = attachment.links.iter().filter_map(|link| self.host.find(&link.name));
            let mut ports = links.filter(|link| link.master == Some(bridge.index));
            ports.any(|port| port.mtu_bytes == bridge.mtu_bytes) && mtu_at_add(attachment) > bridge.mtu_bytes
        };
        self.view.networks.iter().flat_map(|network| &network.attachments).find(is_narrow)
    }

    /// Whether a bridge has its MTU of a port that is narrower than its other end: a reason of that port's attachment.
    fn is_narrowed_by_a_port(&self, bridge: &Link) -> bool {
        let has_its_mtu = |link: &&Link| link.master == Some(bridge.index) && link.mtu_bytes == bridge.mtu_bytes;
        let of = |port: &Link| {
            let mut attachments = self.view.networks.iter().flat_map(|network| &network.attachments);
            attachments.find(|attachment| attachment.links.iter().any(|link| link.name == port.name))
        };
        let mut narrow = self.host.links.iter().filter(has_its_mtu).filter_map(|port| Some((port, of(port)?)));
        narrow.any(|(port, attachment)| container_interface::mtu_bytes(attachment) > Some(port.mtu_bytes))
    }

    /// The node's end of a pair is narrower than the container's: the kernel drops what is larger, and narrows the bridge.
    pub(super) fn narrow_end(&self, attachment: &Attachment, inside: &Link, findings: &mut Findings) {
        let links = attachment.links.iter().filter_map(|link| self.host.find(&link.name));
        for link in links.filter(|link| link.kind == Kind::Veth && link.mtu_bytes < inside.mtu_bytes) {
            let (name, narrow, wide) = (&link.name, link.mtu_bytes, inside.mtu_bytes);
            let what = format!("mtu of link {name} is {narrow}, and that of its other end in the container {wide}");
            // The one that was changed gets its MTU back.
            let remedy = match wide > mtu_at_add(attachment) {
                true => format!(
                    "nsenter --net={} ip link set {} mtu {narrow}",
                    word(&attachment.netns),
                    word(attachment.id.ifname.as_str())
                ),
                false => format!("ip link set {} mtu {wide}", word(name)),
            };
            findings.reasons.push(Reason::new(Cause::Mtu, Level::Warning, what).mended_by([remedy]));
        }
    }
}

/// The MTU that ADD gave the container's link: by its result, or by its network.
fn mtu_at_add(attachment: &Attachment) -> u32 {
    let name = attachment.id.ifname.as_str();
    let mut links = attachment.result.interfaces.iter().filter(|link| link.name == name && !link.sandbox.is_empty());
    let by_result = links.find_map(|link| Some(link.mtu).filter(|mtu| *mtu > 0));
    let mut plugins = attachment.conf.iter().flat_map(|conf| &conf.plugins);
    let by_key = || plugins.find_map(|plugin| plugin.find("mtu")?.parse().ok().filter(|mtu| *mtu > 0));
    by_result.or_else(by_key).unwrap_or(MTU_BYTES)
}

/// Commands that give both ends of the container's link an MTU.
fn both_ends(attachment: &Attachment, mtu: u32) -> Vec<String> {
    let netns = &attachment.netns;
    let inside = format!("nsenter --net={} ip link set {} mtu {mtu}", word(netns), word(attachment.id.ifname.as_str()));
    let links = attachment.links.iter().map(|link| format!("ip link set {} mtu {mtu}", word(&link.name)));
    Some(inside).filter(|_| !netns.is_empty()).into_iter().chain(links).collect()
}
