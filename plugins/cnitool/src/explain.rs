//! `cnitool explain`: the owner of an address, a container, an interface or a port, and what becomes of its packets.

use std::cell::Cell;
use std::net::IpAddr;

use cni_suite::text::visible;
use libcni::{AttachmentId, Cancellation};
use netops::route;
use serde_json::{Value, json};

use crate::dropped_packets::{Answers, Asked, Findings, Found, Sight, Survey};
use crate::error_remedies::{is_told_to_be_root, refused};
use crate::node_networks::{Attachment, Maker, Network, Node, Origin, Protocol, View, leads_to, word};
use crate::output::{Output, count, escaped, say};
use crate::settings::Settings;
use crate::settings::container_id_and_netns::one_of;
use crate::tree_text::print;
use crate::tree_text::{Branch, Tone};
use libcni::cni_spec::Code;
use libcni::cni_spec::json::resembling;
use on_node::pod_names::PodName;

/// Objects that are never examined.
pub const BEYOND: [&str; 4] = [
    "tables raw and mangle of legacy iptables, eBPF programs, limits and filters of tc",
    "rules of routing for marks, and other tables of routes",
    "IPsec policies, chains of nft for ARP, translations in nft, and those of what containers send",
    "other machines with a container's address, what is beyond the node, and what the container itself filters",
];

#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// The object found, in a sentence.
    pub what: String,
    /// The attachment that has it, with its network's name.
    pub attachment: Option<(String, Attachment)>,
    pub conf: Option<String>,
    /// The hops of packets to the attachment, in their order.
    pub to: Vec<String>,
    /// The hops of packets from the attachment, in their order.
    pub from: Vec<String>,
    /// What became of packets that were sent to ask.
    pub packets: Vec<String>,
    /// Why packets are dropped, or may be.
    pub drops: Vec<String>,
    /// The objects that were not examined.
    pub unseen: Vec<String>,
}

/// Explains a network, an address, a container (its pod's name, its ID, or how that begins), a link of the node, or a port of the node.
/// Everything that the word can mean is an answer; none: nothing on the node has that name. The view is that which
/// [`crate::node_networks::look`] gives.
#[must_use]
pub fn explain(node: Node<'_>, word: &str) -> (Vec<Explanation>, View) {
    let survey = Survey::look(node);
    let sight = survey.sight();
    // As files and results write it: an address with its prefix length.
    let bare =
        word.split_once('/').filter(|(_, length)| length.parse::<u8>().is_ok()).map_or(word, |(address, _)| address);
    let mut answers = match bare.parse::<IpAddr>() {
        Ok(address) => sight.of_address(address),
        Err(_) => sight.of_name(word),
    };
    let (port, protocol) = word.split_once('/').map_or((word, None), |(port, protocol)| (port, Some(protocol)));
    if let Ok(port) = port.parse::<u16>() {
        answers.extend(sight.of_port(port, protocol));
    }
    (answers, survey.view)
}

pub(crate) fn run(settings: &Settings, name: &str, output: Output) -> anyhow::Result<()> {
    let (answers, view) = explain(settings.node(), name);
    // Everything that the word means is an answer, but of containers with one name the caller chooses one.
    if answers.iter().all(|answer| answer.attachment.is_some()) && name.parse::<u16>().is_err() {
        one_of(&view.names, name)?;
    }
    for what in view.unseen.iter().filter(|_| !is_told_to_be_root()) {
        tracing::warn!("could not be looked at: {what}");
    }
    if answers.is_empty() {
        let msg = format!(
            "nothing on this node is called {name}: no network, address, pod, container, link or forwarded port"
        );
        let help = format!("{}cnitool show lists what there is.", similar(settings, name));
        return Err(refused(Code::INVALID_ENVIRONMENT, msg, help));
    }
    if output.is_json {
        return output.json(&answers.iter().map(Explanation::json).collect());
    }
    print(&answers.iter().map(Explanation::tree).collect::<Vec<_>>())
}

