//! Links: what they are, and the requests that make, change and read them.
//!
//! Requests are values ([`Request`]), so several can go to the kernel in one call. Removal is
//! [`crate::unlink`]'s; what a bridge knows of a port is [`crate::bridge_port`]'s.

use std::os::fd::AsRawFd;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoPortData, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo,
    LinkMessage, State,
};
use nix::errno::Errno;
use rtnetlink::{LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};

use crate::error::{Cause, OpError, Result};
use crate::feature::Feature;
use crate::kernel::{Kernel, Reply, Request};
pub use crate::mac::{Mac, MacError};
use crate::netns::Netns;

/// The longest link name (`IFNAMSIZ` less the final NUL).
pub const NAME_BYTES_MAX: usize = 15;

/// Whether a link can have this name (`dev_valid_name`, with `isspace` as the kernel has it).
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| !matches!(byte, 0 | b'/' | b':' | b'\t'..=b'\r' | b' ' | 0xa0);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !matches!(text, "." | "..") && text.bytes().all(is_part)
}

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Its number, unique in its namespace while it lives.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `bridge`, `veth`, ...; empty for links without a kind (`lo`, hardware).
    pub kind: String,
    /// Its Ethernet address, if it has one of six bytes.
    pub mac: Option<Mac>,
    /// The largest packet, in bytes.
    pub mtu_bytes: u32,
    /// Set up by the administrator (`IFF_UP`).
    pub up: bool,
    /// Can carry packets now (`IF_OPER_UP`).
    pub oper_up: bool,
    /// The kernel has never had a reason to say whether it can (`IF_OPER_UNKNOWN`): treated as if it could.
    pub oper_unknown: bool,
    /// A loopback link (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// The link it is a port of.
    pub master: Option<u32>,
    /// The link it is connected to or stacked on: a veth's peer, a vlan's parent.
    pub peer: Option<u32>,
    /// This namespace's number for the namespace `peer` is in, if that is another one.
    pub peer_netns_id: Option<i32>,
    /// The free text on it (`ip link set alias`).
    pub alias: Option<String>,
    /// Set promiscuous by the administrator (`IFF_PROMISC`).
    pub promisc: bool,
    /// Receives all multicast (`IFF_ALLMULTI`).
    pub allmulti: bool,
    /// How many want it promiscuous, the administrator and its bridge included.
    pub promiscuity: u32,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: u32,
    /// A bridge's VLAN filtering.
    pub vlan_filtering: Option<bool>,
    /// The VLAN a bridge puts new ports in (0: none); `None` if the kernel knows no VLANs on bridges.
    pub default_pvid: Option<u16>,
    /// Its settings as a bridge's port.
    pub port: Option<Port>,
    /// The group that the administrator put it in (`ip link set group`); 0 is none.
    pub group: u32,
}

/// A link's settings as a bridge's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Port {
    /// Frames may go out where they came in.
    pub hairpin: bool,
    /// No frames to other isolated ports.
    pub isolated: bool,
}

/// The link a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    index: u32,
    name: String,
}

impl Target {
    /// The link of this name. Prefer `From<&Link>`: an index is not reused at once, a name may be.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { index: 0, name: name.into() }
    }

    /// The link's index, or 0 if it is known by name only.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The link's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn message(&self) -> LinkMessage {
        match self.index {
            0 => LinkUnspec::new_with_name(&self.name).build(),
            index => LinkUnspec::new_with_index(index).build(),
        }
    }
}

impl From<&Link> for Target {
    fn from(link: &Link) -> Self {
        Self { index: link.index, name: link.name.clone() }
    }
}

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

/// Settings a bridge gets when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bridge {
    /// The largest packet, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Its Ethernet address for good; with `None` it has one of its ports', another as they come and go.
    pub mac: Option<Mac>,
    /// Tells VLANs apart on its ports.
    pub vlan_filtering: bool,
}

