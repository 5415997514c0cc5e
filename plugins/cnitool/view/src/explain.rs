//! The owner of an address, a container, an interface or a port, and what becomes of its packets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni_filter::iptables::rule::{Is, Rule, Target};
use cni_filter::iptables::seen::{self, Chain};
use libcni::NetworkConf;
use libcni::inventory::Life;
use netops::link::{self, Link};
use netops::nft::Family;
use netops::{Kernel, Netns, addr, route, sysctl};
use serde_json::{Value, json};

use crate::host::Host;
use crate::tree::{Branch, Tone};
use crate::{Attachment, Maker, Network, Node, Origin, View, leads_to, look, word};

/// Addresses that no network has, so the route to them is the way out: RFC 5737, RFC 3849.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Objects that are never examined.
const BEYOND: [&str; 3] = [
    "other tables of iptables and nf_tables, eBPF programs, and neighbours",
    "rules of routing (ip rule), and routes of other tables",
    "what is beyond the node, and what the container itself filters",
];

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The object found, in a sentence.
    pub what: String,
    /// The attachment that has it, with its network's name.
    pub attachment: Option<(String, Attachment)>,
    /// The place of the configuration.
    pub conf: Option<String>,
    /// What carries packets to it, in their order.
    pub to: Vec<String>,
    /// What carries packets from it, in their order.
    pub from: Vec<String>,
    /// Why packets are dropped, or may be.
    pub drops: Vec<String>,
    /// The objects that were not examined.
    pub unseen: Vec<String>,
}

/// Explains an address, a container (its ID, or how it begins), an interface of the host, or a port of the node.
/// Everything that the word can mean is an answer; none: nothing on the node has that name. The view is that which
/// [`look`] gives.
#[must_use]
pub fn explain(node: Node<'_>, word: &str) -> (Vec<Answer>, View) {
    let view = look(node, None);
    let mut unseen = Vec::new();
    let host = Host::look(&node.inventory.search_path, &mut unseen);
    let path = Path { host: &host, search_path: &node.inventory.search_path, view: &view };
    let mut answers = match word.parse::<IpAddr>() {
        Ok(address) => path.of_address(address),
        Err(_) => path.of_name(word),
    };
    if let Ok(port) = word.parse::<u16>() {
        answers.extend(path.of_port(port));
    }
    (answers, view)
}

struct Path<'a> {
    host: &'a Host,
    search_path: &'a str,
    view: &'a View,
}

