//! Changes to a link.

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, Prop, State};

use super::{Mac, Target};
use crate::netlink_connection::Request;

/// Changes to a link; `None` leaves a property as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Up or down.
    pub up: Option<bool>,
    /// The index of its master; 0 releases it from its master.
    pub master: Option<u32>,
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The MTU, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The alias, at most 255 bytes; empty removes it.
    pub alias: Option<String>,
    /// Promiscuous mode.
    pub promisc: Option<bool>,
    /// Reception of all multicast.
    pub allmulti: Option<bool>,
    /// Whether the link does not resolve addresses.
    pub no_arp: Option<bool>,
    /// Whether the link can send to multicast addresses.
    pub multicast: Option<bool>,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: Option<u32>,
    /// The group; 0 is none.
    pub group: Option<u32>,
    /// Whether the link announces its IPv4 addresses by ARP when it is set up (`net/ipv4/conf/LINK/arp_notify`). Do not use
    /// it together with `up` in one request: the kernel would set the link up first.
    pub arp_notify: Option<bool>,
    /// Reports that a link of unknown operational state is up. No effect on a link whose state is known.
    pub oper_up: bool,
    /// A new name. Before Linux 6.2 the link must be down.
    pub name: Option<String>,
}

/// Changes a link by one `RTM_SETLINK`.
///
/// # Errors
/// `ENODEV`: the link does not exist. `EBUSY`: the link must be down for a new address or name, or the bridge is full.
/// `EINVAL`: the driver refuses the MTU or address; the extended ack says which.
pub fn set(target: &Target, settings: &Settings) -> Request {
    let mut message = target.message();
    let mut wire_name = format!("RTM_SETLINK dev={}", target.name);
    let flags = [
        (settings.up, LinkFlags::Up, "up"),
        (settings.promisc, LinkFlags::Promisc, "promisc"),
        (settings.allmulti, LinkFlags::Allmulti, "allmulti"),
        (settings.no_arp, LinkFlags::Noarp, "noarp"),
        (settings.multicast, LinkFlags::Multicast, "multicast"),
    ];
    for (wanted, flag, name) in flags {
        if let Some(on) = wanted {
            message.header.change_mask |= flag;
            message.header.flags.set(flag, on);
            wire_name.push_str(&format!(" {name}={}", u8::from(on)));
        }
    }
    for (text, attribute) in settings.attributes() {
        wire_name.push_str(&format!(" {text}"));
        message.attributes.push(attribute);
    }
    Request::new("set", settings.object(&target.name), RouteNetlinkMessage::SetLink(message)).wire_name(wire_name)
}

/// Adds further names.
///
/// # Errors
/// `EEXIST`: a link of the namespace has one of the names. `EOPNOTSUPP`: the kernel is older than 5.5.
pub fn add_alt_names(target: &Target, names: &[String]) -> Request {
    let message = RouteNetlinkMessage::NewLinkProp(with_alt_names(target, names));
    alt_names("add", "RTM_NEWLINKPROP", target, names, message).flags(NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND)
}

/// Removes further names, by as many requests as they need: an attribute has 64 KiB at most, and so has all that the kernel
/// takes for a link, but names that are no UTF-8 are longer here.
///
/// # Errors
/// `EINVAL`: one of them is none of the link's.
pub fn delete_alt_names(target: &Target, names: &[String]) -> Vec<Request> {
    const AT_ONCE: usize = 100;
    let request = |names: &[String]| {
        let message = RouteNetlinkMessage::DelLinkProp(with_alt_names(target, names));
        alt_names("delete", "RTM_DELLINKPROP", target, names, message)
    };
    names.chunks(AT_ONCE).map(request).collect()
}

fn with_alt_names(target: &Target, names: &[String]) -> LinkMessage {
    let mut message = target.message();
    let names = names.iter().cloned().map(Prop::AltIfName).collect();
    message.attributes.push(LinkAttribute::PropList(names));
    message
}

fn alt_names(op: &'static str, kind: &str, target: &Target, names: &[String], message: RouteNetlinkMessage) -> Request {
    let names = names.join(" ");
    Request::new(op, format!("further names {names} of link {}", target.name), message)
        .wire_name(format!("{kind} dev={} {names}", target.name))
}

impl Settings {
    /// Each attribute, and its text in the words of `ip link`.
    fn attributes(&self) -> Vec<(String, LinkAttribute)> {
        let attributes = [
            self.master.map(|index| (format!("master={index}"), LinkAttribute::Controller(index))),
            self.mac.map(|mac| (format!("address={mac}"), LinkAttribute::Address(mac.0.to_vec()))),
            self.mtu_bytes.map(|mtu| (format!("mtu={mtu}"), LinkAttribute::Mtu(mtu))),
            self.alias.clone().map(|alias| (format!("alias={alias:?}"), LinkAttribute::IfAlias(alias))),
            self.tx_queue_len.map(|length| (format!("txqueuelen={length}"), LinkAttribute::TxQueueLen(length))),
            self.group.map(|group| (format!("group={group}"), LinkAttribute::Group(group))),
            self.arp_notify
                .map(u32::from)
                .map(|on| (format!("arp_notify={on}"), ipv4_setting(IPV4_DEVCONF_ARP_NOTIFY, on))),
            self.oper_up.then(|| ("operstate=up".to_owned(), LinkAttribute::OperState(State::Up))),
            self.name.clone().map(|name| (format!("name={name}"), LinkAttribute::IfName(name))),
        ];
        attributes.into_iter().flatten().collect()
    }

    /// The object that an error names: `link eth0 up`, `MTU 9000 of link eth0`.
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

/// A sysctl of `net/ipv4/conf/LINK`, set without its file: `IFLA_AF_SPEC { AF_INET { IFLA_INET_CONF { key: value } }
/// }`. The packet crates only have the form in which the kernel reports these values, not the one that changes them.
fn ipv4_setting(key: u16, value: u32) -> LinkAttribute {
    let setting = DefaultNla::new(key, value.to_ne_bytes().to_vec());
    let nest = |kind: u16, inner: &DefaultNla| {
        let mut bytes = vec![0; inner.buffer_len()];
        inner.emit(&mut bytes);
        DefaultNla::new(kind | NLA_F_NESTED, bytes)
    };
    LinkAttribute::Other(nest(IFLA_AF_SPEC, &nest(AF_INET, &nest(IFLA_INET_CONF, &setting))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_named_in_the_words_of_ip_link() {
        let settings = Settings {
            up: Some(true),
            master: Some(7),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            mtu_bytes: Some(1400),
            alias: Some("cni:n/c/eth0".to_owned()),
            arp_notify: Some(true),
            oper_up: true,
            name: Some("eth1".to_owned()),
            ..Settings::default()
        };
        assert_eq!(
            set(&Target::named("eth0"), &settings).wire_name,
            "RTM_SETLINK dev=eth0 up=1 master=7 address=02:00:00:00:00:01 mtu=1400 alias=\"cni:n/c/eth0\" arp_notify=1 \
             operstate=up name=eth1"
        );
    }
}
