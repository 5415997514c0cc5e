//! How packets reach an attachment: by the node's routes, by a bridge alone, or by the link that its own is stacked on.

use libcni::cni_spec::json;
use libcni::{NetworkConf, PluginObject};

use netops::link::Link;
use on_node::plugin_of;

use super::gateways::mac_of_host;
use crate::node_networks::host_objects::Host;
use crate::node_networks::{Attachment, Network};

/// How packets reach an attachment.
#[derive(Debug)]
pub(super) enum Carrier {
    /// The node routes them, to a bridge with the gateway's address or to the attachment's veth.
    Routed(Option<Bridge>),
    /// A bridge without gateway: the node passes on frames, and no packets.
    Switched(Bridge),
    /// A link stacked on one of the node's, or taken from it: the node passes on nothing.
    Stacked { kind: String, master: Option<String> },
    /// The configuration does not show how packets reach the container.
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) struct Bridge {
    pub(super) name: String,
    /// The name that it had at ADD, if someone has given it another one.
    pub(super) was: Option<String>,
    /// The link that has the gateways.
    pub(super) router: String,
    /// Whether ports send packets back where they came from.
    pub(super) has_hairpin: bool,
}

/// Types of plugins for whose containers the node itself neither routes nor bridges.
const STACKED: [&str; 9] =
    ["macvlan", "ipvlan", "vlan", "host-device", "sriov", "ib-sriov", "ovs", "dummy", "loopback"];

impl Carrier {
    pub(super) fn of(host: &Host, network: &Network, attachment: &Attachment) -> Self {
        let plugins = attachment.conf.iter().flat_map(|conf| &conf.plugins);
        for plugin in plugins {
            match plugin_of(plugin.plugin_type.as_str()) {
                "bridge" => {
                    let bridge = Bridge::of(plugin).under_its_name(host, attachment);
                    return match is_set(plugin, "isGateway") || is_set(plugin, "isDefaultGateway") {
                        true => Self::Routed(Some(bridge)),
                        false => Self::Switched(bridge),
                    };
                }
                "ptp" => return Self::Routed(None),
                kind if STACKED.contains(&kind) => {
                    return Self::Stacked { kind: kind.to_owned(), master: text(plugin, "master") };
                }
                _ => {}
            }
        }
        if let Some(kind) = network.plugins.iter().find(|kind| STACKED.contains(&plugin_of(kind))) {
            return Self::Stacked { kind: plugin_of(kind).to_owned(), master: None };
        }
        Self::by_links(host, attachment)
    }

    /// A delegate's, or one that this cache does not have.
    fn by_links(host: &Host, attachment: &Attachment) -> Self {
        let Some(link) = attachment.links.first() else { return Self::Unknown };
        let Some(name) = link.master.clone() else { return Self::Routed(None) };
        let has_gateway = host.shared(&name).is_some_and(|bridge| {
            let in_it = |net: &ipnetwork::IpNetwork| attachment.addresses.iter().any(|address| net.contains(*address));
            // Of one whose addresses are not known, any address of the bridge may be the gateway.
            bridge.addresses.iter().any(|net| attachment.addresses.is_empty() || in_it(net))
        });
        let bridge = Bridge { router: name.clone(), was: None, name, has_hairpin: false };
        if has_gateway { Self::Routed(Some(bridge)) } else { Self::Switched(bridge) }
    }

    pub(super) fn is_routed(&self) -> bool {
        matches!(self, Self::Routed(_))
    }

    /// Whether the container's interface is one end of a pair, whose other end is on the node.
    pub(super) fn is_pair(&self) -> bool {
        matches!(self, Self::Routed(_) | Self::Switched(_))
    }

    /// The node's link, or bridge, by which the container exchanges frames with its neighbours; `None`: none is known.
    pub(super) fn segment(&self, host: &Host) -> Option<String> {
        match self {
            Self::Routed(Some(bridge)) | Self::Switched(bridge) => Some(bridge.router.clone()),
            Self::Stacked { kind, master: Some(master) } if is_by_design(kind) => {
                let bridge = host.find(master).and_then(|link| host.at(link.master?));
                let bridge = bridge.filter(|found| found.kind.is_bridge()).map(|found| &found.name);
                Some(bridge.unwrap_or(master).clone())
            }
            _ => None,
        }
    }

    pub(super) fn bridge(&self) -> Option<&Bridge> {
        match self {
            Self::Routed(bridge) => bridge.as_ref(),
            Self::Switched(bridge) => Some(bridge),
            Self::Stacked { .. } | Self::Unknown => None,
        }
    }
}

impl Carrier {
    pub(super) fn into_bridge(self) -> Option<Bridge> {
        match self {
            Self::Routed(bridge) => bridge,
            Self::Switched(bridge) => Some(bridge),
            Self::Stacked { .. } | Self::Unknown => None,
        }
    }
}

impl Bridge {
    fn of(plugin: &PluginObject) -> Self {
        let name = text(plugin, "bridge").unwrap_or_else(|| "cni0".to_owned());
        let vlan = plugin.find("vlan").and_then(|text| text.parse::<u16>().ok()).filter(|vlan| *vlan != 0);
        let router = vlan.map_or_else(|| name.clone(), |vlan| format!("{name}.{vlan}"));
        Self { name, was: None, router, has_hairpin: is_set(plugin, "hairpinMode") }
    }

    /// No link has the name, and the attachment's veth is a port of one that has the Ethernet address of ADD's bridge: it was renamed.
    fn under_its_name(mut self, host: &Host, attachment: &Attachment) -> Self {
        let master = || attachment.links.iter().find_map(|link| host.find(link.master.as_ref()?));
        let is_it = |link: &&Link| {
            let mut gateways = attachment.result.ips.iter().filter_map(|ip| ip.gateway);
            let at_add = mac_of_host(attachment, &self.name);
            at_add.is_some() && at_add == link.mac
                || gateways.any(|gateway| host.addresses_of(&link.name).iter().any(|own| own.ip() == gateway))
        };
        if let Some(link) = host.find(&self.name).is_none().then(master).flatten().filter(is_it) {
            if self.router == self.name {
                self.router.clone_from(&link.name);
            }
            self.was = Some(std::mem::replace(&mut self.name, link.name.clone()));
        }
        self
    }
}

/// Whether the node itself does not reach the attachment, by the design of its kind of link.
pub(super) fn is_by_design(kind: &str) -> bool {
    ["macvlan", "ipvlan"].contains(&kind)
}

fn text(plugin: &PluginObject, key: &str) -> Option<String> {
    let value = json::parse(plugin.find(key)?.as_bytes()).ok()?;
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn is_set(plugin: &PluginObject, key: &str) -> bool {
    plugin.find(key) == Some("true")
}

pub(crate) fn sets(network: &NetworkConf, key: &str) -> bool {
    network.plugins.iter().any(|plugin| is_set(plugin, key))
}
