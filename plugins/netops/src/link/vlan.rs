//! VLANs of a link.

use netlink_packet_route::link::{InfoData, InfoVlan, VlanProtocol};

/// What a VLAN link is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vlan {
    /// The VLAN's number, 0 to 4094.
    pub id: u16,
    /// How its frames are tagged.
    pub protocol: Protocol,
}

/// How the frames of a VLAN are tagged.
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
