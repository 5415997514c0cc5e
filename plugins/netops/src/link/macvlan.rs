//! Links with an Ethernet address of their own on another link.

use netlink_packet_route::link::{InfoData, InfoMacVlan, MacVlanFlags, MacVlanMode};

/// What a macvlan is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Macvlan {
    /// Which frames pass between those of one lower link.
    pub mode: Mode,
    /// In mode passthru, does not set the lower link promiscuous (`nopromisc`).
    pub no_promisc: bool,
    /// Frames that may wait to be copied to several; `None` leaves the kernel's default of 1000. The kernel uses the
    /// largest number of all macvlans on the lower link.
    pub bc_queue_len: Option<u32>,
}

/// Which frames pass between the macvlans of one lower link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Frames pass between them directly.
    #[default]
    Bridge,
    /// None pass.
    Private,
    /// All leave by the lower link; the switch there may send them back.
    Vepa,
    /// Only one macvlan, which has the lower link's address.
    Passthru,
    /// A mode that is not made here, by the kernel's number (`MACVLAN_MODE_SOURCE` is 16).
    Other(u32),
}

impl Mode {
    fn wire(self) -> MacVlanMode {
        match self {
            Self::Bridge => MacVlanMode::Bridge,
            Self::Private => MacVlanMode::Private,
            Self::Vepa => MacVlanMode::Vepa,
            Self::Passthru => MacVlanMode::Passthrough,
            Self::Other(number) => MacVlanMode::from(number),
        }
    }

    fn read(mode: MacVlanMode) -> Self {
        match mode {
            MacVlanMode::Bridge => Self::Bridge,
            MacVlanMode::Private => Self::Private,
            MacVlanMode::Vepa => Self::Vepa,
            MacVlanMode::Passthrough => Self::Passthru,
            other => Self::Other(other.into()),
        }
    }
}

impl Macvlan {
    pub(super) fn read(options: &[InfoMacVlan]) -> Self {
        let mut macvlan = Self::default();
        for option in options {
            match option {
                InfoMacVlan::Mode(mode) => macvlan.mode = Mode::read(*mode),
                InfoMacVlan::Flags(flags) => macvlan.no_promisc = flags.contains(MacVlanFlags::NoPromisc),
                InfoMacVlan::BcQueueLen(length) => macvlan.bc_queue_len = Some(*length),
                _ => (),
            }
        }
        macvlan
    }

    pub(super) fn data(&self) -> InfoData {
        let mut options = vec![InfoMacVlan::Mode(self.mode.wire())];
        if self.no_promisc {
            options.push(InfoMacVlan::Flags(MacVlanFlags::NoPromisc));
        }
        options.extend(self.bc_queue_len.map(InfoMacVlan::BcQueueLen));
        InfoData::MacVlan(options)
    }
}