/// Creates a bridge, down.
///
/// # Errors
/// `EEXIST`: the name is taken. `EOPNOTSUPP`: the kernel has no bridges, or no VLAN filtering if that is asked for.
pub fn create_bridge(name: &str, bridge: &Bridge) -> Request {
    let mut message = LinkMessageBuilder::<LinkBridge>::new(name);
    let mut words = format!("RTM_NEWLINK kind=bridge name={name}");
    if let Some(mtu) = bridge.mtu_bytes {
        message = message.mtu(mtu);
    }
    if let Some(mac) = bridge.mac {
        message = message.address(mac.0.to_vec());
        words.push_str(&format!(" address={mac}"));
    }
    if bridge.vlan_filtering {
        message = message.set_info_data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]));
        words.push_str(" vlan_filtering=1");
    }
    let feature = if bridge.vlan_filtering { Feature::BridgeVlanFiltering } else { Feature::Bridge };
    Request::new("create", format!("bridge {name}"), RouteNetlinkMessage::NewLink(message.build()))
        .flags(NLM_F_CREATE | NLM_F_EXCL)
        .needs(feature)
        .words(words)
}

/// A pair of links, one here, one in another namespace or here too. Both are made down.
#[derive(Debug)]
pub struct Veth<'a> {
    /// Name of the end here.
    pub name: &'a str,
    /// The bridge (or other master) the end here becomes a port of.
    pub master: Option<u32>,
    /// Text on the end here.
    pub alias: &'a str,
    /// Both ends' largest packet, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// The other end's address; `None` leaves the kernel's random one.
    pub peer_mac: Option<Mac>,
    /// The other end's namespace; `None` is this one.
    pub peer_netns: Option<&'a Netns>,
}

/// Creates a pair, marks it with its alias, and reads the end here: one call to the kernel after a look at the name.
///
/// # Errors
/// `EEXIST`: one of the names is taken; nothing was made. Any failure after the creation deletes the pair again.
pub fn create_veth(net: &Kernel, veth: &Veth<'_>) -> Result<Link> {
    // A kernel that refuses to create goes on with the batch: it would put the mark on the link that has the name.
    if find(net, veth.name)?.is_some() {
        return Err(new_veth(veth).error(net.place(), Cause::Kernel { errno: Errno::EEXIST, words: None }));
    }
    let here = Target::named(veth.name);
    let alias = Settings { alias: Some(veth.alias.to_owned()), ..Settings::default() };
    let mut outcomes = net.call_all(vec![new_veth(veth), set(&here, &alias), get_request(&here)]).into_iter();
    match outcomes.next() {
        Some(Ok(_)) => (),
        Some(Err(error)) => return Err(error),
        None => return Err(OpError::state("create", format!("veth {}", veth.name), "no answer")),
    }
    let mut made = Ok(Vec::new());
    for outcome in outcomes {
        made = made.and(outcome);
    }
    let link = made.and_then(|reply| only(reply, net, veth.name));
    if link.is_err() {
        // A pair without its mark is nobody's: DEL would not know it.
        net.run(crate::unlink::request(&here))?;
    }
    link
}

fn new_veth(veth: &Veth<'_>) -> Request {
    let mut peer = LinkUnspec::new_with_name(veth.peer_name);
    let mut message = LinkVeth::new(veth.name, veth.peer_name);
    if let Some(mac) = veth.peer_mac {
        peer = peer.address(mac.0.to_vec());
    }
    if let Some(mtu) = veth.mtu_bytes {
        peer = peer.mtu(mtu);
        message = message.mtu(mtu);
    }
    if let Some(netns) = veth.peer_netns {
        peer = peer.setns_by_fd(netns.as_raw_fd());
    }
    if let Some(master) = veth.master {
        message = message.controller(master);
    }
    let message = message.set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())));
    let place = match veth.peer_netns {
        Some(netns) => format!(" in {}", netns.path().display()),
        None => String::new(),
    };
    Request::new(
        "create",
        format!("veth {} with peer {}{place}", veth.name, veth.peer_name),
        RouteNetlinkMessage::NewLink(message.build()),
    )
    .flags(NLM_F_CREATE | NLM_F_EXCL)
    .needs(Feature::Veth)
    .words(format!("RTM_NEWLINK kind=veth name={} peer={}", veth.name, veth.peer_name))
}

/// Reads the link, which must be there. A text that no link can have for a name ([`is_name`]) is not sent to the kernel.
///
/// # Errors
/// `ENODEV`: there is none.
pub fn get(net: &Kernel, target: &Target) -> Result<Link> {
    if target.index == 0 && !is_name(&target.name) {
        let start: String = target.name.chars().take(2 * NAME_BYTES_MAX).collect();
        return Err(OpError::errno("get", format!("link {start:?}"), Errno::ENODEV).at(net.place()));
    }
    only(net.call(get_request(target))?, net, &target.name)
}