/// Prints real packets of a container, a line each, as many or until the caller ends it.
pub(crate) fn trace(
    settings: &Settings,
    name: &str,
    most: u32,
    output: Output,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let survey = Survey::look(settings.node());
    let id = match one_of(&survey.view.names, name)? {
        Some(id) => id,
        None => {
            let msg = format!("no pod or container on this node is called {name}");
            return Err(refused(Code::INVALID_ENVIRONMENT, msg, similar(settings, name)));
        }
    };
    let all = survey.view.networks.iter().flat_map(|network| &network.attachments);
    let own = all.filter(|it| it.id.container_id == id).flat_map(|it| &it.addresses);
    let addresses: Vec<IpAddr> = own.filter(|address| !address.is_loopback()).copied().collect();
    let told = Cell::new(0);
    let is_done = || most > 0 && told.get() >= most || cancellation.is_cancelled();
    survey.follow(&addresses, is_done, |packet| {
        told.set(told.get() + 1);
        let line = if output.is_json { escaped(&packet.json().to_string()) } else { visible(&packet.to_string()) };
        say(format!("{line}\n").as_bytes())
    })
}

impl<'a> Sight<'a> {
    /// Whether a word names an attachment: by its container, or by container and interface.
    fn is_named(&self, attachment: &Attachment, word: &str) -> bool {
        let AttachmentId { container_id, ifname } = &attachment.id;
        let is_container = |word: &str| self.view.names.find(word).contains(&container_id);
        is_container(word)
            || word.rsplit_once('/').is_some_and(|(of, name)| name == ifname.as_str() && is_container(of))
    }

