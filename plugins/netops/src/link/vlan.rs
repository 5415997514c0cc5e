//! VLAN links on another link.

use netlink_packet_route::link::{InfoData, InfoVlan, VlanProtocol};

/// The settings of a VLAN link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vlan {
    /// The VLAN ID, 0 to 4094.
    pub id: u16,
    /// The tag protocol of its frames.
    pub protocol: Protocol,
}

/// The tag protocol of a VLAN's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// IEEE 802.1Q (`ETH_P_8021Q`).
    #[default]
    Dot1q,
    /// IEEE 802.1ad, the outer tag of two (`ETH_P_8021AD`).
    Dot1ad,
}

impl Vlan {
    pub(super) fn read(options: &[InfoVlan]) -> Self {
        let mut vlan = Self::default();
        for option in options {
            match option {
                InfoVlan::Id(id) => vlan.id = *id,
                InfoVlan::Protocol(VlanProtocol::Ieee8021Ad) => vlan.protocol = Protocol::Dot1ad,
                _ => (),
            }
        }
        vlan
    }

    pub(super) fn data(&self) -> InfoData {
        let protocol = match self.protocol {
            Protocol::Dot1q => VlanProtocol::Ieee8021Q,
            Protocol::Dot1ad => VlanProtocol::Ieee8021Ad,
        };
        InfoData::Vlan(vec![InfoVlan::Id(self.id), InfoVlan::Protocol(protocol)])
    }
}
