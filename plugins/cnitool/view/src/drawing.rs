//! The view as a picture, for tickets and wikis: networks, the links that their attachments share, attachments.
//!
//! [`drawing`] makes boxes and the lines between them; a module writes them in each format. Names of containers, files and
//! rules come from outside: nothing of them is markup in any format.

pub mod dot;
pub mod html;
pub mod svg;

use crate::tree::{Branch, Part, Parts, Tone, wrapped};
use crate::{Network, View};

/// Columns of a box: longer lines go on below.
const COLUMNS: usize = 44;

/// Boxes, and the lines between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// The boxes, network by network.
    pub cells: Vec<Cell>,
    /// Lines between two boxes, by their places.
    pub lines: Vec<(usize, usize)>,
}

/// A box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The network's number, counted from 0: boxes of one network are drawn together.
    pub group: usize,
    /// The kind of object, from which the box's place follows.
    pub rank: Rank,
    /// The worst that it says.
    pub tone: Tone,
    /// The box's text.
    pub text: Vec<Vec<Part>>,
}

/// The kind of a box, from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A network.
    Network,
    /// A bridge or a master.
    Link,
    /// An attachment, or an object without one.
    Attachment,
}

/// The boxes of a view.
#[must_use]
pub fn drawing(view: &View) -> Drawing {
    let mut drawing = Drawing { cells: Vec::new(), lines: Vec::new() };
    for (group, network) in view.networks.iter().enumerate() {
        drawing.add_network(group, network, view);
    }
    let rest = [("belongs to no known network", &view.unowned), ("could not be looked at", &view.unseen)];
    for (place, (title, items)) in rest.into_iter().enumerate().filter(|(_, (_, items))| !items.is_empty()) {
        let group = view.networks.len() + place;
        let items = items.iter().map(Branch::plain);
        drawing.add(group, Rank::Network, &Branch::new(Tone::Warning, title).with(items));
    }
    drawing
}

impl Drawing {
    fn add_network(&mut self, group: usize, network: &Network, view: &View) {
        let Parts { head, links, own, attachments } = Parts::of(network, view.at);
        let head = self.add(group, Rank::Network, &head.with(own));
        let mut places = Vec::new();
        for branch in &links {
            let place = self.add(group, Rank::Link, branch);
            self.lines.push((head, place));
            places.push(place);
        }
        for (at, branch) in attachments.iter().enumerate() {
            let place = self.add(group, Rank::Attachment, branch);
            let masters = network.attachments.get(at).into_iter().flat_map(|attachment| &attachment.links);
            let masters = masters.filter_map(|link| link.master.as_ref());
            let of = |master: &String| network.links.iter().position(|link| link.name == *master);
            // An attachment without a link on the host, such as a macvlan, is on the network's master.
            let only = (places.len() == 1).then_some(0);
            let above = masters.filter_map(of).next().or(only).and_then(|at| places.get(at));
            self.lines.push((above.copied().unwrap_or(head), place));
        }
    }

    fn add(&mut self, group: usize, rank: Rank, branch: &Branch) -> usize {
        let lines = std::iter::once(branch).chain(&branch.below).map(|branch| &branch.line);
        let worst = |worst, part: &Part| match (worst, part.tone) {
            (Tone::Bad, _) | (_, Tone::Bad) => Tone::Bad,
            (Tone::Warning, _) | (_, Tone::Warning) => Tone::Warning,
            (Tone::Good, _) | (_, Tone::Good) => Tone::Good,
            _ => Tone::Plain,
        };
        let tone = lines.clone().flatten().fold(Tone::Plain, worst);
        let text = lines.flat_map(|line| wrapped(line, COLUMNS, COLUMNS)).collect();
        self.cells.push(Cell { group, rank, tone, text });
        self.cells.len() - 1
    }
}

/// A box's text without tones.
fn plain(line: &[Part]) -> String {
    line.iter().map(|part| part.text.as_str()).collect()
}

#[cfg(test)]
mod tests;
