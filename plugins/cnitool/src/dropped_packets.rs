//! Why packets of an attachment are dropped, or may be: the one home of these reasons. [`crate::explain`] tells those of one
//! attachment; `doctor` gathers those of all that live.
//!
//! What all attachments share is read once. Of each attachment, the kernel is asked for the routes to its addresses, and for
//! its interface and route out in its namespace: no table is dumped for one.

mod container_interface;
mod container_routes;
mod default_route;
mod dropping_rules;
mod forwarded_ports;
pub(crate) mod gateways;
pub(crate) mod host_links;
pub(crate) mod host_routes;
mod mtu;
mod packet_answers;
mod packet_reasons;
mod real_packets;
mod real_traffic;
mod routing;
mod rows;
mod same_addresses;
pub(crate) mod way_to_container;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

pub use crate::validate::Level;
use interface::alias;
use libcni::AttachmentId;
use libcni::inventory::Life;
use netops::Family;
use netops::link::Link;
use netops::nft::Nft;
use netops::route::{self, MAIN_TABLE, Route};

use crate::doctor::{Finding, Kind, Unread, removal};
use crate::node_networks::host_objects::Host;
use crate::node_networks::{Attachment, Found as FoundNetworks, Network, Node, View, look_by};
use container_interface::Looked;
use forwarded_ports::Ports;
pub(crate) use host_routes::is_global;
pub(crate) use packet_answers::{Answers, Asked};
use rows::At;

/// Why packets of an attachment are dropped, or may be. An error: they are. A warning: some may be. A note: it matters to some uses only.
/// What it says fits all attachments with the reason; a line of evidence is about this one. `Leftover` and `Undecided` are findings of
/// other modules.
pub type Reason = Finding;

/// A reason with the attachment that it is about.
#[derive(Debug, Clone)]
pub struct Found<'a> {
    pub network: &'a Network,
    pub attachment: &'a Attachment,
    pub reason: Reason,
}

#[derive(Debug)]
pub struct Reasons<'a> {
    pub found: Vec<Found<'a>>,
    /// The objects that could not be looked at, with the error.
    pub unseen: Vec<Unread>,
    /// Tables and rules that may drop packets, where not all of the packets that were sent have passed them.
    pub unexamined: Vec<String>,
    /// What real packets did not ask, and rules that did not drop them, but may drop others.
    pub beyond: Vec<String>,
}

/// The findings about one attachment.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) reasons: Vec<Reason>,
    /// The hops of packets to the attachment, in their order.
    pub(crate) to: Vec<String>,
    /// The hops of packets from the attachment, in their order.
    pub(crate) from: Vec<String>,
    pub(crate) unseen: Vec<Unread>,
}

/// A view of the node, with what the reasons need of it besides.
#[derive(Debug)]
pub struct Survey {
    pub view: View,
    pub(crate) found: FoundNetworks,
    host: Host,
    search_path: String,
}

impl Survey {
    #[must_use]
    pub fn look(node: Node<'_>) -> Self {
        Self::look_at(node, None)
    }

    pub(crate) fn look_at(node: Node<'_>, only: Option<&str>) -> Self {
        let mut unseen = Vec::new();
        let search_path = node.inventory.search_path.clone();
        let host = Host::look(&search_path, &mut unseen);
        let found = FoundNetworks::look(node, only);
        Self { view: look_by(node, &host, &found, only, unseen), found, host, search_path }
    }