impl Path<'_> {
    fn attachments(&self) -> impl Iterator<Item = (&Network, &Attachment)> {
        self.view.networks.iter().flat_map(|network| network.attachments.iter().map(move |it| (network, it)))
    }

    fn of_address(&self, address: IpAddr) -> Vec<Answer> {
        let holders = self.attachments().filter(|(_, attachment)| attachment.addresses.contains(&address));
        let mut answers: Vec<Answer> = holders
            .map(|(network, attachment)| self.of_attachment(format!("{address} is an address of"), network, attachment))
            .collect();
        for network in &self.view.networks {
            let of = format!("network {}", network.name);
            if network.by_hand.contains(&address) {
                answers.push(Answer::only(format!("{address} is held by hand in {of}: no container gets it")));
            }
            if network.unreadable.contains(&address) {
                answers.push(Answer::only(format!("{address} is reserved in {of}, and its owner is unknown")));
            }
            let range = network.ranges.iter().find(|range| range.first <= address && address <= range.last);
            if let Some(range) = range.filter(|_| answers.is_empty() && self.host.owner(address).is_none()) {
                let (first, last) = (range.first, range.last);
                answers.push(Answer::only(format!(
                    "{address} is in range {first} - {last} of {of}, and nothing holds it"
                )));
            }
        }
        if let Some(link) = self.host.owner(address) {
            answers.push(Answer::only(format!("{address} is an address of the node, on link {}", link.name)));
        }
        if answers.is_empty() {
            let mut answer = Answer::only(format!("{address} belongs to no network of this node"));
            self.route_to(address, None, &mut answer);
            answers.push(answer);
        }
        answers
    }

    fn of_name(&self, name: &str) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (network, attachment) in self.attachments() {
            let id = &attachment.id;
            let whole = format!("{}/{}", id.container_id, id.ifname);
            if let Some(link) = attachment.links.iter().find(|link| link.name == name) {
                answers.push(self.of_attachment(format!("{} is the host's end of", link.name), network, attachment));
            } else if name == whole || id.container_id.as_str().starts_with(name) && !name.is_empty() {
                answers.push(self.of_attachment(format!("{name} is"), network, attachment));
            }
        }
        for network in &self.view.networks {
            if let Some(link) = network.links.iter().find(|link| link.name == name) {
                let kind = if link.kind.is_empty() { "link" } else { &link.kind };
                let own = network.attachments.iter().flat_map(|it| &it.links);
                let own = own.filter(|own| own.master.as_deref() == Some(name)).count();
                let what = format!("{name} is a {kind} of network {}, and has {own} of its attachments", network.name);
                answers.push(Answer::only(what));
            }
        }
        answers
    }

    /// The first rule of a port gets its packets.
    fn of_port(&self, port: u16) -> Vec<Answer> {
        let rules = self.host.forwards.iter().filter(|forward| forward.port == port);
        let mut answers = Vec::new();
        for (place, forward) in rules.clone().enumerate() {
            let is_before = |earlier: &&crate::Forward| {
                !earlier.is_conditional
                    && earlier.protocol == forward.protocol
                    && earlier.to.is_ipv4() == forward.to.is_ipv4()
                    && earlier.address.is_none_or(|address| forward.address == Some(address))
            };
            let before = rules.clone().take(place).find(is_before);
            let of = format!("port {port}/{} of the node is forwarded to {},", forward.protocol.name(), forward.to);
            let holder = self.attachments().find(|(_, attachment)| leads_to(&attachment.addresses, forward.to));
            let mut answer = match holder {
                Some((network, attachment)) => self.of_attachment(format!("{of} which is"), network, attachment),
                None => {
                    let mut answer = Answer::only(format!("{of} which no attachment has"));
                    answer.drops.push(format!("no container has {}", forward.to.ip()));
                    answer
                }
            };
            if let Some(before) = before {
                answer.drops.insert(0, format!("an earlier rule forwards the port to {}", before.to));
            }
            answers.push(answer);
        }
        answers
    }

    fn of_attachment(&self, what: String, network: &Network, attachment: &Attachment) -> Answer {
        let id = &attachment.id;
        let what = format!("{what} {}/{} in network {}", id.container_id, id.ifname, network.name);
        let conf = match (&network.origin, &attachment.conf) {
            (Origin::File(path), Some(_)) => format!("{}, as it was at ADD (in the cache)", path.display()),
            (Origin::File(path), None) => path.display().to_string(),
            (_, Some(_)) => "in the cache; its file is gone".to_owned(),
            (_, None) => "unknown".to_owned(),
        };
        let attached = Some((network.name.clone(), attachment.clone()));
        let mut answer = Answer { what, attachment: attached, conf: Some(conf), ..Answer::default() };
        if attachment.life == Life::Gone {
            answer.drops.push("no container was found that uses it: packets to it have no receiver".to_owned());
        }
        if attachment.is_complete == Some(false) {
            answer.drops.push("its ADD was not finished".to_owned());
        }
        for forward in &attachment.ports {
            answer.to.push(format!("{} is forwarded to {}", forward.host_port(), forward.to));
        }
        for address in &attachment.addresses {
            self.route_to(*address, Some(attachment), &mut answer);
        }
        for link in &attachment.links {
            answer.to.push(format!("link {} leads into the container", link.name));
            let names = [Some(&link.name), link.master.as_ref()].into_iter().flatten();
            let down = names.filter_map(|name| self.host.find(name)).filter(|link| !link.up);
            answer.drops.extend(down.map(|link| format!("link {} is down", link.name)));
        }
        self.inside(attachment, &mut answer);
        answer.from.extend(attachment.rules.iter().cloned());
        if attachment.conf.as_ref().is_some_and(wants_masquerade)
            && !attachment.rules.iter().any(|rule| rule.contains("masquerade"))
        {
            answer.drops.push(
                "the network has ipMasq, and no rule masquerades its packets: no answer from outside finds the way back"
                    .to_owned(),
            );
        }
        for is_ipv6 in [false, true] {
            if attachment.addresses.iter().any(|address| address.is_ipv6() == is_ipv6) {
                self.forwarding(is_ipv6, &mut answer);
                self.way_out(is_ipv6, &mut answer);
                self.filtered(is_ipv6, attachment, &mut answer);
            }
        }
        answer.unseen.extend(BEYOND.map(str::to_owned));
        answer
    }

    /// The node's route to an address, which has to lead to the attachment's link or to the bridge that it is a port of.
    fn route_to(&self, address: IpAddr, attachment: Option<&Attachment>, answer: &mut Answer) {
        let Some(kernel) = &self.host.kernel else { return };
        let found = match route::lookup(kernel, address) {
            Ok(found) => found,
            Err(error) => {
                answer.drops.push(format!("the node has no route to {address}: {error}"));
                return;
            }
        };
        let link =
            found.link.and_then(|index| self.host.at(index)).map_or("an unknown link", |link| link.name.as_str());
        let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
        answer.to.push(format!("the node's route to {address} leads{via} to {link}"));
        let links = attachment.into_iter().flat_map(|attachment| attachment.links.iter());
        let mut expected = links.map(|link| link.master.as_deref().unwrap_or(&link.name)).peekable();
        if expected.peek().is_none() {
            if attachment.is_some() {
                answer.unseen.push(format!("whether {link} leads to the container: it has no link on the host"));
            }
        } else if !expected.any(|expected| expected == link) {
            answer.drops.push(format!("the node's route to {address} leads to {link}, which is not the container's"));
        }
    }

    /// The container's interface and its route out, from inside its namespace.
    fn inside(&self, attachment: &Attachment, answer: &mut Answer) {
        let unseen = |error: &dyn fmt::Display| Inside::Unseen(error.to_string());
        let look = || -> Result<(Kernel, Link, Vec<IpAddr>), Inside> {
            if attachment.netns.is_empty() {
                return Err(Inside::Unseen("the cache does not have the namespace's path".to_owned()));
            }
            let netns = Netns::open(&attachment.netns).map_err(|error| unseen(&error))?;
            let kernel = Kernel::in_netns(&netns).map_err(|error| unseen(&error))?;
            let name = attachment.id.ifname.as_str();
            let link = link::find(&kernel, name).map_err(|error| unseen(&error))?;
            let link = link.ok_or_else(|| Inside::Missing(format!("interface {name}")))?;
            let addresses = addr::list(&kernel, &link).map_err(|error| unseen(&error))?;
            Ok((kernel, link, addresses.iter().map(|address| address.net.ip()).collect()))
        };
        let (kernel, link, addresses) = match look() {
            Ok(found) => found,
            Err(Inside::Missing(what)) => {
                answer.drops.push(format!("the container has no {what}"));
                return;
            }
            Err(Inside::Unseen(why)) => {
                answer.unseen.push(format!("the container's side: {why}"));
                return;
            }
        };
        if !link.up {
            answer.drops.push(format!("{} is down in the container", link.name));
        }
        let missing = attachment.addresses.iter().filter(|address| !addresses.contains(address));
        answer.drops.extend(missing.map(|address| format!("{} in the container does not have {address}", link.name)));
        for outside in OUTSIDE {
            if !attachment.addresses.iter().any(|address| address.is_ipv4() == outside.is_ipv4()) {
                continue;
            }
            let family = if outside.is_ipv4() { "IPv4" } else { "IPv6" };
            match route::lookup(&kernel, outside) {
                Ok(found) => {
                    let by = found.gateway.map_or("directly".to_owned(), |gateway| format!("by {gateway}"));
                    let own = if found.link == Some(link.index) { link.name.as_str() } else { "another interface" };
                    answer.from.push(format!("in the container, {family} leads out {by} on {own}"));
                }
                Err(_) => answer.drops.push(format!("the container has no {family} route out of its own network")),
            }
        }
    }

    fn forwarding(&self, is_ipv6: bool, answer: &mut Answer) {
        let parts: &[&str] = if is_ipv6 { &["ipv6", "conf", "all", "forwarding"] } else { &["ipv4", "ip_forward"] };
        let name = format!("net.{}", parts.join("."));
        match sysctl::Key::new(parts).and_then(|key| sysctl::find(&key)) {
            Ok(Some(value)) if value == "0" => {
                answer.drops.push(format!("{name} is 0: the node passes on no packets between it and other networks"));
            }
            Ok(_) => {}
            Err(error) => answer.unseen.push(format!("{name}: {error}")),
        }
    }

    fn way_out(&self, is_ipv6: bool, answer: &mut Answer) {
        let Some(kernel) = &self.host.kernel else { return };
        let (outside, family) = if is_ipv6 { (OUTSIDE[1], "IPv6") } else { (OUTSIDE[0], "IPv4") };
        match route::lookup(kernel, outside) {
            Ok(found) => {
                let link =
                    found.link.and_then(|index| self.host.at(index)).map_or("an unknown link", |link| &link.name);
                let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
                answer.from.push(format!("the node's {family} route out leads{via} to {link}"));
            }
            Err(_) => {
                answer.drops.push(format!("the node has no {family} route out: packets reach its own networks only"))
            }
        }
    }

    /// The rules of iptables' table `filter` that speak of the attachment: of its addresses, its link, or its bridge.
    fn filtered(&self, is_ipv6: bool, attachment: &Attachment, answer: &mut Answer) {
        let family = if is_ipv6 { Family::Ip6 } else { Family::Ip };
        let program = if is_ipv6 { "ip6tables" } else { "iptables" };
        let chains = match seen::chains(self.search_path, family) {
            Ok(chains) => chains,
            Err(error) => {
                answer.unseen.push(format!("{program}: {error}"));
                return;
            }
        };
        let own = Own {
            addresses: &attachment.addresses,
            links: attachment
                .links
                .iter()
                .flat_map(|link| std::iter::once(link.name.as_str()).chain(link.master.as_deref()))
                .collect(),
        };
        let mut accepts = [false, false];
        for Chain { name, rules, .. } in &chains {
            let unread = rules.iter().filter(|rule| rule.is_none()).count();
            if unread > 0 {
                answer.unseen.push(format!("{unread} rules in chain {name} of {program} that have further conditions"));
            }
            // Rules without a verdict, such as jumps that all packets take, decide on nothing.
            for rule in rules.iter().flatten().filter(|rule| rule.goes_to().is_none()) {
                let is_for_all =
                    *rule == Rule { comment: rule.comment.clone(), target: rule.target.clone(), ..Rule::default() };
                let directions = [is_for_all || own.is_to(rule), is_for_all || own.is_from(rule)];
                let text = format!("{program} -A {name}{rule}");
                for (is_meant, list) in directions.into_iter().zip([&mut answer.to, &mut answer.from]) {
                    if is_meant && !is_for_all {
                        list.push(text.clone());
                    }
                }
                if directions.contains(&true) && rule.target == Target::Drop {
                    answer.drops.push(format!("{text} may drop them"));
                }
                if rule.target == Target::Accept {
                    accepts = [accepts[0] || directions[0], accepts[1] || directions[1]];
                }
            }
        }
        let drops = chains.iter().any(|chain| chain.name == "FORWARD" && chain.drops);
        for (is_accepted, direction) in accepts.into_iter().zip(["to", "from"]) {
            if drops && !is_accepted {
                answer.drops.push(format!(
                    "{program} drops by policy what chain FORWARD does not accept, and no rule for it accepts packets \
                     {direction} it"
                ));
            }
        }
    }
}

