//! Bridges.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoBridge, InfoData};
use rtnetlink::{LinkBridge, LinkMessageBuilder};

use super::Mac;
use crate::feature::Feature;
use crate::kernel::Request;

/// What a bridge does with VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vlans {
    /// Tells VLANs apart on its ports; `None` leaves the kernel's default, no.
    pub filtering: Option<bool>,
    /// The VLAN it puts new ports in (0: none); `None` if the kernel knows no VLANs on bridges.
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

/// Settings a bridge gets when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bridge {
    /// The largest packet, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Its Ethernet address for good; with `None` it has one of its ports', another as they come and go.
    pub mac: Option<Mac>,
    /// Tells VLANs apart on its ports.
    pub vlan_filtering: bool,
}

/// Creates a bridge, down.
///
/// # Errors
/// `EEXIST`: the name is taken. `EOPNOTSUPP`: the kernel has no bridges, or no VLAN filtering if that is asked for.
pub fn create_bridge(name: &str, bridge: &Bridge) -> Request {
    let mut message = LinkMessageBuilder::<LinkBridge>::new(name);
    let mut words = format!("RTM_NEWLINK kind=bridge name={name}");
    if let Some(mtu) = bridge.mtu_bytes {
        message = message.mtu(mtu);
    }
    if let Some(mac) = bridge.mac {
        message = message.address(mac.0.to_vec());
        words.push_str(&format!(" address={mac}"));
    }
    if bridge.vlan_filtering {
        message = message.set_info_data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]));
        words.push_str(" vlan_filtering=1");
    }
    let feature = if bridge.vlan_filtering { Feature::BridgeVlanFiltering } else { Feature::Bridge };
    Request::new("create", format!("bridge {name}"), RouteNetlinkMessage::NewLink(message.build()))
        .flags(NLM_F_CREATE | NLM_F_EXCL)
        .needs(feature)
        .words(words)
}