    pub(crate) fn sight(&self) -> Sight<'_> {
        let Self { host, search_path, view, .. } = self;
        let mut unseen: Vec<Unread> = host.unread_forwards.iter().chain(&host.unread_links).cloned().collect();
        let (mut routes, mut refusing, mut ways_out) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (family, kernel) in Family::BOTH.into_iter().zip(host.kernel.iter().cycle()) {
            let listed = route::list_table(kernel, MAIN_TABLE, family);
            let (unicast, refused) =
                listed.map_err(|error| unseen.push(Unread::new("the node's routes", &error))).unwrap_or_default();
            routes.extend(unicast);
            refusing.extend(refused);
            let out = route::lookup(kernel, host_routes::outside(family)).ok();
            ways_out.extend(out.map(|way| (family == Family::V4, way)));
        }
        let marked = host.links.iter().filter(|link| alias::is_marked(link));
        let known = view.networks.iter().flat_map(|network| &network.attachments).flat_map(|it| &it.links);
        let own_links = marked.map(|link| &*link.name).chain(known.map(|link| &*link.name)).collect();
        let listeners = netops::listening_sockets::list().unwrap_or_else(|error| {
            unseen.push(Unread::new("listening sockets of the node", &error));
            Vec::new()
        });
        let ports = Ports::of(view, &listeners);
        let (mut holders, mut macs): (BTreeMap<_, Vec<_>>, BTreeMap<_, Vec<_>>) = Default::default();
        for network in &view.networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                if let Some(mac) = mac_of(attachment) {
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
        Sight {
            host,
            search_path,
            routes,
            refusing,
            ways_out,
            own_links,
            ports,
            view,
            holders,
            macs,
            settings: RefCell::default(),
            unseen,
        }
    }
}

