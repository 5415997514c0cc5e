//! Requests about links, addresses and routes (linux/rtnetlink.h, if_link.h).

use std::net::IpAddr;

use nix::errno::Errno;

use crate::arguments::{Octets, Prefix};
use crate::message::{ACK, Attributes, Batch, CREATE, EXCL, u32_at};
use crate::socket::Socket;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_MACVLAN_MODE: u16 = 1;
const MACVLAN_MODE_BRIDGE: u32 = 4;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_ARP_NOTIFY: u16 = 22; // linux/ip.h
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IF_OPER_UP: u8 = 6;
const IFF_UP: u32 = 1;
const IFA_F_NODAD: u8 = 2;
const AF_INET: u16 = 2;
const LINK_HEADER: usize = 16;

/// The group that hears of links, as a mask.
pub(crate) const RTMGRP_LINK: u32 = 1;
/// The group that hears of IPv6 addresses, as a mask.
pub(crate) const RTMGRP_IPV6_IFADDR: u32 = 0x100;

/// A link as in `RTM_NEWLINK`.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) oper_up: bool,
    /// Index of a veth's other end.
    pub(crate) peer: u32,
}

/// `struct ifinfomsg`, with flags to set if `up`.
fn header(index: u32, up: bool) -> [u8; LINK_HEADER] {
    let (mut header, up) = ([0; LINK_HEADER], u32::from(up) * IFF_UP);
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&up.to_ne_bytes());
    header[12..16].copy_from_slice(&up.to_ne_bytes());
    header
}

/// Reads an `RTM_NEWLINK`.
pub(crate) fn read(kind: u16, body: &[u8]) -> Option<Link> {
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let all = Attributes(body.get(LINK_HEADER..)?);
    let link = Link {
        index,
        up: flags & IFF_UP != 0,
        oper_up: all.get(IFLA_OPERSTATE) == Some(&[IF_OPER_UP]),
        peer: all.get(IFLA_LINK).and_then(|value| u32_at(value, 0)).unwrap_or_default(),
    };
    (kind == RTM_NEWLINK).then_some(link)
}

/// Whether a message announces that the link of this name is gone, not that a port has left its bridge (`AF_BRIDGE`).
pub(crate) fn is_gone(kind: u16, body: &[u8], name: &str) -> bool {
    let found = Attributes(body.get(LINK_HEADER..).unwrap_or_default()).get(IFLA_IFNAME);
    let named = found.and_then(|found| found.strip_suffix(&[0])) == Some(name.as_bytes());
    kind == RTM_DELLINK && body.first() == Some(&0) && named
}