    fn of_networks(&self) -> impl Iterator<Item = (&'a Network, &'a Attachment)> + use<'a> {
        let view = self.view;
        view.networks.iter().flat_map(|network| network.attachments.iter().map(move |it| (network, it)))
    }

    fn of_address(&self, address: IpAddr) -> Vec<Explanation> {
        let holders = self.of_networks().filter(|(_, attachment)| attachment.addresses.contains(&address));
        let mut answers: Vec<Explanation> = holders
            .map(|(network, attachment)| self.of_attachment(format!("{address} is an address of"), network, attachment))
            .collect();
        for network in &self.view.networks {
            let of = format!("network {}", network.name);
            if network.by_hand.contains(&address) {
                answers.push(Explanation::only(format!("{address} is reserved by hand in {of}: no container gets it")));
            }
            if network.unreadable.contains(&address) {
                answers.push(Explanation::only(format!("{address} is reserved in {of}, and its owner is unknown")));
            }
            let range = network.ranges.iter().find(|range| range.first <= address && address <= range.last);
            if let Some(range) = range.filter(|_| answers.is_empty() && self.host.owner(address).is_none()) {
                let (first, last) = (range.first, range.last);
                answers.push(Explanation::only(format!(
                    "{address} is in range {first} - {last} of {of}, and nothing holds it"
                )));
            }
        }
        if let Some(link) = self.host.owner(address) {
            answers.push(Explanation::only(format!("{address} is an address of the node, on link {}", link.name)));
        }
        if answers.is_empty() {
            let mut answer = Explanation::only(format!("{address} belongs to no network of this node"));
            self.route_to(address, &mut answer);
            answers.push(answer);
        }
        answers
    }

    fn of_name(&self, name: &str) -> Vec<Explanation> {
        let mut answers = Vec::new();
        for (network, attachment) in self.of_networks() {
            if let Some(link) = attachment.links.iter().find(|link| link.name == name) {
                answers.push(self.of_attachment(format!("{} is the host's end of", link.name), network, attachment));
            } else if self.is_named(attachment, name) {
                answers.push(self.of_attachment(format!("{name} is"), network, attachment));
            } else if [name, &format!("/run/netns/{name}")].contains(&attachment.netns.as_str()) {
                answers.push(self.of_attachment(
                    format!("{} is the namespace of", attachment.netns),
                    network,
                    attachment,
                ));
            }
        }
        for network in &self.view.networks {
            if network.name == name && answers.is_empty() {
                let (plugins, count) = (network.plugins.join(", "), count(network.attachments.len(), "attachment"));
                let from = network.origin_text();
                let what = format!("{name} is a network of {plugins}, with {count} ({from}): see cnitool show {name}");
                answers.push(Explanation::only(what));
            }
            if let Some(link) = network.links.iter().find(|link| link.name == name) {
                let kind = if link.kind.is_empty() { "link" } else { &link.kind };
                let own = network.attachments.iter().flat_map(|it| &it.links);
                let own = own.filter(|own| own.master.as_deref() == Some(name)).count();
                let what = format!("{name} is a {kind} of network {}, and has {own} of its attachments", network.name);
                answers.push(Explanation::only(what));
            }
        }
        if let Some(link) = self.host.find(name).filter(|_| answers.is_empty()) {
            let state = if link.up { "up" } else { "down" };
            let addresses: Vec<String> = self.host.addresses_of(name).iter().map(ToString::to_string).collect();
            let with = if addresses.is_empty() { "without addresses".to_owned() } else { addresses.join(", ") };
            let what = format!("{name} is a link of the node, {state}, {with}: no network of this node has it");
            answers.push(Explanation::only(what));
        }
        answers
    }

    /// The first rule of a port gets its packets. Without a protocol, of all.
    fn of_port(&self, port: u16, protocol: Option<&str>) -> Vec<Explanation> {
        let is_it = |of: Protocol| protocol.is_none_or(|protocol| protocol == of.name());
        let rules = self.host.forwards.iter().filter(|forward| forward.port == port && is_it(forward.protocol));
        let mut answers = Vec::new();
        for (place, forward) in rules.clone().enumerate() {
            let is_before = |earlier: &&crate::node_networks::Forward| {
                !earlier.is_conditional
                    && earlier.protocol == forward.protocol
                    && earlier.to.is_ipv4() == forward.to.is_ipv4()
                    && earlier.address.is_none_or(|address| forward.address == Some(address))
            };
            let before = rules.clone().take(place).find(is_before);
            let of = format!("port {port}/{} of the node is forwarded to {},", forward.protocol.name(), forward.to);
            let by_address = || self.of_networks().filter(|(_, it)| leads_to(&it.addresses, forward.to));
            let by_rule = by_address().find(|(_, attachment)| attachment.ports.contains(forward));
            let holder = by_rule.or_else(|| by_address().next());
            let mut answer = match holder {
                Some((network, attachment)) => self.of_attachment(format!("{of} which is"), network, attachment),
                None => {
                    let mut answer = Explanation::only(format!("{of} which no attachment has"));
                    answer.drops.push(format!("no container has {}", forward.to.ip()));
                    answer
                }
            };
            if let Some(before) = before {
                answer.drops.insert(0, format!("an earlier rule forwards the port to {}", before.to));
            }
            answers.push(answer);
        }
        if answers.is_empty() {
            for (network, attachment) in self.of_networks() {
                for asked in attachment.asked.iter().filter(|asked| asked.port == port && is_it(asked.protocol)) {
                    answers.push(self.of_attachment(
                        format!("{} of the node was asked for by", asked.name()),
                        network,
                        attachment,
                    ));
                }
            }
        }
        answers
    }

    fn of_attachment(&self, what: String, network: &'a Network, attachment: &'a Attachment) -> Explanation {
        let what = format!("{what} {} in network {}", attachment.full_name(), network.name);
        let conf = match (&network.origin, &attachment.conf) {
            (Origin::File(path), Some(_)) => format!("of ADD, in the cache; the network's file is {}", path.display()),
            (Origin::File(path), None) => path.display().to_string(),
            (_, Some(_)) => match self.view.broken.as_slice() {
                [] => "in the cache; its file is gone".to_owned(),
                [broken, ..] => {
                    format!("in the cache; its file is gone, or is {}, which cannot be read", broken.display())
                }
            },
            (_, None) => "unknown".to_owned(),
        };
        let attached = Some((network.name.clone(), attachment.clone()));
        let Findings { reasons, to, from, unseen, .. } = self.of(network, attachment);
        let mut unseen: Vec<String> = unseen.iter().chain(&self.unseen).map(ToString::to_string).collect();
        unseen.extend(BEYOND.map(str::to_owned));
        let of = |reason| Found { network, attachment, reason };
        let mut found: Vec<Found<'_>> = reasons.into_iter().map(of).collect();
        let Answers { asked, skipped } = self.prove(&mut found, Some(attachment));
        unseen.extend(skipped);
        let packets = asked.iter().flat_map(Asked::lines).collect();
        let drops = found.into_iter().map(|found| found.reason.why()).collect();
        Explanation { what, attachment: attached, conf: Some(conf), to, from, packets, drops, unseen }
    }

    /// The node's route to an address that no attachment has.
    fn route_to(&self, address: IpAddr, answer: &mut Explanation) {
        let Some(kernel) = &self.host.kernel else { return };
        match route::lookup(kernel, address) {
            Ok(found) => {
                let link = found.link.and_then(|index| self.host.at(index));
                let link = link.map_or("an unknown link", |link| link.name.as_str());
                let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
                answer.to.push(format!("the node's route to {address} leads{via} to {link}"));
            }
            Err(error) => answer.drops.push(format!("the node has no route to {address}: {error}")),
        }
    }
}

