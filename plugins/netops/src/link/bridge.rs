//! Bridges.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoBridge, InfoData};
use rtnetlink::{LinkBridge, LinkMessageBuilder};

use super::Mac;
use crate::feature::Feature;
use crate::netlink_connection::Request;

/// A bridge's VLAN settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vlans {
    /// Whether the bridge filters VLANs (`vlan_filtering`); `None` leaves the kernel's default, off.
    pub filtering: Option<bool>,
    /// The VLAN of new ports (`vlan_default_pvid`; 0: none). `None`: the kernel has no VLANs on bridges.
    pub default_pvid: Option<u16>,
}

impl Vlans {
    pub(super) fn read(options: &[InfoBridge]) -> Self {
        let mut vlans = Self::default();
        for option in options {
            match option {
                InfoBridge::VlanFiltering(on) => vlans.filtering = Some(*on),
                InfoBridge::VlanDefaultPvid(id) => vlans.default_pvid = Some(*id),
                _ => (),
            }
        }
        vlans
    }

    pub(super) fn data(self) -> Option<InfoData> {
        let filtering = self.filtering.map(InfoBridge::VlanFiltering);
        let options: Vec<InfoBridge> =
            filtering.into_iter().chain(self.default_pvid.map(InfoBridge::VlanDefaultPvid)).collect();
        (!options.is_empty()).then_some(InfoData::Bridge(options))
    }
}

/// Settings of a new bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bridge {
    /// The MTU, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// The fixed Ethernet address. With `None` the bridge has the address of one of its ports, which changes as ports come
    /// and go.
    pub mac: Option<Mac>,
    /// Whether the bridge filters VLANs (`vlan_filtering`).
    pub vlan_filtering: bool,
    /// The link-local groups 01:80:c2:00:00:0X that are forwarded, a bit each (`group_fwd_mask`); the kernel refuses bits 0 to 2.
    pub group_forward_mask: Option<u16>,
    /// Whether multicast frames go to those ports only behind which somebody listens (`mcast_snooping`); `None` leaves the
    /// kernel's default, which is true where it can.
    pub multicast_snooping: Option<bool>,
}

/// Creates a bridge, down.
///
/// # Errors
/// `EEXIST`: the name is taken. `EOPNOTSUPP`: the kernel has no bridges, or no VLAN filtering although it is requested.
pub fn create_bridge(name: &str, bridge: &Bridge) -> Request {
    let mut message = LinkMessageBuilder::<LinkBridge>::new(name);
    let mut wire_name = format!("RTM_NEWLINK kind=bridge name={name}");
    if let Some(mtu) = bridge.mtu_bytes {
        message = message.mtu(mtu);
    }
    if let Some(mac) = bridge.mac {
        message = message.address(mac.0.to_vec());
    }
    let mut options = Vec::new();
    if bridge.vlan_filtering {
        options.push(InfoBridge::VlanFiltering(true));
        wire_name.push_str(" vlan_filtering=1");
    }
    options.extend(bridge.group_forward_mask.map(InfoBridge::GroupFwdMask));
    options.extend(bridge.multicast_snooping.map(InfoBridge::MulticastSnooping));
    if !options.is_empty() {
        message = message.set_info_data(InfoData::Bridge(options));
    }
    let feature = if bridge.vlan_filtering { Feature::BridgeVlanFiltering } else { Feature::Bridge };
    Request::new("create", format!("bridge {name}"), RouteNetlinkMessage::NewLink(message.build()))
        .flags(NLM_F_CREATE | NLM_F_EXCL)
        .needs(feature)
        .wire_name(wire_name)
}