/// Whether the node forwards packets of living containers of a network.
fn forwards(network: &Network) -> bool {
    let is_it = |kind: &String| ["bridge", "ptp"].contains(&on_node::plugin_of(kind));
    network.plugins.iter().any(is_it) && network.attachments.iter().any(|it| it.life == Life::Lives)
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
    let found = survey.sight().reasons().found;
    let mut gathered: BTreeMap<(String, String), Vec<(AttachmentId, String)>> = BTreeMap::new();
    for Found { network, attachment, reason } in found {
        if reason.level == Level::Error {
            let why = (attachment.id.clone(), reason.why());
            gathered.entry((network.name.clone(), reason.what)).or_default().push(why);
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
    pub(crate) host: &'a Host,
    /// Where programs are looked for.
    search_path: &'a str,
    /// The routes of the main table.
    pub(crate) routes: Vec<Route>,
    /// The node's ends of containers' links.
    own_links: BTreeSet<&'a str>,
    /// The routes of the main table that refuse packets: kind and destination.
    pub(crate) refusing: Vec<route::Refusing>,
    /// The node's route to other networks, by family.
    ways_out: BTreeMap<bool, Route>,
    ports: Ports<'a>,
    pub(crate) view: &'a View,
    holders: BTreeMap<IpAddr, Vec<(&'a Network, &'a Attachment)>>,
    /// The living attachments by the Ethernet address of their interface.
    macs: BTreeMap<&'a str, Vec<(&'a Network, &'a Attachment)>>,
    /// Settings of the kernel that attachments share, by path.
    settings: RefCell<BTreeMap<String, Option<String>>>,
    pub(crate) unseen: Vec<Unread>,
}

impl<'a> Sight<'a> {
    /// The reasons of all attachments that live, as the node's settings and rules read.
    pub(crate) fn reasons(&self) -> Reasons<'a> {
        let (mut found, mut unseen, mut unexamined) = (Vec::new(), self.unseen.clone(), self.refusing_rules());
        let networks = &self.view.networks;
        for network in networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                let findings = self.of(network, attachment);
                // Attachments of a runtime with another cache have no path here.
                if !attachment.netns.is_empty() {
                    unseen.extend(findings.unseen);
                }
                found.extend(findings.reasons.into_iter().map(|reason| Found { network, attachment, reason }));
            }
        }
        if networks.iter().any(forwards) {
            unexamined.extend(cni_filter::iptables::unread_tables());
            let mut open = Nft::open("the host").ok();
            unexamined.extend(open.iter_mut().flat_map(cni_filter::rule_words::that_may_drop));
        }
        unseen.sort();
        unseen.dedup();
        unexamined.sort();
        unexamined.dedup();
        Reasons { found, unseen, unexamined, beyond: Vec::new() }
    }

    /// The reasons of all attachments that live, with what real packets of some showed.
    pub(crate) fn proven_reasons(&self) -> Reasons<'a> {
        let mut reasons = self.reasons();
        let Answers { asked, skipped } = self.prove(&mut reasons.found, None);
        let is_asked = |network: &Network| asked.iter().any(|it| it.network.name == network.name);
        if asked.iter().all(Asked::lives) && self.view.networks.iter().filter(|it| forwards(it)).all(is_asked) {
            reasons.unexamined.clear();
        }
        reasons.beyond.extend(skipped);
        reasons
    }

    pub(crate) fn attachments(&self) -> impl Iterator<Item = &'a Attachment> + Clone {
        self.view.networks.iter().flat_map(|network| &network.attachments)
    }

    fn ports_of(&self, bridge: &Link) -> impl Iterator<Item = (&'a Attachment, &'a Link)> + Clone {
        let (host, index) = (self.host, bridge.index);
        let ends = self.attachments().flat_map(|it| it.links.iter().map(move |link| (it, link)));
        let found = ends.filter_map(move |(it, link)| Some((it, host.find(&link.name)?)));
        found.filter(move |(_, link)| link.master == Some(index))
    }

    /// The node's route to other networks.
    fn out(&self, family: Family) -> Option<&Route> {
        self.ways_out.get(&(family == Family::V4))
    }

    /// Whether a guest, such as a virtual machine, has the addresses of an attachment, which CHECK misses then.
    pub(crate) fn has_guest(&self, attachment: &libcni::RuntimeConf) -> bool {
        let Ok(netns) = netops::Netns::open(attachment.netns.as_str()) else { return false };
        let Ok(kernel) = netops::Kernel::in_netns(&netns) else { return false };
        let link = netops::link::find(&kernel, attachment.id.ifname.as_str()).ok().flatten();
        link.is_some_and(|link| container_interface::find_guest(&kernel, &link).is_some())
    }

    /// An ADD that was cut off leaves an attachment that nothing holds for. One that may be under way has no remedy.
    fn unfinished(&self, network: &Network, attachment: &Attachment) -> Reason {
        let age = attachment.since.and_then(|since| self.view.at.duration_since(since).ok());
        let is_over = age.is_some_and(|age| age > ADD_MAX);
        let kind = if is_over { Kind::ContainerSide } else { Kind::Undecided };
        let remedy = is_over.then(|| removal(&network.name, &attachment.id, &attachment.netns));
        kind.finding(Level::Warning, None, "its ADD was not finished").steps(remedy)
    }

    /// The reasons of one attachment, and what carries its packets.
    pub(crate) fn of(&self, network: &Network, attachment: &Attachment) -> Findings {
        let only = |reason| Findings { reasons: vec![reason], ..Findings::default() };
        if attachment.life == Life::Gone {
            let why = "no container was found that uses it: packets to it have no receiver";
            return only(Kind::Leftover.finding(Level::Warning, None, why));
        }
        if attachment.is_complete == Some(false) {
            return only(self.unfinished(network, attachment));
        }
        let at = At::new(self, network, attachment);
        let (to, unknown) = at.hops();
        let mut unseen: Vec<Unread> = unknown.into_iter().collect();
        if let Looked::Unseen(why) = &at.looked {
            unseen.push(why.clone());
        }
        let mut reasons: Vec<Reason> = Vec::new();
        for reason in rows::ROWS.into_iter().flatten().flat_map(|row| row.reasons(&at)).chain(at.ways_out()) {
            // Both families may lead out by one link.
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Findings { reasons, to, from: at.hops_from(), unseen }
    }
}

/// The Ethernet address of the container's interface, by the result of ADD.
fn mac_of(attachment: &Attachment) -> Option<&str> {
    let is_own = |link: &&libcni::cni_spec::Interface| {
        !link.sandbox.is_empty() && link.name == attachment.id.ifname.as_str() && !link.mac.is_empty()
    };
    attachment.result.interfaces.iter().find(is_own).map(|link| link.mac.as_str())
}
