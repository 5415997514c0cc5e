//! Why packets of an attachment are dropped, or may be: the one home of these reasons. [`crate::explain`] tells those of one
//! attachment; `doctor` gathers those of all that live.
//!
//! What all attachments share is read once. Of each attachment, the kernel is asked for the routes to its addresses, and for
//! its interface and route out in its namespace: no table is dumped for one.

mod container_interface;
mod container_routes;
mod default_route;
mod forwarded_ports;
mod gateways;
mod host_links;
pub(crate) mod host_routes;
mod links_as_at_add;
mod mtu;
mod neighbours;
mod packet_filters;
mod routes_that_refuse;
mod uplink;
pub(crate) mod way_to_container;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

pub use crate::validate::Level;
use cni_filter::nat::{self, Base};
use cni_filter::packet_path::{self, Gate};
use interface::alias;
use libcni::AttachmentId;
use libcni::inventory::Life;
use netops::Family;
use netops::link::Mac;
use netops::route::{self, MAIN_TABLE, Route};
use netops::sysctl;

use crate::doctor::removal;
use crate::node_networks::host_objects::Host;
use crate::node_networks::{Attachment, Network, Node, View, look_by};
pub(crate) use default_route::is_global;
use forwarded_ports::Ports;
use ipnetwork::IpNetwork;
use way_to_container::Carrier;

/// The kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The container is gone.
    Gone,
    /// The ADD was not finished.
    Unfinished,
    /// A link is down, or its veth is no port of the bridge.
    LinkDown,
    /// The bridge, or the link that the container's is stacked on, is gone.
    LinkGone,
    /// The node does not have the gateway's address.
    Gateway,
    /// The node's route to the container leads elsewhere.
    Route,
    /// A rule of the node's routing refuses packets of the container.
    Refused,
    /// The node takes packets of the container for forged ones.
    ReversePath,
    /// The node forwards no packets.
    Forwarding,
    /// The node has no route out.
    WayOut,
    /// A rule or a policy drops packets between the container and other networks.
    Filtered,
    /// A rule or a policy drops packets from the container to the node.
    FilteredToNode,
    /// Packets are larger than a link on their way takes.
    Mtu,
    /// No rule masquerades the container's packets.
    Masquerade,
    /// No rule forwards a port that the runtime asked for.
    PortGone,
    /// Another container has the same port of the node.
    PortTwice,
    /// A process of the node listens on the port.
    PortTaken,
    /// The node or another attachment has the same address.
    Duplicate,
    /// The interface, an address or a route is missing in the container.
    Inside,
}

/// Why packets of an attachment are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The kind.
    pub cause: Cause,
    /// An error: packets are dropped. A warning: some may be. A note: it matters to some uses only.
    pub level: Level,
    /// The reason, in a sentence about this attachment.
    pub why: String,
    /// The same in a sentence that fits all attachments with this reason.
    pub what: String,
    /// Commands that mend it, in their order, or a sentence. Attachments may share commands.
    pub remedy: Vec<String>,
}

impl Reason {
    fn new(cause: Cause, level: Level, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { cause, level, what: why.clone(), why, remedy: Vec::new() }
    }

    /// The sentence that fits all attachments with the reason.
    fn shared(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    fn mended_by(mut self, remedy: impl IntoIterator<Item = String>) -> Self {
        self.remedy.extend(remedy);
        self
    }
}

/// A reason with the attachment that it is about.
#[derive(Debug, Clone)]
pub struct Found<'a> {
    /// The attachment's network.
    pub network: &'a Network,
    /// The attachment.
    pub attachment: &'a Attachment,
    /// The reason.
    pub reason: Reason,
}

/// Why packets of living attachments are dropped.
#[derive(Debug)]
pub struct Reasons<'a> {
    /// The reasons.
    pub found: Vec<Found<'a>>,
    /// The objects that could not be looked at, with the error.
    pub unseen: Vec<String>,
    /// Rules of the packet filter that may drop packets on conditions that are not examined.
    pub unexamined: Vec<String>,
}

/// The findings about one attachment.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) reasons: Vec<Reason>,
    /// The hops of packets to the attachment, in their order.
    pub(crate) to: Vec<String>,
    /// The hops of packets from the attachment, in their order.
    pub(crate) from: Vec<String>,
    pub(crate) unseen: Vec<String>,
    /// Rules that were read and not understood, and may drop packets.
    pub(crate) unexamined: Vec<String>,
    /// The Ethernet address that the container's interface has now, if its namespace could be read.
    mac: Option<Mac>,
}