impl Explanation {
    fn only(what: String) -> Self {
        Self { what, ..Self::default() }
    }

    #[must_use]
    pub fn tree(&self) -> Branch {
        let list = |title: &str, tone: Tone, items: &[String]| {
            let below = items.iter().map(Branch::plain);
            (!items.is_empty()).then(|| Branch::new(tone, title).with(below))
        };
        let mut below = Vec::new();
        if let Some((_, attachment)) = &self.attachment {
            below.push(Branch::plain(format!("container {}", attachment.id.container_id)));
            if !attachment.netns.is_empty() {
                below.push(Branch::plain(format!("namespace {}", attachment.netns)));
            }
            let since = attachment.since.map(|since| humantime::format_rfc3339_seconds(since).to_string());
            let since = since.map_or("since when is unknown".to_owned(), |since| format!("since {since}"));
            below.push(Branch::plain(format!("{}, {since}", word(attachment.life))));
            let maker = match attachment.maker {
                Maker::ThisSuite => "made by this suite",
                Maker::Reference => "made by the reference or another plugin",
                Maker::Unknown => "maker unknown",
            };
            below.push(Branch::plain(maker));
        }
        below.extend(self.conf.iter().map(|conf| Branch::plain(format!("configuration {conf}"))));
        below.extend(list("packets to it", Tone::Name, &self.to));
        below.extend(list("packets from it", Tone::Name, &self.from));
        below.extend(list("packets that were sent to ask", Tone::Name, &self.packets));
        below.extend(list("why packets are dropped", Tone::Bad, &self.drops));
        if self.attachment.is_some() && self.drops.is_empty() {
            below.push(Branch::new(Tone::Good, "nothing that was looked at drops its packets"));
        }
        below.extend(list("not looked at", Tone::Faint, &self.unseen));
        Branch::new(Tone::Plain, &self.what).with(below)
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let (network, attachment) =
            self.attachment.as_ref().map(|(network, it)| (network, crate::show::json::attachment(it))).unzip();
        json!({"what": self.what, "network": network, "attachment": attachment, "configuration": self.conf,
            "to": self.to, "from": self.from, "packets": self.packets, "drops": self.drops, "unseen": self.unseen})
    }
}

/// A question about the pod or container that was most likely meant.
pub(crate) fn similar(settings: &Settings, word: &str) -> String {
    let listing = settings.runtime.cache().list(None).unwrap_or_default();
    let names: Vec<String> = listing
        .cached
        .iter()
        .flat_map(|cached| {
            let pod = PodName::find(&cached.attachment.args);
            let of_pod = pod.into_iter().flat_map(|pod| [pod.full_name(), pod.name.to_string()]);
            of_pod.chain([cached.attachment.id.container_id.to_string()]).collect::<Vec<_>>()
        })
        .collect();
    let meant = resembling(word, names.iter().map(String::as_str));
    meant.map(|meant| format!("Did you mean {meant}? ")).unwrap_or_default()
}
