//! The node's networks as trees of text.

use std::time::SystemTime;

use libcni::inventory::Life;
use unicode_width::UnicodeWidthStr;

use crate::node_networks::{Attachment, Limits, Maker, Network, Origin, Shared, View, word};
use crate::output::count;
use crate::tree_text::{Branch, Tone};

const BAR: usize = 20;

/// Numbers of more bits are rounded.
const ROUNDED_BITS: u32 = 40;

/// The parts of a node that a tree shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// Attachments of which nothing needs a look are only counted.
    pub is_brief: bool,
}

/// The summary, then the tree of each network, and what belongs to none.
pub fn tree(view: &View, shown: Shown) -> Vec<Branch> {
    let mut trees = vec![summary(view)];
    trees.extend(view.networks.iter().map(|network| of_network(network, view.at, shown)));
    for (title, items) in view.rest() {
        trees.push(Branch::new(Tone::Warning, title).with(items.iter().map(Branch::plain)));
    }
    trees
}

/// The node, how many networks and attachments it has, and how many of them need a look.
pub(crate) fn summary(view: &View) -> Branch {
    let attachments = || view.networks.iter().flat_map(|network| &network.attachments);
    let total = attachments().count();
    let mut line = Branch::new(Tone::Name, if view.host.is_empty() { "this node" } else { &view.host })
        .and(Tone::Plain, format!("{}, {}", count(view.networks.len(), "network"), count(total, "attachment")));
    let states = [
        (Life::Lives, Tone::Good, "live"),
        (Life::Young, Tone::Good, "young"),
        (Life::Unknown, Tone::Warning, "unknown"),
        (Life::Gone, Tone::Bad, "gone"),
    ];
    for (life, tone, word) in states {
        let number = attachments().filter(|attachment| attachment.life == life).count();
        if number > 0 {
            line = line.and(tone, format!("{number} {word}"));
        }
    }
    let is_broken =
        |attachment: &&Attachment| matches!(attachment.life, Life::Lives | Life::Young) && !attachment.is_well();
    let broken = attachments().filter(is_broken).count();
    let line = if broken > 0 { line.and(Tone::Bad, format!("{broken} with a fault")) } else { line };
    let sick = view.networks.iter().filter(|network| !network.faults.is_empty()).count();
    if sick > 0 { line.and(Tone::Bad, format!("{} with a fault", count(sick, "network"))) } else { line }
}

fn of_network(network: &Network, at: SystemTime, shown: Shown) -> Branch {
    let Parts { head, links, own, sick, well } = Parts::of(network, at);
    let count = (shown.is_brief && !well.is_empty()).then(|| {
        let own = if network.faults.is_empty() { "" } else { " of their own" };
        Branch::new(Tone::Good, format!("{} without a fault{own}", well.len()))
    });
    let well = if shown.is_brief { Vec::new() } else { well };
    head.with(links).with(own).with(sick).with(well).with(count)
}

pub(crate) struct Parts {
    /// The network's name, its plugins, its file.
    pub(crate) head: Branch,
    /// The network's bridges and masters.
    pub(crate) links: Vec<Branch>,
    /// The network's ranges, addresses reserved by hand, those whose owner is unknown, and the faults of many attachments.
    pub(crate) own: Vec<Branch>,
    /// The attachments that need a look, with all that is known of each, then the objects that belong to none.
    pub(crate) sick: Vec<Branch>,
    /// The other attachments, a line each.
    pub(crate) well: Vec<Branch>,
}

impl Parts {
    pub(crate) fn of(network: &Network, at: SystemTime) -> Self {
        let by_hand = network.by_hand.iter().map(|address| Branch::plain(format!("{address}  reserved by hand")));
        let unreadable = |address| Branch::plain(format!("{address}  reserved")).and(Tone::Warning, "owner unknown");
        let unreadable = network.unreadable.iter().map(unreadable);
        let faults = network.faults.iter().map(|fault| Branch::new(Tone::Bad, fault));
        let unnamed = |object| Branch::new(Tone::Warning, "unnamed").and(Tone::Plain, object);
        let (well, sick): (Vec<_>, Vec<_>) = network.attachments.iter().partition(|attachment| attachment.is_well());
        let sick = sick.into_iter().map(|attachment| of_attachment(attachment, at));
        let widths = Widths::of(&well);
        Self {
            head: head(network),
            links: network.links.iter().map(of_shared).collect(),
            own: network.ranges.iter().map(of_range).chain(by_hand).chain(unreadable).chain(faults).collect(),
            sick: sick.chain(network.nameless.iter().map(unnamed)).collect(),
            well: well.into_iter().map(|attachment| row(attachment, widths, at)).collect(),
        }
    }
}

