//! A node's container networks as one value: networks, their bridges and masters, ranges of addresses, attachments, and
//! what belongs to nothing. [`look`] reads it; [`crate::show`] writes it.
//!
//! Nothing here changes the node, takes a lock or calls a plugin.

pub(crate) mod host_objects;
mod joined_attachments;
mod networks_to_show;
#[cfg(test)]
pub(crate) mod sample_for_tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cluster_keys::NodeView;
use host_local::inventory::Usage;
use host_objects::Host;
use ipnetwork::IpNetwork;
use libcni::cni_spec::AddResult;
use libcni::inventory::Life;
use libcni::{AttachmentId, NetworkConf, Runtime};
pub(crate) use networks_to_show::{Found, OnNode};
use on_node::Rule;
pub use on_node::networks::Origin;
pub use on_node::pod_names::{Names, PodName};
pub use portmap::forwards::{Forward, Protocol};

/// The node to be looked at: that of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    pub runtime: &'a Runtime,
    pub conf_dir: &'a Path,
    pub inventory: &'a on_node::Node,
}

#[derive(Debug, Clone)]
pub struct View {
    pub host: String,
    /// The node's default routes, one for each family that has one: gateway and link.
    pub ways_out: Vec<String>,
    pub names: Names,
    /// The networks: those of the folder in its order, then others by name.
    pub networks: Vec<Network>,
    /// Objects that belong to no network that is known.
    pub unowned: Vec<String>,
    /// Files of networks that cannot be read: each may have one that is known from the cache only.
    pub broken: Vec<PathBuf>,
    /// The objects that could not be examined, and why.
    pub unseen: Vec<String>,
    /// The time of the look: the ages of attachments count from here.
    pub at: SystemTime,
}

impl View {
    pub fn title(&self) -> String {
        let of = if self.host.is_empty() { "this node" } else { &self.host };
        format!("Container networks of {of}")
    }

    /// Objects that belong to no network, and those that could not be examined, each with a title.
    pub(crate) fn rest(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        let rest = [("belongs to no known network", &self.unowned), ("could not be looked at", &self.unseen)];
        rest.into_iter().filter(|(_, items)| !items.is_empty()).map(|(title, items)| (title, items.as_slice()))
    }
}

/// The knowledge of a node about those that share a network's addresses, as of its last question to their store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfCluster {
    /// Reserved addresses that are in no run of the node.
    pub in_no_run: u128,
    /// The plugin's memory.
    pub view: NodeView,
}

#[derive(Debug, Clone)]
pub struct Network {
    pub name: String,
    pub origin: Origin,
    /// Whether runtimes give it to a container by default.
    pub is_default: IsDefault,
    /// The types of its plugins, in the order of ADD.
    pub plugins: Vec<String>,
    /// Bridges and masters of its attachments that exist.
    pub links: Vec<Shared>,
    /// host-local's ranges; the node's runs of a network whose addresses nodes share.
    pub ranges: Vec<Usage>,
    /// With plugin `cluster`: what this node last read about the other nodes.
    pub cluster: Option<OfCluster>,
    /// Addresses that an operator holds.
    pub by_hand: Vec<IpAddr>,
    /// Reserved addresses whose owner is unknown: the file cannot be read, or names no valid owner.
    pub unreadable: Vec<IpAddr>,
    /// The network's attachments, by name and interface.
    pub attachments: Vec<Attachment>,
    /// Whether links and rules of its attachments could be read: an ordinary user may not read rules.
    pub is_read: bool,
    /// Whether its file says that packets of containers are masqueraded (`ipMasq`).
    pub masquerades: bool,
    /// Why packets of many of its attachments are dropped, a sentence each. Only [`crate::dropped_packets::look`] fills it.
    pub faults: Vec<String>,
    /// Objects whose mark does not identify their attachment.
    pub nameless: Vec<String>,
}

impl Network {
    /// The text for the network's source, and for the default network.
    pub(crate) fn origin_text(&self) -> String {
        let origin = match &self.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::Cache => "no file; known from the cache".to_owned(),
            Origin::Traces => "no file and not in the cache; known from what it left".to_owned(),
        };
        match &self.is_default {
            IsDefault::No => origin,
            IsDefault::Yes => format!("{origin} (default network: first by name)"),
            IsDefault::Behind(broken) => format!(
                "{origin} (default network of CRI-O and kubelets; containerd has none: {} comes first and is broken)",
                broken.display()
            ),
        }
    }

    fn is_empty(&self) -> bool {
        self.attachments.is_empty() && self.nameless.is_empty() && self.by_hand.is_empty() && self.unreadable.is_empty()
    }
}

/// Whether a network is the default one of its folder: the first file by name has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsDefault {
    /// Another network is, or no other file has one.
    No,
    /// Containerd, CRI-O and kubelets take it.
    Yes,
    /// CRI-O and kubelets take it; containerd has no network, as this broken file comes first.
    Behind(PathBuf),
}

/// A link that a network's attachments share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    pub name: String,
    /// The kernel's name of its kind; empty for hardware.
    pub kind: String,
    pub up: bool,
    pub mtu_bytes: u32,
    pub addresses: Vec<IpNetwork>,
    /// How many ports it has, of this network and of others.
    pub ports: usize,
}