/// Why nothing can be said of the container's side, or what it lacks.
enum Inside {
    Unseen(String),
    Missing(String),
}

/// Whether a plugin of the network is to masquerade.
fn wants_masquerade(network: &NetworkConf) -> bool {
    network.plugins.iter().any(|plugin| plugin.find("ipMasq") == Some("true"))
}

/// What rules call an attachment.
struct Own<'a> {
    addresses: &'a [IpAddr],
    links: Vec<&'a str>,
}

impl Own<'_> {
    fn is_to(&self, rule: &Rule) -> bool {
        self.has(rule.destination.as_ref()) || self.is_link(rule.output.as_ref())
    }

    fn is_from(&self, rule: &Rule) -> bool {
        self.has(rule.source.as_ref()) || self.is_link(rule.input.as_ref())
    }

    /// A condition that is negated speaks of all others.
    fn has(&self, is: Option<&Is<ipnetwork::IpNetwork>>) -> bool {
        let named = is.filter(|is| !is.negated && is.value.prefix() > 0);
        named.is_some_and(|is| self.addresses.iter().any(|address| is.value.contains(*address)))
    }

    fn is_link(&self, is: Option<&Is<String>>) -> bool {
        let named = is.filter(|is| !is.negated).map(|is| is.value.as_str());
        named.is_some_and(|name| match name.strip_suffix('+') {
            Some(start) if !start.is_empty() => self.links.iter().any(|link| link.starts_with(start)),
            Some(_) => false,
            None => self.links.contains(&name),
        })
    }
}

impl Answer {
    fn only(what: String) -> Self {
        Self { what, ..Self::default() }
    }

    /// For people.
    #[must_use]
    pub fn tree(&self) -> Branch {
        let list = |title: &str, tone: Tone, items: &[String]| {
            let below = items.iter().map(Branch::plain);
            (!items.is_empty()).then(|| Branch::new(tone, title).with(below))
        };
        let mut below = Vec::new();
        if let Some((_, attachment)) = &self.attachment {
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
        below.extend(list("why packets are dropped", Tone::Bad, &self.drops));
        if self.attachment.is_some() && self.drops.is_empty() {
            below.push(Branch::new(Tone::Good, "nothing that was looked at drops its packets"));
        }
        below.extend(list("not looked at", Tone::Faint, &self.unseen));
        Branch::new(Tone::Plain, &self.what).with(below)
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let (network, attachment) =
            self.attachment.as_ref().map(|(network, it)| (network, crate::json::attachment(it))).unzip();
        json!({"what": self.what, "network": network, "attachment": attachment, "configuration": self.conf,
            "to": self.to, "from": self.from, "drops": self.drops, "unseen": self.unseen})
    }
}