/// A view of the node, with what the reasons need of it besides.
#[derive(Debug)]
pub struct Survey {
    /// The view.
    pub view: View,
    host: Host,
    search_path: String,
}

impl Survey {
    /// Looks at the node once.
    #[must_use]
    pub fn look(node: Node<'_>) -> Self {
        Self::look_at(node, None)
    }

    fn look_at(node: Node<'_>, only: Option<&str>) -> Self {
        let mut unseen = Vec::new();
        let search_path = node.inventory.search_path.clone();
        let host = Host::look(&search_path, &mut unseen);
        Self { view: look_by(node, &host, only, unseen), host, search_path }
    }

    /// The reasons of all attachments that live.
    #[must_use]
    pub fn reasons(&self) -> Reasons<'_> {
        let sight = Sight::new(&self.host, &self.search_path, &self.view);
        let (mut found, mut unseen, mut unexamined) = (Vec::new(), sight.unseen.clone(), sight.refusing_rules());
        for network in &self.view.networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                let findings = sight.of(network, attachment);
                // Attachments of a runtime with another cache have no path here.
                if !attachment.netns.is_empty() {
                    unseen.extend(findings.unseen);
                }
                unexamined.extend(findings.unexamined);
                found.extend(findings.reasons.into_iter().map(|reason| Found { network, attachment, reason }));
            }
        }
        for list in [&mut unseen, &mut unexamined] {
            list.sort();
            list.dedup();
        }
        Reasons { found, unseen, unexamined }
    }
}

/// An ADD that began longer ago has ended: runtimes wait for no plugin as long.
const ADD_MAX: Duration = Duration::from_secs(300);

/// The number of attachments with one fault from which on the fault is their network's or node's.
const SHARED: usize = 4;

/// A view of the node, or of the network of this name, with its faults: the reasons that are errors. A fault that many
/// attachments of a network share is the network's.
#[must_use]
pub fn look(node: Node<'_>, only: Option<&str>) -> View {
    let survey = Survey::look_at(node, only);
    let found = survey.reasons().found;
    let mut gathered: BTreeMap<(String, String), Vec<(AttachmentId, String)>> = BTreeMap::new();
    for Found { network, attachment, reason } in found {
        // Others are said by the attachment's state.
        if reason.level == Level::Error && !matches!(reason.cause, Cause::Gone | Cause::Unfinished) {
            let who = gathered.entry((network.name.clone(), reason.what)).or_default();
            who.push((attachment.id.clone(), reason.why));
        }
    }
    let mut view = survey.view;
    for ((name, what), who) in gathered {
        let Some(network) = view.networks.iter_mut().find(|network| network.name == name) else { continue };
        let ids: BTreeSet<&AttachmentId> = who.iter().map(|(id, _)| id).collect();
        if ids.len() >= SHARED {
            network.faults.push(format!("{what}: {} attachments", ids.len()));
            continue;
        }
        for attachment in &mut network.attachments {
            let own = who.iter().filter(|(id, why)| *id == attachment.id && !attachment.faults.contains(why));
            let own: Vec<String> = own.map(|(_, why)| why.clone()).collect();
            attachment.faults.extend(own);
        }
    }
    view
}

/// What all attachments share, read once.
pub(crate) struct Sight<'a> {
    host: &'a Host,
    gates: Vec<Gate>,
    /// The chains by which addresses are translated.
    translating: Vec<Base>,
    /// The main table's routes.
    routes: Vec<Route>,
    /// The node's ends of containers' links.
    own_links: BTreeSet<&'a str>,
    /// The routes that refuse packets: kind and destination.
    refusing: Vec<(&'static str, IpNetwork)>,
    ports: Ports<'a>,
    view: &'a View,
    /// The living attachments that have an address.
    holders: BTreeMap<IpAddr, Vec<(&'a Network, &'a Attachment)>>,
    /// The living attachments by the Ethernet address of their interface.
    macs: BTreeMap<&'a str, Vec<(&'a Network, &'a Attachment)>>,
    /// Whether frames that a bridge forwards pass the filter of IPv4, and of IPv6.
    filters_bridges: [bool; 2],
    /// Settings of the kernel that attachments share, by path.
    settings: RefCell<BTreeMap<String, Option<String>>>,
    pub(crate) unseen: Vec<String>,
}

