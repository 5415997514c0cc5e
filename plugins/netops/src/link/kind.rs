//! The kinds of link.

use std::fmt;

use netlink_packet_route::link::{InfoData, InfoKind};

use super::bridge;
use super::ipvlan::Ipvlan;
use super::macvlan::Macvlan;
use super::tun::Tun;
use super::vlan::Vlan;
use super::vrf::Vrf;
use crate::feature::Feature;

/// The kind of a link, with the settings that are made at its creation and that the kernel reports afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Kind {
    /// No kind: the loopback link, hardware.
    #[default]
    None,
    /// A bridge.
    Bridge(bridge::Vlans),
    /// An end of a veth pair.
    Veth,
    /// A link with its own Ethernet address on top of another link.
    Macvlan(Macvlan),
    /// A link that shares the Ethernet address of another link.
    Ipvlan(Ipvlan),
    /// A VLAN of another link.
    Vlan(Vlan),
    /// A link that drops everything sent to it.
    Dummy,
    /// A link whose ports have a routing table of their own.
    Vrf(Vrf),
    /// A link that shapes the traffic of other links, which is redirected to it.
    Ifb,
    /// A link to a userspace program (tun, tap).
    Tun(Tun),
    /// Any other kind, by the kernel's name for it.
    Other(String),
}

impl Kind {
    /// The kernel's name of the kind; empty for links without one.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Bridge(_) => "bridge",
            Self::Veth => "veth",
            Self::Macvlan(_) => "macvlan",
            Self::Ipvlan(_) => "ipvlan",
            Self::Vlan(_) => "vlan",
            Self::Dummy => "dummy",
            Self::Vrf(_) => "vrf",
            Self::Ifb => "ifb",
            Self::Tun(_) => "tun",
            Self::Other(name) => name,
        }
    }

    /// Whether the link is a bridge.
    #[must_use]
    pub fn is_bridge(&self) -> bool {
        matches!(self, Self::Bridge(_))
    }

    /// A bridge's VLAN settings; the default for other links.
    #[must_use]
    pub fn bridge_vlans(&self) -> bridge::Vlans {
        match self {
            Self::Bridge(vlans) => *vlans,
            _ => bridge::Vlans::default(),
        }
    }

    /// The feature that a kernel without this kind lacks.
    pub(super) fn feature(&self) -> Option<Feature> {
        match self {
            Self::None | Self::Other(_) => None,
            Self::Bridge(bridge::Vlans { filtering: Some(true), .. }) => Some(Feature::BridgeVlanFiltering),
            Self::Bridge(_) => Some(Feature::Bridge),
            Self::Veth => Some(Feature::Veth),
            Self::Macvlan(_) => Some(Feature::Macvlan),
            Self::Ipvlan(_) => Some(Feature::Ipvlan),
            Self::Vlan(_) => Some(Feature::Vlan),
            Self::Dummy => Some(Feature::Dummy),
            Self::Vrf(_) => Some(Feature::Vrf),
            Self::Ifb => Some(Feature::Ifb),
            Self::Tun(_) => Some(Feature::Tun),
        }
    }

    /// The settings to create it with, besides the name.
    pub(super) fn data(&self) -> Option<InfoData> {
        match self {
            Self::Bridge(vlans) => vlans.data(),
            Self::Macvlan(macvlan) => Some(macvlan.data()),
            Self::Ipvlan(ipvlan) => Some(ipvlan.data()),
            Self::Vlan(vlan) => Some(vlan.data()),
            Self::Vrf(vrf) => Some(vrf.data()),
            Self::None | Self::Veth | Self::Dummy | Self::Ifb | Self::Tun(_) | Self::Other(_) => None,
        }
    }

    /// The kind by its name alone; [`Kind::read`] adds its settings.
    pub(super) fn of(kind: &InfoKind) -> Self {
        match kind {
            InfoKind::Bridge => Self::Bridge(bridge::Vlans::default()),
            InfoKind::Veth => Self::Veth,
            InfoKind::MacVlan => Self::Macvlan(Macvlan::default()),
            InfoKind::IpVlan => Self::Ipvlan(Ipvlan::default()),
            InfoKind::Vlan => Self::Vlan(Vlan::default()),
            InfoKind::Dummy => Self::Dummy,
            InfoKind::Vrf => Self::Vrf(Vrf::default()),
            InfoKind::Ifb => Self::Ifb,
            InfoKind::Tun => Self::Tun(Tun::default()),
            other => Self::Other(other.to_string()),
        }
    }

    /// The kind that these data describe; `None` for kinds whose data are not read here.
    pub(super) fn read(data: &InfoData) -> Option<Self> {
        match data {
            InfoData::Bridge(options) => Some(Self::Bridge(bridge::Vlans::read(options))),
            InfoData::MacVlan(options) => Some(Self::Macvlan(Macvlan::read(options))),
            InfoData::IpVlan(options) => Some(Self::Ipvlan(Ipvlan::read(options))),
            InfoData::Vlan(options) => Some(Self::Vlan(Vlan::read(options))),
            InfoData::Vrf(options) => Some(Self::Vrf(Vrf::read(options))),
            InfoData::Tun(options) => Some(Self::Tun(Tun::read(options))),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    /// The kind's name; `link without kind` if it has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("link without kind"),
            kind => f.write_str(kind.name()),
        }
    }
}
