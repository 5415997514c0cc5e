//! Links as the kernel shows them.

use std::collections::BTreeMap;
use std::fmt;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask};

use crate::Namespace;
use crate::must::Must;
use crate::netlink::{Attributes, Message, Socket, emitted, u16_at, u32_at};
use crate::topology::link_message;

const RTM_GETLINK: u16 = 18;
/// The size of `struct ifinfomsg`, after which a link's attributes begin.
pub(crate) const IFINFOMSG: usize = 16;
const IFLA_IFNAME: u16 = 3;

/// A link, with what plugins set on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Kind: `veth`, `bridge`; empty for `lo` and hardware.
    pub kind: String,
    /// Hardware address in lower case, with colons.
    pub mac: String,
    pub mtu_bytes: u32,
    /// Transmit queue length in packets.
    pub tx_queue: u32,
    /// Set up by its administrator.
    pub up: bool,
    /// How often promiscuous mode was requested.
    pub promiscuity: u32,
    pub allmulti: bool,
    /// Name of the bridge or VRF it is a port of.
    pub master: Option<String>,
    /// Index of the peer (veth) or the parent (vlan, macvlan), in `peer_namespace` if set.
    pub peer: Option<u32>,
    /// The kernel's number for the peer's namespace, if it is another one.
    pub peer_namespace: Option<u32>,
    pub alias: Option<String>,
    /// Operational state, RFC 2863: `up`, `down`, `lowerlayerdown`, ...
    pub state: &'static str,
    /// A bridge's VLAN filtering.
    pub vlan_filtering: Option<bool>,
    /// A bridge port's flags.
    pub port: Option<Port>,
}

/// Flags of a bridge port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Sends frames back out of the port they came from.
    pub hairpin: bool,
    pub isolated: bool,
}

/// A VLAN of a bridge or bridge port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortVlan {
    pub link: String,
    pub id: u16,
    /// Untagged frames that come in belong to it.
    pub pvid: bool,
    /// The VLAN's frames leave without a tag.
    pub untagged: bool,
}

impl Namespace {
    #[track_caller]
    pub fn links(&self) -> Vec<Link> {
        self.enter(links)
    }

    #[track_caller]
    pub fn find_link(&self, name: &str) -> Option<Link> {
        self.links().into_iter().find(|link| link.name == name)
    }

    #[track_caller]
    pub fn link(&self, name: &str) -> Link {
        let place = self.path().display();
        self.find_link(name).must(format_args!("find link {name} in {place}"))
    }

    #[track_caller]
    pub fn port_vlans(&self) -> Vec<PortVlan> {
        self.enter(|| port_vlans(&Names::now()))
    }
}

/// Names of links by their indexes, for objects that the kernel returns with an index only.
pub(crate) struct Names(BTreeMap<u32, String>);

impl Names {
    /// Reads the names in the thread's namespace.
    pub(crate) fn now() -> Self {
        Self::of(&messages())
    }

    pub(crate) fn of(messages: &[Message]) -> Self {
        let name = |body: &[u8]| Attributes::after(body, IFINFOMSG).string(IFLA_IFNAME).unwrap_or_default();
        Self(messages.iter().map(|message| (u32_at(&message.body, 4), name(&message.body))).collect())
    }

    pub(crate) fn get(&self, index: u32) -> String {
        self.0.get(&index).cloned().unwrap_or_else(|| format!("#{index}"))
    }
}

/// The kernel's message about each link of the thread's namespace.
pub(crate) fn messages() -> Vec<Message> {
    Socket::route().dump(RTM_GETLINK, &[0; IFINFOMSG]).must("list links")
}

pub(crate) fn links() -> Vec<Link> {
    let messages = messages();
    links_of(&messages, &Names::of(&messages))
}

pub(crate) fn links_of(messages: &[Message], names: &Names) -> Vec<Link> {
    messages.iter().map(|message| Link::parse(&message.body, names)).collect()
}

