//! Links that share the Ethernet address of another link.

use netlink_packet_route::link::{InfoData, InfoIpVlan, IpVlanFlags, IpVlanMode};

/// What an ipvlan is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ipvlan {
    /// Where packets are routed. All on one lower link share it: the last one made sets it for all.
    pub mode: Mode,
    /// Which packets pass between those of one lower link.
    pub flags: Flags,
}

/// Where the packets of an ipvlan are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the link's namespace; broadcasts pass.
    #[default]
    L2,
    /// In the lower link's namespace; no broadcasts.
    L3,
    /// As `L3`, through the lower link's namespace's netfilter hooks.
    L3s,
    /// A mode of a newer kernel, by its number.
    Other(u16),
}

/// Which packets pass between the ipvlans of one lower link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flags {
    /// All pass directly.
    #[default]
    Bridge,
    /// None pass.
    Private,
    /// All leave by the lower link.
    Vepa,
}

impl Mode {
    fn wire(self) -> IpVlanMode {
        match self {
            Self::L2 => IpVlanMode::L2,
            Self::L3 => IpVlanMode::L3,
            Self::L3s => IpVlanMode::L3S,
            Self::Other(number) => IpVlanMode::from(number),
        }
    }

    fn read(mode: IpVlanMode) -> Self {
        match mode {
            IpVlanMode::L2 => Self::L2,
            IpVlanMode::L3 => Self::L3,
            IpVlanMode::L3S => Self::L3s,
            other => Self::Other(other.into()),
        }
    }
}

impl Ipvlan {
    pub(super) fn read(options: &[InfoIpVlan]) -> Self {
        let mut ipvlan = Self::default();
        for option in options {
            match option {
                InfoIpVlan::Mode(mode) => ipvlan.mode = Mode::read(*mode),
                InfoIpVlan::Flags(flags) if flags.contains(IpVlanFlags::Private) => ipvlan.flags = Flags::Private,
                InfoIpVlan::Flags(flags) if flags.contains(IpVlanFlags::Vepa) => ipvlan.flags = Flags::Vepa,
                _ => (),
            }
        }
        ipvlan
    }

    pub(super) fn data(&self) -> InfoData {
        let flags = match self.flags {
            Flags::Bridge => None,
            Flags::Private => Some(IpVlanFlags::Private),
            Flags::Vepa => Some(IpVlanFlags::Vepa),
        };
        let mode = InfoIpVlan::Mode(self.mode.wire());
        InfoData::IpVlan(std::iter::once(mode).chain(flags.map(InfoIpVlan::Flags)).collect())
    }
}
