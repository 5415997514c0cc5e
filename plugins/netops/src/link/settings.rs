//! Changes to a link.

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, State};

use super::{Mac, Target};
use crate::kernel::Request;

/// Changes to a link; `None` leaves a property as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Up or down.
    pub up: Option<bool>,
    /// Port of this link, or (0) of none.
    pub master: Option<u32>,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// The largest packet, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The free text, at most 255 bytes; empty removes it.
    pub alias: Option<String>,
    /// Promiscuous.
    pub promisc: Option<bool>,
    /// All multicast.
    pub allmulti: Option<bool>,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: Option<u32>,
    /// Announces its IPv4 addresses by ARP when it gets up (`net/ipv4/conf/LINK/arp_notify`); not in one request with
    /// `up`, which the kernel would do first.
    pub arp_notify: Option<bool>,
    /// Says that a link of unknown operational state is up; without effect on one whose state is known.
    pub oper_up: bool,
    /// A new name. Needs the link down on kernels before 6.2.
    pub name: Option<String>,
}

/// Changes a link by one `RTM_SETLINK`.
///
/// # Errors
/// `ENODEV`: no such link. `EBUSY`: the new address or name needs the link down, or the bridge is full.
/// `EINVAL`: the driver refuses the MTU or address; the kernel's words say which.
pub fn set(target: &Target, settings: &Settings) -> Request {
    let mut message = target.message();
    let mut words = format!("RTM_SETLINK dev={}", target.name);
    let flags = [
        (settings.up, LinkFlags::Up, "up"),
        (settings.promisc, LinkFlags::Promisc, "promisc"),
        (settings.allmulti, LinkFlags::Allmulti, "allmulti"),
    ];
    for (wanted, flag, name) in flags {
        if let Some(on) = wanted {
            message.header.change_mask |= flag;
            message.header.flags.set(flag, on);
            words.push_str(&format!(" {name}={}", u8::from(on)));
        }
    }
    for attribute in settings.attributes() {
        words.push_str(&format!(" {attribute:?}"));
        message.attributes.push(attribute);
    }
    Request::new("set", settings.object(&target.name), RouteNetlinkMessage::SetLink(message)).words(words)
}

impl Settings {
    fn attributes(&self) -> Vec<LinkAttribute> {
        let attributes = [
            self.master.map(LinkAttribute::Controller),
            self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())),
            self.mtu_bytes.map(LinkAttribute::Mtu),
            self.alias.clone().map(LinkAttribute::IfAlias),
            self.tx_queue_len.map(LinkAttribute::TxQueueLen),
            self.arp_notify.map(|on| ipv4_setting(IPV4_DEVCONF_ARP_NOTIFY, u32::from(on))),
            self.oper_up.then_some(LinkAttribute::OperState(State::Up)),
            self.name.clone().map(LinkAttribute::IfName),
        ];
        attributes.into_iter().flatten().collect()
    }

    /// What an error names: `link eth0 up`, `MTU 9000 of link eth0`.
    fn object(&self, name: &str) -> String {
        match self {
            Self { mac: Some(mac), .. } => format!("address {mac} of link {name}"),
            Self { mtu_bytes: Some(mtu), .. } => format!("MTU {mtu} of link {name}"),
            Self { master: Some(0), .. } => format!("link {name} free of its master"),
            Self { master: Some(_), .. } => format!("the master of link {name}"),
            Self { name: Some(new), .. } => format!("name {new} of link {name}"),
            Self { arp_notify: Some(_), .. } => format!("arp_notify of link {name}"),
            Self { up: Some(true), .. } => format!("link {name} up"),
            Self { up: Some(false), .. } => format!("link {name} down"),
            _ => format!("link {name}"),
        }
    }
}

const IPV4_DEVCONF_ARP_NOTIFY: u16 = 22; // include/uapi/linux/ip.h
const IFLA_AF_SPEC: u16 = 26; // include/uapi/linux/if_link.h
const IFLA_INET_CONF: u16 = 1;
const AF_INET: u16 = 2;

/// A sysctl below `net/ipv4/conf/LINK`, without its file: `IFLA_AF_SPEC { AF_INET { IFLA_INET_CONF { key: value } } }`.
/// The packet crates know the form in which the kernel tells all of them, not that of a change.
fn ipv4_setting(key: u16, value: u32) -> LinkAttribute {
    let setting = DefaultNla::new(key, value.to_ne_bytes().to_vec());
    let nest = |kind: u16, inner: &DefaultNla| {
        let mut bytes = vec![0; inner.buffer_len()];
        inner.emit(&mut bytes);
        DefaultNla::new(kind | NLA_F_NESTED, bytes)
    };
    LinkAttribute::Other(nest(IFLA_AF_SPEC, &nest(AF_INET, &nest(IFLA_INET_CONF, &setting))))
}
