//! Links to a program: tap (frames) and tun (packets).

use netlink_packet_core::Nla;
use netlink_packet_route::link::InfoTun;

/// What the kernel says of a tun or tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tun {
    /// Frames (tap); otherwise packets (tun).
    pub is_tap: bool,
    /// Several programs or threads may each have a queue of it.
    pub multi_queue: bool,
    /// Stays when no program has it open.
    pub persistent: bool,
    /// The user who may open it without being root.
    pub owner: Option<u32>,
    /// The group that may.
    pub group: Option<u32>,
}

const IFLA_TUN_OWNER: u16 = 1; // include/uapi/linux/if_link.h
const IFLA_TUN_GROUP: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_PERSIST: u16 = 6;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;
const IFF_TAP: u8 = 2; // include/uapi/linux/if_tun.h

impl Tun {
    pub(super) fn read(options: &[InfoTun]) -> Self {
        let mut tun = Self::default();
        for option in options {
            let mut value = [0; 4];
            if option.value_len() <= value.len() {
                option.emit_value(&mut value);
            }
            match option.kind() {
                IFLA_TUN_OWNER => tun.owner = Some(u32::from_ne_bytes(value)),
                IFLA_TUN_GROUP => tun.group = Some(u32::from_ne_bytes(value)),
                IFLA_TUN_TYPE => tun.is_tap = value[0] == IFF_TAP,
                IFLA_TUN_PERSIST => tun.persistent = value[0] != 0,
                IFLA_TUN_MULTI_QUEUE => tun.multi_queue = value[0] != 0,
                _ => (),
            }
        }
        tun
    }
}