pub(crate) fn head(network: &Network) -> Branch {
    let tone = if matches!(network.origin, Origin::File(_)) { Tone::Faint } else { Tone::Warning };
    let plugins = if network.plugins.is_empty() { "plugins unknown".to_owned() } else { network.plugins.join(", ") };
    Branch::new(Tone::Name, &network.name).and(Tone::Plain, plugins).and(tone, network.origin_text())
}

/// The columns that names, interfaces and addresses of rows take, so that they stand below each other.
#[derive(Clone, Copy)]
struct Widths {
    name: usize,
    ifname: usize,
    addresses: usize,
}

impl Widths {
    /// No column is wider than this because of one row.
    const MAX: usize = 32;

    fn of(attachments: &[&Attachment]) -> Self {
        let widest = |width: fn(&Attachment) -> usize| {
            attachments
                .iter()
                .map(|attachment| width(attachment))
                .filter(|width| *width <= Self::MAX)
                .max()
                .unwrap_or(0)
        };
        Self {
            name: widest(|attachment| attachment.name.width()),
            ifname: widest(|attachment| attachment.id.ifname.as_str().width()),
            addresses: widest(|attachment| addresses(attachment).width()),
        }
    }
}

/// An attachment of which nothing needs a look. [`crate::explain`] has all of it.
fn row(attachment: &Attachment, widths: Widths, at: SystemTime) -> Branch {
    let row = Branch { line: Vec::new(), below: Vec::new() }
        .and_wide(Tone::Name, &attachment.name, widths.name)
        .and_wide(Tone::Plain, &attachment.id.ifname, widths.ifname)
        .and_wide(Tone::Plain, addresses(attachment), widths.addresses);
    let row = with_age(row.and(Tone::Good, word(attachment.life)), attachment, at);
    let mut ports: Vec<String> = Vec::new();
    for forward in &attachment.ports {
        let text = format!("{}/{} to {}", forward.port, forward.protocol.name(), forward.to.port());
        // A port can have a forward of each family: show it once.
        if !ports.contains(&text) {
            ports.push(text);
        }
    }
    let row = if ports.is_empty() { row } else { row.and(Tone::Plain, ports.join(", ")) };
    let Limits { to_bytes, from_bytes } = attachment.limits;
    let limits = [(to_bytes, "in"), (from_bytes, "out")].into_iter();
    let row = limits.fold(row, |row, (bytes, direction)| match bytes {
        Some(bytes) => row.and(Tone::Plain, format!("{} {direction}", rate(bytes))),
        None => row,
    });
    if attachment.is_complete.is_none() { row.and(Tone::Faint, "another runtime's") } else { row }
}

fn addresses(attachment: &Attachment) -> String {
    if attachment.addresses.is_empty() { "no address".to_owned() } else { listed(&attachment.addresses) }
}

fn with_age(line: Branch, attachment: &Attachment, at: SystemTime) -> Branch {
    match attachment.since.map(|since| at.duration_since(since)) {
        Some(Ok(age)) => line.and(Tone::Faint, age_of(age.as_secs())),
        Some(Err(_)) => line.and(Tone::Warning, "made in the future"),
        None => line,
    }
}

