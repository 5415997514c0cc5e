//! Links that share the Ethernet address of another link.

use netlink_packet_route::link::{InfoData, InfoIpVlan, IpVlanFlags, IpVlanMode};

/// The settings of an ipvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ipvlan {
    /// The mode. All ipvlans of one lower link share it: creating one with another mode changes it for all.
    pub mode: Mode,
    /// The packets that pass between the ipvlans of one lower link.
    pub flags: Flags,
}

/// The mode: where the packets of an ipvlan are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the link's own namespace. Broadcasts pass.
    #[default]
    L2,
    /// In the lower link's namespace. No broadcasts.
    L3,
    /// As `L3`, with the netfilter hooks of the lower link's namespace.
    L3s,
    /// A mode of a newer kernel, by its number.
    Other(u16),
}

/// The packets that pass between the ipvlans of one lower link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flags {
    /// All packets pass directly.
    #[default]
    Bridge,
    /// No packets pass.
    Private,
    /// All packets leave through the lower link (VEPA).
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
