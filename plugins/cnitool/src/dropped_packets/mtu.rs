//! The largest packets that the links of an attachment's way take.

use netops::Family;
use netops::link::{Kind as LinkKind, Link};

use super::container_interface::Inside;
use super::rows::{At, Evidence, of, rows};
use crate::doctor::{Step, advice};
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// The MTU of a container's link whose network sets none: `ETH_DATA_LEN` of linux/if_ether.h.
const MTU_BYTES: u32 = 1500;

/// The least MTU of IPv6, in bytes (`IPV6_MIN_MTU` of linux/ipv6.h).
pub(super) const IPV6_MIN_MTU: u32 = 1280;

rows! {
    Mtu Warning narrow_way: "its mtu is {0}, and that of {1}: large packets do not pass"
        all "mtu of containers is {0}, and that of {1}";
    Mtu Warning narrow_bridge: "mtu of containers is {0}, and that of their bridge {1} {2}{3}";
    Mtu Warning narrow_end: "mtu of link {0} is {1}, and that of its other end in the container {2}";
}

impl At<'_> {
    fn own_mtu(&self) -> Option<u32> {
        self.ends().map(|link| link.mtu_bytes).max().filter(|_| self.carrier.is_routed())
    }

    /// The link, with its MTU, by which packets leave the node, if it is narrower than the container's. What stays on its network
    /// may be larger.
    fn way_out_below(&self, own: u32) -> Option<(&Link, u32)> {
        let ways = Family::BOTH.into_iter().filter(|family| self.has(*family) && self.has_way_out(*family));
        let narrowest = ways.filter_map(|family| self.sight.link_out(family)).min_by_key(|(_, mtu)| *mtu);
        narrowest.filter(|(_, mtu)| *mtu < own)
    }

    fn narrow_way(&self) -> Vec<Evidence> {
        let Some(own) = self.own_mtu() else { return Vec::new() };
        let evidence = |(link, mtu): (&Link, u32)| {
            let way = match mtu < link.mtu_bytes {
                true => format!("the route out by {} {mtu}", link.name),
                false => format!("{}, the way out, {mtu}", link.name),
            };
            of([&own, &way]).and(match mtu < IPV6_MIN_MTU && self.has(Family::V6) {
                true => vec![advice(format!("Raise it to {IPV6_MIN_MTU} at least, which IPv6 needs."))],
                false => both_ends(self.attachment, mtu).into_iter().map(Step::from).collect(),
            })
        };
        self.way_out_below(own).map(evidence).into_iter().collect()
    }

    /// A bridge is as narrow as its narrowest port. One that has the MTU of a port which is narrower than its other end is a matter of
    /// that port.
    fn narrow_bridge(&self) -> Vec<Evidence> {
        let own = self.own_mtu().filter(|own| self.way_out_below(*own).is_none());
        let (Some(own), Some((bridge, link))) = (own, self.bridge()) else { return Vec::new() };
        let mtu = link.mtu_bytes;
        let mut ports = self.sight.ports_of(link).filter(|(_, port)| port.mtu_bytes == mtu).map(|(it, _)| it);
        let is_wider = |it: &Attachment| Inside::of(it).is_some_and(|inside| inside.link.mtu_bytes > mtu);
        if mtu >= own || ports.clone().any(is_wider) {
            return Vec::new();
        }
        let wider = format!("ip link set {} mtu {own}", word(&bridge.name));
        if let Some(narrow) = ports.find(|it| mtu_at_add(it) > mtu) {
            let by = format!(", by {}, which ADD gave {}", narrow.full_name(), mtu_at_add(narrow));
            return vec![of([&own, &bridge.name, &mtu, &by]).and(both_ends(narrow, mtu_at_add(narrow))).and([wider])];
        }
        // Unless its network wants it, one link of all is the one that was changed; and a narrow one has no IPv6.
        let mut keys = self.attachment.conf.iter().flat_map(|conf| &conf.plugins).filter_map(|it| it.find("mtu"));
        let is_wanted = keys.any(|text| text == mtu.to_string()) && !(mtu < IPV6_MIN_MTU && self.has(Family::V6));
        let remedy = if is_wanted { both_ends(self.attachment, mtu) } else { vec![wider] };
        vec![of([&own, &bridge.name, &mtu, &""]).and(remedy)]
    }

    /// The node's end of a pair is narrower than the container's: the kernel drops what is larger, and narrows the bridge.
    fn narrow_end(&self) -> Vec<Evidence> {
        let Some(inside) = self.inside() else { return Vec::new() };
        let wide = inside.link.mtu_bytes;
        let evidence = |link: &Link| {
            // The one that was changed gets its MTU back.
            let remedy = match wide > mtu_at_add(self.attachment) {
                true => inside.ip(&format!("link set {} mtu {}", word(&inside.link.name), link.mtu_bytes)),
                false => format!("ip link set {} mtu {wide}", word(&link.name)),
            };
            of([&link.name, &link.mtu_bytes, &wide]).and([remedy])
        };
        self.ends().filter(|link| link.kind == LinkKind::Veth && link.mtu_bytes < wide).map(evidence).collect()
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