fn of_shared(link: &Shared) -> Branch {
    let kind = if link.kind.is_empty() { "link" } else { &link.kind };
    let (tone, state) = if link.up { (Tone::Good, "up") } else { (Tone::Bad, "down") };
    // Every link has one of IPv6's own, which says nothing of the network.
    let is_own = |address: &&ipnetwork::IpNetwork| matches!(address.ip(), std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
    let addresses: Vec<_> = link.addresses.iter().filter(|address| !is_own(address)).collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { listed(&addresses) };
    let ports = if link.kind == "bridge" { format!(", {}", count(link.ports, "port")) } else { String::new() };
    Branch::plain(format!("{kind} {}", link.name))
        .and(tone, state)
        .and(Tone::Plain, format!("{addresses}, mtu {}{ports}", link.mtu_bytes))
}

fn of_range(range: &host_local::inventory::Usage) -> Branch {
    let host_local::inventory::Usage { first, last, total, used, .. } = range;
    let share = used.saturating_mul(BAR as u128).checked_div(*total).unwrap_or(BAR as u128);
    let full = usize::try_from(share).unwrap_or(BAR).min(BAR);
    let tone = match full {
        _ if used >= total => Tone::Bad,
        full if full * 10 >= BAR * 9 => Tone::Warning,
        _ => Tone::Good,
    };
    Branch::plain(format!("{first} - {last}"))
        .and(tone, bar(full, *used > 0))
        .and(Tone::Plain, format!("{} used, {} free", rounded(*used), rounded(total.saturating_sub(*used))))
}

/// A bar with so many full columns. Where none is full, a line says that some addresses are in use.
fn bar(full: usize, is_used: bool) -> String {
    let line = if full == 0 && is_used { "▏" } else { "" };
    format!("{}{line}{}", "█".repeat(full), "░".repeat(BAR - full - line.chars().count()))
}

/// A number for people: a power of two in place of more digits than they can read, as a range of IPv6 has.
pub(crate) fn rounded(number: u128) -> String {
    match number.checked_ilog2() {
        Some(power) if power >= ROUNDED_BITS => {
            let is_nearer_to_next = number >> (power - 1) & 1 == 1;
            format!("about 2^{}", power + u32::from(is_nearer_to_next))
        }
        _ => number.to_string(),
    }
}

pub(crate) fn of_attachment(attachment: &Attachment, at: SystemTime) -> Branch {
    let head = Branch::new(Tone::Name, &attachment.name)
        .and(Tone::Plain, &attachment.id.ifname)
        .and(Tone::Plain, addresses(attachment))
        .and(tone(attachment.life), word(attachment.life));
    with_age(head, attachment, at).with(details(attachment))
}

pub(crate) const fn tone(life: Life) -> Tone {
    match life {
        Life::Lives | Life::Young => Tone::Good,
        Life::Unknown => Tone::Warning,
        Life::Gone => Tone::Bad,
    }
}

fn details(attachment: &Attachment) -> Vec<Branch> {
    let Attachment { netns, links, ports, limits, rules, others, maker, faults, is_complete, life, .. } = attachment;
    let mut below: Vec<Branch> = faults.iter().map(|fault| Branch::new(Tone::Bad, fault)).collect();
    match is_complete {
        Some(false) => below.push(Branch::new(Tone::Bad, "its ADD was not finished")),
        None => below.push(Branch::new(Tone::Faint, "not in this cache: another runtime's")),
        Some(true) => {}
    }
    if !netns.is_empty() {
        below.push(Branch::plain(format!("namespace {netns}")));
    }
    for link in links {
        let master = link.master.as_ref().map_or(String::new(), |master| format!(" on {master}"));
        let line = Branch::plain(format!("link {}{master}", link.name));
        below.push(if link.up { line } else { line.and(Tone::Bad, "down") });
    }
    for forward in ports {
        let line = Branch::plain(format!("{} to port {}", forward.host_port(), forward.to.port()));
        // A port can have a forward of each family: show it once.
        if !below.contains(&line) {
            below.push(line);
        }
    }
    let Limits { to_bytes, from_bytes } = *limits;
    for (rate_bytes, direction) in [(to_bytes, "to"), (from_bytes, "from")] {
        below.extend(
            rate_bytes.map(|bytes| Branch::plain(format!("at most {} {direction} the container", rate(bytes)))),
        );
    }
    below.extend(rules.iter().map(|rule| Branch::plain(rule.to_string())));
    // Ports and limits of a container that lives are above.
    if matches!(life, Life::Gone | Life::Unknown) {
        below.extend(others.iter().map(Branch::plain));
    }
    match maker {
        Maker::ThisSuite => {}
        Maker::Reference => below.push(Branch::new(Tone::Faint, "made by the reference or another plugin: no mark")),
        Maker::Unknown => below.push(Branch::new(Tone::Faint, "its interface was not found, so its maker is unknown")),
    }
    below
}

fn listed(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// In the largest unit that it has one of.
pub(crate) fn age_of(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let largest = units.into_iter().find(|(unit, _)| seconds >= *unit);
    largest.map_or(format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// In bits per second, as the plugin `bandwidth` is configured.
pub(crate) fn rate(bytes: u64) -> String {
    let bits = u128::from(bytes) * 8;
    let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")];
    let largest = units.into_iter().find(|(unit, _)| bits >= *unit && bits.is_multiple_of(*unit));
    largest.map_or(format!("{bits} bit/s"), |(unit, name)| format!("{} {name}", bits / unit))
}

#[cfg(test)]
mod tests;