#[derive(Debug, Clone)]
pub struct Attachment {
    pub id: AttachmentId,
    /// The container's name for people: see [`Names::name`].
    pub name: String,
    pub pod: Option<PodName>,
    pub netns: String,
    pub addresses: Vec<IpAddr>,
    /// The attachment's ends on the host.
    pub links: Vec<HostLink>,
    pub ports: Vec<Forward>,
    /// The highest rate of packets to and from the container.
    pub limits: Limits,
    /// The attachment's rules in the packet filter.
    pub rules: Vec<Rule>,
    /// What the network's other plugins have left of it on the node.
    pub others: Vec<String>,
    /// The time at which the attachment was made, by its reservation or the cache.
    pub since: Option<SystemTime>,
    pub maker: Maker,
    pub life: Life,
    /// The reasons why the attachment's packets are dropped, a sentence each: see [`crate::dropped_packets`]. Only [`crate::dropped_packets::look`] fills it.
    pub faults: Vec<String>,
    /// Whether ADD was finished; `None`: this cache does not have the attachment, so another runtime added it.
    pub is_complete: Option<bool>,
    pub conf: Option<NetworkConf>,
    /// The result of ADD; empty if the cache does not have it.
    pub result: AddResult,
    /// The ports of the node that ADD was asked to forward to it.
    pub asked: Vec<Asked>,
}

impl Attachment {
    /// The attachment's name for people: its container's, and the interface behind a slash.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.name, self.id.ifname)
    }

    /// Whether nothing of the attachment needs a look: its container lives, its ADD was finished, its links are up, and no fault was found.
    pub fn is_well(&self) -> bool {
        let is_alive = matches!(self.life, Life::Lives | Life::Young);
        is_alive && self.is_complete != Some(false) && self.faults.is_empty() && self.links.iter().all(|link| link.up)
    }
}

/// A port of the node that a runtime asked for: an entry of the capability argument `portMappings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub protocol: Protocol,
    /// The node's address; `None`: each of them.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl Asked {
    /// The port in words: `port 8080/tcp`.
    pub fn name(&self) -> String {
        format!("port {}/{}", self.port, self.protocol.name())
    }

    /// Whether a rule forwards the port, for other hosts too.
    pub fn is_met_by(&self, forward: &Forward) -> bool {
        forward.is_entered
            && (self.protocol, self.port, self.address) == (forward.protocol, forward.port, forward.address)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLink {
    pub name: String,
    pub master: Option<String>,
    pub up: bool,
}

/// Rates in bytes per second; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub to_bytes: Option<u64>,
    pub from_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The interface has this suite's mark.
    ThisSuite,
    /// The interface has no mark, as the reference's.
    Reference,
    /// The interface was not found.
    Unknown,
}

impl Maker {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ThisSuite => "this-suite",
            Self::Reference => "reference-or-other",
            Self::Unknown => "unknown",
        }
    }
}

pub const fn word(life: Life) -> &'static str {
    match life {
        Life::Lives => "lives",
        Life::Young => "young",
        Life::Unknown => "unknown",
        Life::Gone => "gone",
    }
}

/// Looks at all networks, or at the one of this name. What cannot be looked at is named in [`View::unseen`].
pub fn look(node: Node<'_>, only: Option<&str>) -> View {
    let mut unseen = Vec::new();
    let host = Host::look(&node.inventory.search_path, &mut unseen);
    look_by(node, &host, &Found::look(node, only), only, unseen)
}

pub(crate) fn look_by(node: Node<'_>, host: &Host, found: &Found, only: Option<&str>, mut unseen: Vec<String>) -> View {
    let (mut seen, mut names, broken) = (BTreeSet::new(), found.names.clone(), found.broken.clone());
    unseen.extend(found.unseen());
    let join = |network| joined_attachments::join(network, host, &mut seen, &mut unseen);
    let mut networks: Vec<Network> = found.networks.iter().map(join).collect();
    // An empty folder is no trace.
    networks.retain(|network| network.origin != Origin::Traces || !network.is_empty());
    networks_to_show::mark_default(node, &mut networks);
    for attachment in networks.iter().flat_map(|network| &network.attachments) {
        names.add(&attachment.id.container_id, None);
    }
    for attachment in networks.iter_mut().flat_map(|network| &mut network.attachments) {
        attachment.name = names.name(&attachment.id.container_id);
        attachment.pod = names.find_pod(&attachment.id.container_id).cloned();
    }
    for network in &mut networks {
        network.attachments.sort_by_cached_key(|one| (natural(&one.name), natural(one.id.ifname.as_str())));
    }
    let is_read = networks.iter().all(|network| network.is_read);
    let unowned = if only.is_some() || !is_read { Vec::new() } else { host.unowned(&seen) };
    let (host_name, ways_out) = (host_objects::name(), host.ways_out());
    View { host: host_name, ways_out, names, networks, unowned, broken, unseen, at: SystemTime::now() }
}

/// The folders whose files a view is read from, or those that they would be made in: when one changes, so may the view.
pub fn folders(node: Node<'_>) -> Vec<PathBuf> {
    networks_to_show::folders(node)
}

/// The key by which people sort names: `web-2` is before `web-10`.
pub(crate) fn natural(name: &str) -> String {
    let (mut key, mut digits) = (String::new(), String::new());
    for c in name.chars().map(Some).chain([None]) {
        match c {
            Some(digit) if digit.is_ascii_digit() => digits.push(digit),
            other => {
                if !digits.is_empty() {
                    key.push_str(&format!("{digits:0>20}"));
                }
                digits.clear();
                key.extend(other);
            }
        }
    }
    key
}

/// Where a forwarded port leads to an attachment.
pub(crate) fn leads_to(addresses: &[IpAddr], to: SocketAddr) -> bool {
    addresses.contains(&to.ip())
}