/// Asks for a link, without its counters.
pub(crate) fn get(batch: &mut Batch, index: u32, name: &str) {
    batch.message(RTM_GETLINK, 0, &header(index, false), |batch| {
        if index == 0 {
            batch.text(IFLA_IFNAME, name);
        }
        batch.number(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    });
}

/// The link of this name, if there is one.
pub(crate) fn find(socket: &Socket, name: &str) -> Result<Option<Link>, Errno> {
    let mut batch = Batch::new();
    get(&mut batch, 0, name);
    match socket.call(&batch, read) {
        Err(Errno::ENODEV) => Ok(None),
        found => found,
    }
}

pub(crate) fn create_bridge(batch: &mut Batch, name: &str, mac: Option<[u8; 6]>) {
    batch.message(RTM_NEWLINK, CREATE | EXCL, &header(0, false), |batch| {
        batch.text(IFLA_IFNAME, name);
        if let Some(mac) = mac {
            batch.attribute(IFLA_ADDRESS, &mac);
        }
        batch.nest(IFLA_LINKINFO, |batch| batch.text(IFLA_INFO_KIND, "bridge"));
    });
}

/// A veth whose end here is a port of `master` and up, or down if it is no port; the other end is down, in the namespace
/// `there`.
pub(crate) fn create_veth(batch: &mut Batch, name: &str, master: Option<u32>, peer: &str, there: i32) {
    batch.message(RTM_NEWLINK, CREATE | EXCL, &header(0, master.is_some()), |batch| {
        batch.text(IFLA_IFNAME, name);
        if let Some(master) = master {
            batch.number(IFLA_MASTER, master);
        }
        batch.nest(IFLA_LINKINFO, |batch| {
            batch.text(IFLA_INFO_KIND, "veth");
            batch.nest(IFLA_INFO_DATA, |batch| {
                batch.nest(VETH_INFO_PEER, |batch| {
                    batch.bytes.extend_from_slice(&header(0, false));
                    batch.text(IFLA_IFNAME, peer);
                    batch.attribute(IFLA_NET_NS_FD, &there.to_ne_bytes());
                });
            });
        });
    });
}

/// A macvlan on `lower` in the namespace `there`, down.
pub(crate) fn create_macvlan(batch: &mut Batch, name: &str, lower: u32, there: i32) {
    batch.message(RTM_NEWLINK, CREATE | EXCL, &header(0, false), |batch| {
        batch.text(IFLA_IFNAME, name);
        batch.number(IFLA_LINK, lower);
        batch.attribute(IFLA_NET_NS_FD, &there.to_ne_bytes());
        batch.nest(IFLA_LINKINFO, |batch| {
            batch.text(IFLA_INFO_KIND, "macvlan");
            batch.nest(IFLA_INFO_DATA, |batch| batch.number(IFLA_MACVLAN_MODE, MACVLAN_MODE_BRIDGE));
        });
    });
}

pub(crate) fn set_alias(batch: &mut Batch, name: &str, alias: &str) {
    batch.message(RTM_SETLINK, 0, &header(0, false), |batch| {
        batch.text(IFLA_IFNAME, name);
        batch.attribute(IFLA_IFALIAS, alias.as_bytes());
    });
}

pub(crate) fn set_up(batch: &mut Batch, index: u32) {
    batch.message(RTM_SETLINK, 0, &header(index, true), |_| {});
}

/// Sets `lo`, which is always the first, up or down.
pub(crate) fn set_loopback(batch: &mut Batch, up: bool) {
    let mut header = header(1, true);
    header[8] = u8::from(up);
    batch.message(RTM_SETLINK, ACK, &header, |_| {});
}

/// Says that a link can carry packets, of which the kernel knows nothing.
pub(crate) fn set_oper_up(batch: &mut Batch, index: u32) {
    batch.message(RTM_SETLINK, ACK, &header(index, false), |batch| batch.attribute(IFLA_OPERSTATE, &[IF_OPER_UP]));
}

/// `net.ipv4.conf.LINK.arp_notify = 1` without the file.
pub(crate) fn set_arp_notify(batch: &mut Batch, index: u32) {
    batch.message(RTM_SETLINK, 0, &header(index, false), |batch| {
        batch.nest(IFLA_AF_SPEC, |batch| {
            batch.nest(AF_INET, |batch| {
                batch.nest(IFLA_INET_CONF, |batch| batch.number(IPV4_DEVCONF_ARP_NOTIFY, 1));
            });
        });
    });
}

pub(crate) fn delete(batch: &mut Batch, name: &str) {
    batch.message(RTM_DELLINK, ACK, &header(0, false), |batch| batch.text(IFLA_IFNAME, name));
}

/// Whether the kernel says of a global IPv6 address of the link that it is tentative no more.
pub(crate) fn is_settled(kind: u16, body: &[u8], index: u32) -> bool {
    const IFA_F_TENTATIVE: u8 = 0x40;
    let [a, b, c, d] = index.to_ne_bytes();
    match body {
        // family, length, flags, scope and index of struct ifaddrmsg
        [10, _, flags, 0, rest @ ..] if kind == RTM_NEWADDR => {
            flags & IFA_F_TENTATIVE == 0 && rest.starts_with(&[a, b, c, d])
        }
        _ => false,
    }
}

/// An address; an IPv6 one without a look for duplicates where that is on.
pub(crate) fn add_address(batch: &mut Batch, index: u32, address: &Prefix, is_exempt: bool) {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_BROADCAST: u16 = 4;
    let nodad = if is_exempt && address.ip.is_ipv6() { IFA_F_NODAD } else { 0 };
    let [a, b, c, d] = index.to_ne_bytes();
    let fixed = [family(address.ip), address.length, nodad, 0, a, b, c, d];
    batch.message(RTM_NEWADDR, CREATE | EXCL, &fixed, |batch| {
        let ip = Octets::of(address.ip);
        batch.attribute(IFA_LOCAL, ip.as_slice());
        batch.attribute(IFA_ADDRESS, ip.as_slice());
        if address.ip.is_ipv4() && address.length < 31 {
            batch.attribute(IFA_BROADCAST, address.broadcast().as_slice());
        }
    });
}

/// A route of table main.
pub(crate) struct Route {
    pub(crate) dst: Prefix,
    /// The next hop; without one the destination is on the link.
    pub(crate) gateway: Option<IpAddr>,
    /// The preferred source.
    pub(crate) source: Option<IpAddr>,
    /// `RT_SCOPE_*`.
    pub(crate) scope: u8,
    /// `RTPROT_*`.
    pub(crate) protocol: u8,
}

impl Route {
    pub(crate) const HOST: u8 = 254;
    pub(crate) const LINK: u8 = 253;
    pub(crate) const KERNEL: u8 = 2;
    const BOOT: u8 = 3;

    /// Through a gateway, protocol boot.
    pub(crate) fn via(dst: Prefix, gateway: IpAddr) -> Self {
        Self { gateway: Some(gateway), ..Self::direct(dst, 0) }
    }

    /// On the link, protocol boot.
    pub(crate) fn direct(dst: Prefix, scope: u8) -> Self {
        Self { dst, gateway: None, source: None, scope, protocol: Self::BOOT }
    }

    pub(crate) fn add(&self, batch: &mut Batch, index: u32) {
        self.message(batch, RTM_NEWROUTE, CREATE, index);
    }

    pub(crate) fn delete(&self, batch: &mut Batch, index: u32) {
        self.message(batch, RTM_DELROUTE, 0, index);
    }

    fn message(&self, batch: &mut Batch, kind: u16, flags: u16, index: u32) {
        const RTA_DST: u16 = 1;
        const RTA_OIF: u16 = 4;
        const RTA_GATEWAY: u16 = 5;
        const RTA_PREFSRC: u16 = 7;
        const MAIN: u8 = 254;
        const UNICAST: u8 = 1;
        let Self { dst, gateway, source, scope, protocol } = self;
        let fixed = [family(dst.ip), dst.length, 0, 0, MAIN, *protocol, *scope, UNICAST, 0, 0, 0, 0];
        batch.message(kind, flags, &fixed, |batch| {
            if dst.length > 0 {
                batch.attribute(RTA_DST, dst.network().as_slice());
            }
            for (key, ip) in [(RTA_GATEWAY, gateway), (RTA_PREFSRC, source)] {
                if let Some(ip) = ip {
                    batch.attribute(key, Octets::of(*ip).as_slice());
                }
            }
            batch.number(RTA_OIF, index);
        });
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 2 } else { 10 }
}
