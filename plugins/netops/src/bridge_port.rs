//! A bridge's settings for one port: hairpin, isolation, VLANs.

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, InfoBridgePort, InfoPortData, InfoPortKind, LinkAttribute,
    LinkExtentMask, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::Result;
use crate::link::{Link, Port, Target};
use crate::netlink_connection::{Kernel, Request};

/// Sets a port's flags.
///
/// # Errors
/// `EINVAL`: the link is not a bridge port. `EOPNOTSUPP`: the kernel is too old for isolation (before 4.18).
pub fn set(target: &Target, port: Port) -> Request {
    let mut message = target.message();
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(vec![
            InfoBridgePort::HairpinMode(port.hairpin),
            InfoBridgePort::Isolated(port.isolated),
        ])),
    ]));
    let (hairpin, isolated) = (u8::from(port.hairpin), u8::from(port.isolated));
    let name = target.name();
    Request::new("set", format!("bridge port {name}"), RouteNetlinkMessage::NewLink(message))
        .wire_name(format!("RTM_NEWLINK dev={name} hairpin={hairpin} isolated={isolated}"))
}

/// A range of VLANs of a port, both ends included. A single VLAN has equal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vlans {
    /// The first, 1 to 4094.
    pub first: u16,
    /// The last, 1 to 4094.
    pub last: u16,
    /// Untagged frames that come in belong to this VLAN (pvid).
    pub pvid: bool,
    /// Frames of this VLAN go out untagged.
    pub untagged: bool,
}

impl Vlans {
    /// VLANs whose frames keep their tags.
    #[must_use]
    pub fn tagged(first: u16, last: u16) -> Self {
        Self { first, last, pvid: false, untagged: false }
    }

    /// The VLAN of untagged frames, in both directions.
    #[must_use]
    pub fn access(id: u16) -> Self {
        Self { first: id, last: id, pvid: true, untagged: true }
    }

    fn attributes(self) -> Vec<AfSpecBridge> {
        let mut flags = BridgeVlanInfoFlags::empty();
        flags.set(BridgeVlanInfoFlags::Pvid, self.pvid);
        flags.set(BridgeVlanInfoFlags::Untagged, self.untagged);
        let info = |flags, vid| AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid });
        if self.first == self.last {
            return vec![info(flags, self.first)];
        }
        vec![
            info(flags | BridgeVlanInfoFlags::RangeBegin, self.first),
            info(flags | BridgeVlanInfoFlags::RangeEnd, self.last),
        ]
    }
}

impl std::fmt::Display for Vlans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vid {}", self.first)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        if self.pvid {
            f.write_str(" pvid")?;
        }
        if self.untagged {
            f.write_str(" untagged")?;
        }
        Ok(())
    }
}

/// Puts a port into VLANs, or changes their flags.
///
/// # Errors
/// `EOPNOTSUPP`: the kernel has no bridge VLAN filtering, or the link is not a bridge port.
pub fn add_vlans(port: &Link, vlans: Vlans) -> Request {
    let message = RouteNetlinkMessage::SetLink(vlan_message(port, vlans));
    vlan_request("add", "RTM_SETLINK", port, vlans, message)
}

/// Takes a port out of VLANs. It is no error if the port is not in them.
///
/// # Errors
/// As [`add_vlans`].
pub fn delete_vlans(port: &Link, vlans: Vlans) -> Request {
    let message = RouteNetlinkMessage::DelLink(vlan_message(port, vlans));
    vlan_request("delete", "RTM_DELLINK", port, vlans, message)
}

fn vlan_message(port: &Link, vlans: Vlans) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.header.index = port.index;
    message.attributes.push(LinkAttribute::AfSpecBridge(vlans.attributes()));
    message
}

fn vlan_request(op: &'static str, kind: &str, port: &Link, vlans: Vlans, message: RouteNetlinkMessage) -> Request {
    Request::new(op, format!("VLAN {vlans} on bridge port {}", port.name), message)
        .wire_name(format!("{kind} AF_BRIDGE dev={} {vlans}", port.name))
}

/// The VLANs of one port of the bridge `master`, one entry each, in order. The cost grows with the number of bridge
/// ports in the namespace: a strictly checked dump of `AF_BRIDGE` accepts no filter (`valid_bridge_getlink_req`).
///
/// # Errors
/// As the kernel refuses.
pub fn list_vlans(net: &Kernel, master: u32, port: u32) -> Result<Vec<Vlans>> {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Brvlan]));
    let request = Request::new("list", "bridge VLANs", RouteNetlinkMessage::GetLink(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETLINK AF_BRIDGE dump");
    let mut vlans = Vec::new();
    for answer in net.call(request)? {
        if let RouteNetlinkMessage::NewLink(link) = answer
            && link.header.index == port
            && link.attributes.contains(&LinkAttribute::Controller(master))
        {
            vlans.extend(link.attributes.iter().flat_map(vlans_in));
        }
    }
    Ok(vlans)
}

/// Vlans as ranges, as far as they are neighbours of one kind.
#[must_use]
pub fn ranges(vlans: &[Vlans]) -> Vec<Vlans> {
    let mut ranges: Vec<Vlans> = Vec::new();
    for next in vlans {
        match ranges.last_mut() {
            Some(last)
                if last.last.checked_add(1) == Some(next.first)
                    && (last.pvid, next.pvid) == (false, false)
                    && last.untagged == next.untagged =>
            {
                last.last = next.last;
            }
            _ => ranges.push(*next),
        }
    }
    ranges
}

/// Gives a port of the bridge `master` these VLANs, and no others.
///
/// # Errors
/// As [`list_vlans`] and [`add_vlans`].
pub fn set_vlans(net: &Kernel, master: u32, port: &Link, wanted: &[Vlans]) -> Result<()> {
    let each = |vlans: &Vlans| {
        let Vlans { pvid, untagged, .. } = *vlans;
        (vlans.first..=vlans.last).map(move |id| Vlans { first: id, last: id, pvid, untagged })
    };
    let wanted: Vec<Vlans> = wanted.iter().flat_map(each).collect();
    let now = list_vlans(net, master, port.index)?;
    let foreign: Vec<_> = now.iter().filter(|vlan| wanted.iter().all(|own| own.first != vlan.first)).copied().collect();
    let missing: Vec<_> = wanted.iter().filter(|vlan| !now.contains(vlan)).copied().collect();
    let deleted = ranges(&foreign).into_iter().map(|vlans| delete_vlans(port, vlans));
    net.run_all(deleted.chain(ranges(&missing).into_iter().map(|vlans| add_vlans(port, vlans))).collect())
}

pub(crate) fn vlans_in(attribute: &LinkAttribute) -> Vec<Vlans> {
    let LinkAttribute::AfSpecBridge(specs) = attribute else {
        return Vec::new();
    };
    let info = |spec: &AfSpecBridge| match spec {
        AfSpecBridge::VlanInfo(info) => Some(Vlans {
            first: info.vid,
            last: info.vid,
            pvid: info.flags.contains(BridgeVlanInfoFlags::Pvid),
            untagged: info.flags.contains(BridgeVlanInfoFlags::Untagged),
        }),
        _ => None,
    };
    specs.iter().filter_map(info).collect()
}
