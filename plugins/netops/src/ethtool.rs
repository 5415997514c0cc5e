//! Offloads of a link, which the kernel calls features and ethtool(8) shows, by generic netlink (Linux 5.6).
//!
//! Source: Documentation/networking/ethtool-netlink.rst, include/uapi/linux/ethtool_netlink.h.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use crate::buffer::Buffer;
use crate::error::{Cause, OpError, Result};
use crate::feature::Feature;
use crate::link::Link;
use crate::netlink_connection::{DEADLINE, cause_of, open_socket_of, receive};
use crate::netlink_frames::{Frames, NetlinkReply};
use crate::netns::{HOST, Netns};
use crate::nft::wire::{Attrs, Header, Writer};

const GENL_ID_CTRL: u16 = 0x10; // include/uapi/linux/genetlink.h
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const CHANGEABLE: u16 = 2;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
const NO_MASK: u16 = 1;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
/// `struct nlmsghdr` and `struct genlmsghdr`.
const HEADERS_BYTES: usize = 16 + 4;

/// A connection to ethtool of one namespace.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    family: u16,
    place: String,
}

/// The features of a link, by the kernel's names, such as `tx-checksum-ip-generic`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// All features of the kernel's.
    pub known: BTreeSet<String>,
    /// Features that can be changed.
    pub changeable: BTreeSet<String>,
    /// Features that are to be on: some need others.
    pub wanted: BTreeSet<String>,
    /// Features that are on.
    pub active: BTreeSet<String>,
}

impl Ethtool {
    /// Opens a connection in the caller's own namespace.
    ///
    /// # Errors
    /// [`Cause::Unsupported`]: the kernel has no ethtool netlink.
    pub fn host() -> Result<Self> {
        Self::on(open_socket_of(NETLINK_GENERIC, DEADLINE), HOST.to_owned())
    }

    /// Opens a connection in the namespace `netns`.
    ///
    /// # Errors
    /// As [`Ethtool::host`] and [`Netns::run`].
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        Self::on(netns.run(|| open_socket_of(NETLINK_GENERIC, DEADLINE))?, netns.path().display().to_string())
    }

    fn on(socket: std::result::Result<Socket, Errno>, place: String) -> Result<Self> {
        let socket = socket.map_err(|errno| OpError::errno("open", "a netlink socket", errno).at(&place))?;
        let mut own = Self { socket, family: GENL_ID_CTRL, place };
        let answers = own
            .call(CTRL_CMD_GETFAMILY, |w| w.text(CTRL_ATTR_FAMILY_NAME, "ethtool"))
            .map_err(|cause| own.error("find", "netlink family ethtool", absent(cause)))?;
        let id = answers.iter().find_map(|bytes| Attrs(bytes).get(CTRL_ATTR_FAMILY_ID)?.try_into().ok());
        own.family = id.map(u16::from_ne_bytes).ok_or_else(|| {
            own.error("find", "netlink family ethtool", Cause::State("the kernel's answer has no number".into()))
        })?;
        Ok(own)
    }

    /// Reads the features of a link.
    ///
    /// # Errors
    /// `ENODEV`: the link is gone.
    pub fn features(&self, link: &Link) -> Result<Features> {
        let answers = self
            .call(FEATURES_GET, |w| w.nest(HEADER, |w| w.attr(HEADER_DEV_INDEX, &link.index.to_ne_bytes())))
            .map_err(|cause| self.error("list", format!("offloads of link {}", link.name), cause))?;
        let all = |kind| answers.iter().flat_map(move |bytes| bits(Attrs(bytes).nested(kind)));
        let names = |kind| all(kind).filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        let known = all(CHANGEABLE).map(|(name, _)| name).collect();
        Ok(Features { known, changeable: names(CHANGEABLE), wanted: names(WANTED), active: names(ACTIVE) })
    }

    /// Turns features on or off, as far as others on which they depend allow it.
    ///
    /// # Errors
    /// `EINVAL`: the kernel does not know a name, or nothing can change it. `ENODEV`: the link is gone.
    pub fn set(&self, link: &Link, features: &BTreeMap<String, bool>) -> Result<()> {
        let bit = |w: &mut Writer, name: &str, on: bool| {
            w.text(BIT_NAME, name);
            if on {
                w.attr(BIT_VALUE, &[]);
            }
        };
        let body = |w: &mut Writer| {
            w.nest(HEADER, |w| w.attr(HEADER_DEV_INDEX, &link.index.to_ne_bytes()));
            w.nest(WANTED, |w| {
                w.nest(BITS, |w| features.iter().for_each(|(name, on)| w.nest(BIT, |w| bit(w, name, *on))));
            });
        };
        self.call(FEATURES_SET, body).map(drop).map_err(|cause| {
            let names: Vec<&str> = features.keys().map(String::as_str).collect();
            self.error("set", format!("offloads {} of link {}", names.join(", "), link.name), cause)
        })
    }

    /// Sends a request, and returns the attributes of each answer.
    fn call(&self, command: u8, body: impl FnOnce(&mut Writer)) -> std::result::Result<Vec<Vec<u8>>, Cause> {
        let mut writer = Writer::default();
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        // The header of generic netlink has the command in the place of netfilter's family.
        writer.message(Header { kind: self.family, flags, seq: 1, family: command, res_id: 0 }, body);
        let bytes = writer.finish().ok_or_else(|| Cause::State("the request is too long".into()))?;
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty()).map_err(cause_of)?;
        let mut buffer = Buffer::take();
        let mut answers = Vec::new();
        loop {
            match receive(&self.socket, &mut buffer, MsgFlags::empty()) {
                Ok(()) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(cause_of(errno)),
            }
            for frame in Frames::new(&buffer) {
                match frame.answer() {
                    NetlinkReply::Object(bytes) => answers.extend(bytes.get(HEADERS_BYTES..).map(<[u8]>::to_vec)),
                    NetlinkReply::Done => return Ok(answers),
                    NetlinkReply::Failed(cause) => return Err(cause),
                    NetlinkReply::Noise => {}
                }
            }
        }
    }

    fn error(&self, op: &'static str, object: impl Into<String>, cause: Cause) -> OpError {
        OpError::new(op, object, cause).at(&self.place).request("NETLINK_GENERIC ethtool")
    }
}

/// A family that the kernel does not know is one that it was built without.
fn absent(cause: Cause) -> Cause {
    match cause {
        Cause::Kernel { errno: errno @ Errno::ENOENT, extended_ack } => {
            Cause::Unsupported { feature: Feature::EthtoolNetlink, errno, extended_ack }
        }
        cause => cause,
    }
}

/// The bits of a set by their names, and whether each is set. A set without a mask lists those alone that are.
fn bits(set: Attrs<'_>) -> Vec<(String, bool)> {
    let has_mask = set.get(NO_MASK).is_none();
    let listed = set.nested(BITS).filter(|(kind, _)| *kind == BIT).map(|(_, bit)| Attrs(bit));
    let named = listed.filter_map(|bit| Some((bit.text(BIT_NAME)?, !has_mask || bit.get(BIT_VALUE).is_some())));
    named.filter(|(name, _)| !name.is_empty()).collect()
}