impl<'a> Sight<'a> {
    pub(crate) fn new(host: &'a Host, search_path: &str, view: &'a View) -> Self {
        let mut unseen: Vec<String> = host.unread_forwards.iter().cloned().collect();
        let gates = packet_path::list(search_path).unwrap_or_else(|error| {
            unseen.push(format!("the packet filter: {error}"));
            Vec::new()
        });
        let translating = nat::list(search_path).unwrap_or_else(|error| {
            unseen.push(format!("the translation of addresses: {error}"));
            Vec::new()
        });
        let (mut routes, mut refusing) = (Vec::new(), Vec::new());
        for family in Family::BOTH {
            if let Some(kernel) = &host.kernel {
                match route::list(kernel, None, Some(MAIN_TABLE), family) {
                    Ok(found) => routes.extend(found),
                    Err(error) => unseen.push(format!("the node's routes: {error}")),
                }
                refusing.extend(route::list_refusing(kernel, family).unwrap_or_default());
            }
        }
        let marked = host.links.iter().filter(|link| alias::is_marked(link));
        let known = view.networks.iter().flat_map(|network| &network.attachments).flat_map(|it| &it.links);
        let own_links = marked.map(|link| &*link.name).chain(known.map(|link| &*link.name)).collect();
        let listeners = netops::listening_sockets::list().unwrap_or_else(|error| {
            unseen.push(format!("listening sockets of the node: {error}"));
            Vec::new()
        });
        let filters_bridges = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"]
            .map(|key| sysctl::Key::new(&["bridge", key]).and_then(|key| sysctl::find(&key)))
            .map(|value| value.ok().flatten().is_some_and(|value| value != "0"));
        let ports = Ports::of(view, &listeners);
        let (mut holders, mut macs): (BTreeMap<_, Vec<_>>, BTreeMap<_, Vec<_>>) = Default::default();
        for network in &view.networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                if let Some(mac) = host_links::mac_of(attachment) {
                    macs.entry(mac).or_default().push((network, attachment));
                }
                // A reservation alone is no holder: whose address it is, its network's store says.
                let is_seen =
                    !attachment.netns.is_empty() || !attachment.links.is_empty() || !attachment.rules.is_empty();
                for address in attachment.addresses.iter().filter(|_| is_seen) {
                    holders.entry(*address).or_default().push((network, attachment));
                }
            }
        }
        Self {
            host,
            gates,
            translating,
            routes,
            refusing,
            own_links,
            ports,
            view,
            holders,
            macs,
            filters_bridges,
            settings: RefCell::default(),
            unseen,
        }
    }

    /// An ADD that was cut off leaves an attachment that nothing holds for. One that may be under way has no remedy.
    fn unfinished(&self, network: &Network, attachment: &Attachment) -> Reason {
        let age = attachment.since.and_then(|since| self.view.at.duration_since(since).ok());
        let is_over = age.is_some_and(|age| age > ADD_MAX);
        let remedy = is_over.then(|| removal(&network.name, &attachment.id, &attachment.netns));
        Reason::new(Cause::Unfinished, Level::Warning, "its ADD was not finished").mended_by(remedy)
    }

    /// The reasons of one attachment, and what carries its packets.
    pub(crate) fn of(&self, network: &Network, attachment: &Attachment) -> Findings {
        let mut findings = Findings::default();
        if attachment.life == Life::Gone {
            let why = "no container was found that uses it: packets to it have no receiver";
            findings.reasons.push(Reason::new(Cause::Gone, Level::Warning, why));
            return findings;
        }
        if attachment.is_complete == Some(false) {
            findings.reasons.push(self.unfinished(network, attachment));
            return findings;
        }
        let carrier = Carrier::of(self.host, network, attachment);
        self.ports_of(attachment, &mut findings);
        self.routes_of(network, attachment, &carrier, &mut findings);
        self.links_of(network, attachment, &carrier, &mut findings);
        self.inside(network, attachment, &carrier, &mut findings);
        if carrier.is_routed() {
            self.neighbours(attachment, &carrier, &mut findings);
        }
        if network.is_read {
            self.masquerade(network, attachment, &mut findings);
        }
        for family in Family::BOTH {
            // A network of links alone may have addresses that only its containers know.
            let is_of_links = attachment.addresses.is_empty() && matches!(carrier, Carrier::Switched(_));
            if is_of_links || attachment.addresses.iter().any(|address| Family::from(*address) == family) {
                if carrier.is_routed() && family == Family::V4 {
                    self.localnet(attachment, &carrier, &mut findings);
                    self.other_ways_in(attachment, &mut findings);
                }
                if carrier.is_routed() {
                    self.forwarding(family, attachment, &carrier, &mut findings);
                    self.way_out(family, attachment, &carrier, &mut findings);
                }
                self.filtered(family, attachment, &carrier, &mut findings);
            }
        }
        self.duplicates(network, attachment, &carrier, &mut findings);
        self.same_mac(attachment, &carrier, &mut findings);
        findings
    }
}
