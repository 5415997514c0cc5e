//! Decodes the kernel's description of a link into [`Link`].

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BridgePortState, InfoBridgePort, InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop, State,
};

use super::{Kind, Link, Mac, Port, PortFault};

impl Link {
    pub(crate) fn from_message(message: &RouteNetlinkMessage) -> Option<Self> {
        match message {
            RouteNetlinkMessage::NewLink(message) => Some(Self::from(message)),
            _ => None,
        }
    }

    fn read_info(&mut self, info: &LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = Kind::of(kind),
            LinkInfo::Data(data) => {
                if let Some(kind) = Kind::read(data) {
                    self.kind = kind;
                }
            }
            LinkInfo::PortData(InfoPortData::BridgePort(options)) => {
                let mut port = Port::default();
                let (mut learns, mut floods, mut state) = (true, true, BridgePortState::Forwarding);
                let (mut is_locked, mut is_broadcast, mut is_multicast) = (false, true, true);
                for option in options {
                    match option {
                        InfoBridgePort::State(found) => state = *found,
                        InfoBridgePort::Learning(on) => learns = *on,
                        InfoBridgePort::UnicastFlood(on) => floods = *on,
                        InfoBridgePort::Locked(on) => is_locked = *on,
                        InfoBridgePort::BroadcastFlood(on) => is_broadcast = *on,
                        InfoBridgePort::MulticastFlood(on) => is_multicast = *on,
                        InfoBridgePort::HairpinMode(on) => port.hairpin = *on,
                        InfoBridgePort::Isolated(on) => port.isolated = *on,
                        _ => (),
                    }
                }
                self.port_fault = match state {
                    BridgePortState::Listening | BridgePortState::Learning => Some(PortFault::Waits),
                    BridgePortState::Forwarding => [
                        (!learns && !floods, PortFault::Deaf),
                        (is_locked, PortFault::Locked),
                        (!is_broadcast, PortFault::NoBroadcast),
                        (!is_multicast, PortFault::NoMulticast),
                    ]
                    .into_iter()
                    .find_map(|(is_it, fault)| is_it.then_some(fault)),
                    _ => Some(PortFault::Blocks),
                };
                self.port = Some(port);
            }
            _ => (),
        }
    }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Link {
            index: message.header.index,
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            loopback: flags.contains(LinkFlags::Loopback),
            promisc: flags.contains(LinkFlags::Promisc),
            allmulti: flags.contains(LinkFlags::Allmulti),
            no_arp: flags.contains(LinkFlags::Noarp),
            multicast: flags.contains(LinkFlags::Multicast),
            ..Link::default()
        };
        let (mut bus, mut device) = ("", "");
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(octets) => {
                    link.mac = octets.as_slice().try_into().ok().map(Mac);
                }
                LinkAttribute::PermAddress(octets) => {
                    link.permanent_mac = octets.as_slice().try_into().ok().map(Mac);
                }
                LinkAttribute::ParentDevName(name) => device = name,
                LinkAttribute::ParentDevBusName(name) => bus = name,
                LinkAttribute::Mtu(mtu) => link.mtu_bytes = *mtu,
                LinkAttribute::OperState(state) => {
                    link.oper_up = *state == State::Up;
                    link.oper_unknown = *state == State::Unknown;
                }
                LinkAttribute::Controller(index) => link.master = Some(*index),
                LinkAttribute::Link(index) => link.peer = Some(*index),
                LinkAttribute::LinkNetNsId(id) => link.peer_netns_id = Some(*id),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::Promiscuity(count) => link.promiscuity = *count,
                LinkAttribute::Group(group) => link.group = *group,
                LinkAttribute::TxQueueLen(length) => link.tx_queue_len = *length,
                LinkAttribute::PropList(properties) => {
                    link.alt_names.extend(properties.iter().filter_map(|property| match property {
                        Prop::AltIfName(name) => Some(name.clone()),
                        _ => None,
                    }));
                }
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        link.read_info(info);
                    }
                }
                _ => (),
            }
        }
        link.parent_device = (!device.is_empty()).then(|| format!("{bus}/{device}"));
        link
    }
}