pub(crate) fn port_vlans(names: &Names) -> Vec<PortVlan> {
    const IFLA_AF_SPEC: u16 = 26;
    const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
    let mut request = link_message(0, vec![LinkAttribute::ExtMask(vec![LinkExtentMask::Brvlan])]);
    request.header.interface_family = AddressFamily::Bridge;
    // A kernel without bridges says EOPNOTSUPP; it has no VLANs of theirs either.
    let dump = Socket::route().dump(RTM_GETLINK, &emitted(&request)).unwrap_or_default();
    let mut vlans = Vec::new();
    for message in dump {
        let link = names.get(u32_at(&message.body, 4));
        let infos = Attributes::after(&message.body, IFINFOMSG).nested(IFLA_AF_SPEC);
        for (_, info) in infos.iter().filter(|(kind, _)| *kind == IFLA_BRIDGE_VLAN_INFO) {
            let flags = u16_at(info, 0);
            let (pvid, untagged) = (flags & 2 != 0, flags & 4 != 0);
            vlans.push(PortVlan { link: link.clone(), id: u16_at(info, 2), pvid, untagged });
        }
    }
    vlans
}

impl Link {
    fn parse(body: &[u8], names: &Names) -> Self {
        const UP: u32 = 1;
        const ALLMULTI: u32 = 0x200;
        let all = Attributes::after(body, IFINFOMSG);
        let info = all.nested(18);
        let data = info.nested(2);
        let port = info.nested(5);
        let kind = info.string(1).unwrap_or_default();
        let is_port = info.string(4).as_deref() == Some("bridge");
        let flag = |number| port.u8(number) == Some(1);
        Self {
            index: u32_at(body, 4),
            name: all.string(IFLA_IFNAME).unwrap_or_default(),
            mac: mac(all.get(1).unwrap_or_default()),
            mtu_bytes: all.u32(4).unwrap_or_default(),
            tx_queue: all.u32(13).unwrap_or_default(),
            up: u32_at(body, 8) & UP != 0,
            promiscuity: all.u32(30).unwrap_or_default(),
            allmulti: u32_at(body, 8) & ALLMULTI != 0,
            master: all.u32(10).map(|index| names.get(index)),
            peer: all.u32(5),
            peer_namespace: all.u32(37),
            alias: all.string(20),
            state: state(all.u8(16).unwrap_or_default()),
            vlan_filtering: (kind == "bridge").then(|| data.u8(7) == Some(1)),
            port: is_port.then(|| Port { hairpin: flag(4), isolated: flag(33) }),
            kind,
        }
    }
}

fn mac(bytes: &[u8]) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn state(number: u8) -> &'static str {
    let states = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];
    states.get(usize::from(number)).copied().unwrap_or("?")
}

impl fmt::Display for Link {
    /// Writes one line, without what changes by itself: index, operational state, a bridge's floating MAC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} kind \"{}\" mtu {}", self.name, self.kind, self.mtu_bytes)?;
        if self.kind != "bridge" {
            write!(f, " mac {}", self.mac)?;
        }
        write!(f, " txqlen {} {}", self.tx_queue, if self.up { "up" } else { "down" })?;
        if self.promiscuity > 0 {
            write!(f, " promiscuity {}", self.promiscuity)?;
        }
        if self.allmulti {
            write!(f, " allmulti")?;
        }
        if let Some(master) = &self.master {
            write!(f, " master {master}")?;
        }
        if let Some(alias) = &self.alias {
            write!(f, " alias {alias:?}")?;
        }
        if let Some(filtering) = self.vlan_filtering {
            write!(f, " vlan_filtering {filtering}")?;
        }
        if let Some(port) = &self.port {
            write!(f, " hairpin {} isolated {}", port.hairpin, port.isolated)?;
        }
        Ok(())
    }
}

impl fmt::Display for PortVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pvid = if self.pvid { " pvid" } else { "" };
        let untagged = if self.untagged { " untagged" } else { "" };
        write!(f, "vlan {} on {}{pvid}{untagged}", self.id, self.link)
    }
}
