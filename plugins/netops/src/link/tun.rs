//! Links to a userspace program: tap (frames) and tun (packets).

use std::fs::{File, OpenOptions};

use netlink_packet_core::Nla;
use netlink_packet_route::link::InfoTun;
use nix::errno::Errno;
use nix::libc::{IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP as FLAG_TAP, IFF_TUN_EXCL, IFF_VNET_HDR, c_short};

use super::{Link, LinkName, Mac, Place, Settings, Target, find, run_and_get, set};
use crate::error::{Cause, OpError, Result, errno_of};
use crate::feature::Feature;
use crate::unsafe_calls::{TunSetting, attach_tun, set_tun};

/// The settings of a tun or tap, as the kernel reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tun {
    /// True: frames (tap). False: packets (tun).
    pub is_tap: bool,
    /// Several queues, each for a program or thread (`multi_queue`).
    pub multi_queue: bool,
    /// The link stays when no program has it open.
    pub persistent: bool,
    /// The user who may open it without root privileges.
    pub owner: Option<u32>,
    /// The group that may open it without root privileges.
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
            // The packet crates have no types for the settings of a tun, and need the exact length.
            if let Some(room) = value.get_mut(..option.value_len()) {
                option.emit_value(room);
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

/// A tap to create. `None` leaves the kernel's default.
#[derive(Debug, Clone, Copy)]
pub struct Tap<'a> {
    /// The tap's name.
    pub name: &'a LinkName,
    /// Several queues, each for a program or thread (`multi_queue`).
    pub multi_queue: bool,
    /// The user who may open it without root privileges.
    pub owner: Option<u32>,
    /// The group that may open it without root privileges.
    pub group: Option<u32>,
    /// The index of its master, in the namespace that the tap is created in.
    pub master: Option<u32>,
    /// The MTU, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The alias, at most 255 bytes.
    pub alias: Option<&'a str>,
}

const DEVICE: &str = "/dev/net/tun";

/// Creates a persistent tap, down, and reads it back: all of it or nothing. It becomes persistent in the last step, so
/// a process that is killed earlier leaves nothing.
///
/// # Errors
/// `EEXIST`: the name is taken. [`Cause::Unsupported`]: there is no `/dev/net/tun`, or the kernel has no driver for it.
/// `EINVAL`: the kernel refuses the MTU or the address.
pub fn create_tap(place: Place<'_>, tap: &Tap<'_>) -> Result<Link> {
    let failed = |cause| {
        OpError::new("create", format!("tap {}", tap.name), cause)
            .at(place.kernel.place())
            .request("TUNSETIFF kind=tap")
    };
    // The tap is created in the namespace of the thread that opens the device.
    let opened = place.netns.run(|| open(tap))?;
    let file = opened.map_err(failed)?;
    let target = Target::named(tap.name.as_str());
    let settings = Settings {
        master: tap.master,
        mtu_bytes: tap.mtu_bytes,
        mac: tap.mac,
        alias: tap.alias.map(str::to_owned),
        ..Settings::default()
    };
    let link = run_and_get(place.kernel, vec![set(&target, &settings)], &target)?;
    set_tun(&file, TunSetting::Persist, 1).map_err(|errno| failed(refused(errno)))?;
    Ok(match link {
        Link { kind: super::Kind::Tun(tun), .. } => {
            Link { kind: super::Kind::Tun(Tun { persistent: true, ..tun }), ..link }
        }
        link => link,
    })
}

/// How a queue of a tap is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// The tap has several queues (`multi_queue`).
    pub multi_queue: bool,
    /// A header of virtio stands before each frame, for offloads (`vnet_hdr`).
    pub vnet_header: bool,
}

/// Opens a queue of a tap that is there, as the monitor of a virtual machine does: reading and writing passes frames.
///
/// # Errors
/// `EINVAL`: no tap has that name, or one with or without several queues contrary to `queue`. `EBUSY`: another
/// program has its only queue. `EPERM`: it is another user's.
pub fn open_tap(place: Place<'_>, name: &LinkName, queue: Queue) -> Result<File> {
    let failed = |errno| {
        OpError::errno("open", format!("tap {name}"), errno).at(place.kernel.place()).request("TUNSETIFF kind=tap")
    };
    let attach = || {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(errno_of)?;
        let header = if queue.vnet_header { IFF_VNET_HDR } else { 0 };
        let flags = flags(FLAG_TAP | IFF_NO_PI | header, queue.multi_queue);
        attach_tun(&file, name.as_str(), flags).map(|()| file)
    };
    // Without a tap of that name the request would make one.
    find(place.kernel, name.as_str())?.ok_or_else(|| failed(Errno::EINVAL))?;
    place.netns.run(attach)?.map_err(failed)
}

fn flags(flags: i32, multi_queue: bool) -> c_short {
    c_short::from_ne_bytes(low_bytes(flags | if multi_queue { IFF_MULTI_QUEUE } else { 0 }))
}

fn refused(errno: Errno) -> Cause {
    Cause::Kernel { errno, extended_ack: None }
}

/// Opens the device and creates a tap, which the kernel deletes when the file is closed.
fn open(tap: &Tap<'_>) -> std::result::Result<File, Cause> {
    let file = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| match errno_of(error) {
        errno @ (Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => {
            Cause::Unsupported { feature: Feature::Tun, errno, extended_ack: None }
        }
        errno => refused(errno),
    })?;
    let flags = flags(FLAG_TAP | IFF_NO_PI | IFF_TUN_EXCL, tap.multi_queue);
    attach_tun(&file, tap.name.as_str(), flags).map_err(|errno| match errno {
        // EBUSY comes from IFF_TUN_EXCL: the file is new, so nothing else can be busy.
        Errno::EBUSY => refused(Errno::EEXIST),
        errno => refused(errno),
    })?;
    let numbers = [(TunSetting::Owner, tap.owner), (TunSetting::Group, tap.group)];
    for (setting, number) in numbers {
        if let Some(number) = number {
            set_tun(&file, setting, number).map_err(refused)?;
        }
    }
    Ok(file)
}

fn low_bytes(flags: i32) -> [u8; 2] {
    let [.., high, low] = flags.to_be_bytes();
    u16::from_be_bytes([high, low]).to_ne_bytes()
}
