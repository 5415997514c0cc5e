//! Links with their own Ethernet address on top of another link.

use netlink_packet_route::link::{InfoData, InfoMacVlan, MacVlanFlags, MacVlanMode};

/// The settings of a macvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Macvlan {
    /// The mode: which frames pass between the macvlans of one lower link.
    pub mode: Mode,
    /// In passthru mode, whether the lower link stays out of promiscuous mode (`nopromisc`).
    pub no_promisc: bool,
    /// The queue length for broadcast frames (`bcqueuelen`); `None` leaves the kernel's default of 1000. The kernel
    /// uses the maximum of all macvlans on the lower link.
    pub bc_queue_len: Option<u32>,
}

/// The mode: which frames pass between the macvlans of one lower link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Frames pass between them directly.
    #[default]
    Bridge,
    /// No frames pass.
    Private,
    /// All frames leave through the lower link; the switch there may send them back (VEPA).
    Vepa,
    /// The lower link has only this macvlan, which takes over its address.
    Passthru,
    /// A mode that is never created here, by the kernel's number (`MACVLAN_MODE_SOURCE` is 16).
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