/// Reads the link of this name, if there is one.
///
/// # Errors
/// As the kernel refuses; `ENODEV` is `None`.
pub fn find(net: &Kernel, name: &str) -> Result<Option<Link>> {
    present(get(net, &Target::named(name)))
}

/// Reads the link of this index, if there is one.
///
/// # Errors
/// As [`find`].
pub fn find_index(net: &Kernel, index: u32) -> Result<Option<Link>> {
    let target = Target { index, name: format!("number {index}") };
    present(get(net, &target))
}

fn present(found: Result<Link>) -> Result<Option<Link>> {
    match found {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.os_errno() == Some(Errno::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changes a link and reads it back, in one call to the kernel.
///
/// # Errors
/// As [`set`].
pub fn set_and_get(net: &Kernel, target: &Target, settings: &Settings) -> Result<Link> {
    run_and_get(net, vec![set(target, settings)], target)
}

/// Sends requests and then reads the link, in one call to the kernel.
///
/// # Errors
/// The first failure; as for [`Kernel::run_all`], later requests may have succeeded.
pub fn run_and_get(net: &Kernel, mut requests: Vec<Request>, target: &Target) -> Result<Link> {
    requests.push(get_request(target));
    let mut last = Ok(Vec::new());
    for outcome in net.call_all(requests) {
        last = last.and(outcome);
    }
    only(last?, net, &target.name)
}

/// Reads two links, which must be there, in one call to the kernel.
///
/// # Errors
/// `ENODEV`: one of them is not.
pub fn get_both(net: &Kernel, one: &Target, other: &Target) -> Result<(Link, Link)> {
    let mut outcomes = net.call_all(vec![get_request(one), get_request(other)]).into_iter();
    let mut next = |target: &Target| only(outcomes.next().unwrap_or(Ok(Vec::new()))?, net, &target.name);
    Ok((next(one)?, next(other)?))
}

/// All links of the namespace, or the ports of one master. Costs by their number: for GC, not for ADD.
///
/// # Errors
/// As the kernel refuses.
pub fn list(net: &Kernel, master: Option<u32>) -> Result<Vec<Link>> {
    let mut message = LinkMessage::default();
    message.attributes.extend(master.map(LinkAttribute::Controller));
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let request = Request::new("list", "links", RouteNetlinkMessage::GetLink(message))
        .flags(NLM_F_DUMP)
        .words("RTM_GETLINK dump");
    Ok(net.call(request)?.iter().filter_map(Link::from_message).collect())
}

pub(crate) fn get_request(target: &Target) -> Request {
    let mut message = target.message();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    Request::new("get", format!("link {}", target.name), RouteNetlinkMessage::GetLink(message))
        .words(format!("RTM_GETLINK dev={}", target.name))
}

fn only(reply: Reply, net: &Kernel, name: &str) -> Result<Link> {
    reply.iter().find_map(Link::from_message).ok_or_else(|| {
        let cause = Cause::State("the kernel answered without a link".into());
        OpError::new("get", format!("link {name}"), cause).at(net.place())
    })
}

impl Link {
    pub(crate) fn from_message(message: &RouteNetlinkMessage) -> Option<Self> {
        match message {
            RouteNetlinkMessage::NewLink(message) => Some(Self::from(message)),
            _ => None,
        }
    }

    fn read_info(&mut self, info: &LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = kind.to_string(),
            LinkInfo::Data(InfoData::Bridge(options)) => {
                for option in options {
                    match option {
                        InfoBridge::VlanFiltering(on) => self.vlan_filtering = Some(*on),
                        InfoBridge::VlanDefaultPvid(id) => self.default_pvid = Some(*id),
                        _ => (),
                    }
                }
            }
            LinkInfo::PortData(InfoPortData::BridgePort(options)) => {
                let mut port = Port::default();
                for option in options {
                    match option {
                        InfoBridgePort::HairpinMode(on) => port.hairpin = *on,
                        InfoBridgePort::Isolated(on) => port.isolated = *on,
                        _ => (),
                    }
                }
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
            loopback: flags.contains(LinkFlags::Loopback),
            promisc: flags.contains(LinkFlags::Promisc),
            allmulti: flags.contains(LinkFlags::Allmulti),
            ..Link::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(octets) => {
                    link.mac = octets.as_slice().try_into().ok().map(Mac);
                }
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
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        link.read_info(info);
                    }
                }
                _ => (),
            }
        }
        link
    }
}
