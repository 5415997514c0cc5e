//! The plan of a node: boxes in boxes, from the way out down to the attachments, for a page of a given width.
//!
//! Nothing is cut and nothing overlaps, whatever the names are: text is wrapped to the columns of its box, and each box is as high
//! as what is in it.

use super::{masters, tone};
use crate::node_networks::{Attachment, Network, View};
use crate::show::tree::{self, Parts};
use crate::tree_text::{Branch, Part, Tone, wrapped};

/// Pixels of a column of text.
pub(super) const COLUMN: usize = 8;
/// Pixels of a line of text, of the space in a box, and between boxes.
pub(super) const LINE: usize = 18;
const PADDING: usize = 10;
const GAP: usize = 12;
/// The side of a tile without text, and the space between two.
const TILE: usize = 18;
const TILE_GAP: usize = 4;
/// The least width of a tile with text.
const LABEL: usize = 340;
/// Room for the line from the way out to the networks.
const TRUNK: usize = 20;
/// Networks with more attachments show those of which nothing needs a look as tiles without text.
const LABELS_MAX: usize = 12;
/// The least width of a plan: twenty columns of text in the innermost box.
const WIDTH_MIN: usize = 20 * COLUMN + 6 * PADDING + 2 * GAP + TRUNK;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Frame {
        place: Place,
        /// The worst that it says.
        tone: Tone,
    },
    /// A filled tile: an attachment without text.
    Tile {
        place: Place,
        tone: Tone,
        /// What the tile stands for, for a reader's pointer.
        title: String,
    },
    Text {
        /// The left side, and the upper side of the line.
        at: (usize, usize),
        line: Vec<Part>,
    },
    Wire {
        from: (usize, usize),
        to: (usize, usize),
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// The items, from back to front.
    pub(crate) items: Vec<Item>,
}

/// Lays out a view on a page of this width, in pixels.
pub(crate) fn plan(view: &View, width: usize) -> Plan {
    let mut plan = Plan { width: width.max(WIDTH_MIN), height: 0, items: Vec::new() };
    let inner = plan.width - 2 * GAP;
    let mut y = plan.text(&tree::summary(view), GAP, GAP, inner);
    let has_way_out = !view.ways_out.is_empty();
    let ways = if has_way_out { view.ways_out.join(", ") } else { "no default route".to_owned() };
    let out = Branch::new(Tone::Name, "way out").and(if has_way_out { Tone::Good } else { Tone::Warning }, ways);
    y = plan.frame(GAP, y + GAP, inner, if has_way_out { Tone::Good } else { Tone::Warning }, |plan, x, y, width| {
        plan.text(&out, x, y, width)
    });
    let (trunk, left) = (GAP + TRUNK / 2, GAP + TRUNK);
    let (top, mut bottom) = (y, y);
    for network in &view.networks {
        let start = y + GAP;
        bottom = start + PADDING + LINE / 2;
        plan.items.push(Item::Wire { from: (trunk, bottom), to: (left, bottom) });
        y = plan.network(network, view, left, start, inner - TRUNK);
    }
    if bottom > top {
        plan.items.push(Item::Wire { from: (trunk, top), to: (trunk, bottom) });
    }
    for (title, items) in view.rest() {
        let branch = Branch::new(Tone::Warning, title).with(items.iter().map(Branch::plain));
        y = plan
            .frame(left, y + GAP, inner - TRUNK, Tone::Warning, |plan, x, y, width| plan.texts(&branch, x, y, width));
    }
    plan.height = y + GAP;
    plan
}

impl Plan {
    /// Writes a line from a place on, wrapped to a width; returns where it ends.
    fn text(&mut self, branch: &Branch, x: usize, mut y: usize, width: usize) -> usize {
        let columns = width / COLUMN;
        for line in wrapped(&branch.line, columns, columns) {
            self.items.push(Item::Text { at: (x, y), line });
            y += LINE;
        }
        y
    }

    /// The same of a line and those below it.
    fn texts(&mut self, branch: &Branch, x: usize, y: usize, width: usize) -> usize {
        let y = self.text(branch, x, y, width);
        branch.below.iter().fold(y, |y, below| self.text(below, x, y, width))
    }

    /// Draws a frame around what `fill` draws from a place on, in a width; returns where the frame ends.
    fn frame(
        &mut self,
        x: usize,
        y: usize,
        width: usize,
        tone: Tone,
        fill: impl FnOnce(&mut Self, usize, usize, usize) -> usize,
    ) -> usize {
        let at = self.items.len();
        self.items.push(Item::Frame { place: Place::default(), tone });
        let bottom = fill(self, x + PADDING, y + PADDING, width - 2 * PADDING) + PADDING;
        if let Some(Item::Frame { place, .. }) = self.items.get_mut(at) {
            *place = Place { x, y, width, height: bottom - y };
        }
        bottom
    }

    fn network(&mut self, network: &Network, view: &View, x: usize, y: usize, width: usize) -> usize {
        let Parts { head, links, own, .. } = Parts::of(network, view.at);
        let worst = worst(network.attachments.iter().map(tone));
        self.frame(x, y, width, worst, |plan, x, y, width| {
            let mut y = plan.text(&head, x, y, width);
            y = own.iter().fold(y, |y, branch| plan.text(branch, x, y, width));
            for (at, (link, shared)) in links.iter().zip(&network.links).enumerate() {
                let on: Vec<&Attachment> = masters(network)
                    .filter(|(master, _)| *master == Some(at))
                    .map(|(_, attachment)| attachment)
                    .collect();
                let tone = if shared.up { Tone::Good } else { Tone::Bad };
                y = plan.frame(x, y + GAP, width, tone, |plan, x, y, width| {
                    let y = plan.text(link, x, y, width);
                    plan.attachments(&on, view, x, y, width)
                });
            }
            let alone: Vec<&Attachment> =
                masters(network).filter(|(master, _)| master.is_none()).map(|(_, attachment)| attachment).collect();
            y = plan.attachments(&alone, view, x, y, width);
            for object in &network.nameless {
                let line = Branch::new(Tone::Warning, "unnamed").and(Tone::Plain, object);
                y = plan.text(&line, x, y, width);
            }
            y
        })
    }

    /// Tiles: with text those that need a look, and all of a few.
    fn attachments(&mut self, attachments: &[&Attachment], view: &View, x: usize, y: usize, width: usize) -> usize {
        let is_few = attachments.len() <= LABELS_MAX;
        let (labelled, rest): (Vec<_>, Vec<_>) =
            attachments.iter().copied().partition(|attachment| is_few || !attachment.is_well());
        let y = self.labels(&labelled, view, x, y, width);
        self.tiles(&rest, x, y, width)
    }

    fn labels(&mut self, attachments: &[&Attachment], view: &View, x: usize, mut y: usize, width: usize) -> usize {
        let across = (width / (LABEL + GAP)).max(1);
        let each = (width - (across - 1) * GAP) / across;
        for row in attachments.chunks(across) {
            let begin = self.items.len();
            let top = y + GAP;
            for (at, attachment) in row.iter().enumerate() {
                let lines = label(attachment, view);
                let bottom = self.frame(x + at * (each + GAP), top, each, tone(attachment), |plan, x, y, width| {
                    plan.texts(&lines, x, y, width)
                });
                y = y.max(bottom);
            }
            // Frames of one row have one height.
            for item in self.items.iter_mut().skip(begin) {
                if let Item::Frame { place, .. } = item {
                    place.height = y - top;
                }
            }
        }
        y
    }

    fn tiles(&mut self, attachments: &[&Attachment], x: usize, y: usize, width: usize) -> usize {
        if attachments.is_empty() {
            return y;
        }
        let across = ((width + TILE_GAP) / (TILE + TILE_GAP)).max(1);
        let top = y + GAP;
        for (at, attachment) in attachments.iter().enumerate() {
            let (column, row) = (at % across, at / across);
            let (x, y) = (x + column * (TILE + TILE_GAP), top + row * (TILE + TILE_GAP));
            let place = Place { x, y, width: TILE, height: TILE };
            self.items.push(Item::Tile { place, tone: tone(attachment), title: title(attachment) });
        }
        top + attachments.len().div_ceil(across) * (TILE + TILE_GAP) - TILE_GAP
    }
}

/// The lines of a tile with text: name, addresses, state.
fn label(attachment: &Attachment, view: &View) -> Branch {
    let Branch { line, below } = tree::of_attachment(attachment, view.at);
    let faults = below.into_iter().filter(|branch| branch.line.iter().any(|part| part.tone == Tone::Bad));
    let mut parts = line.into_iter();
    let name = Branch { line: parts.by_ref().take(2).collect(), below: Vec::new() };
    let addresses = Branch { line: parts.by_ref().take(1).collect(), below: Vec::new() };
    let state = Branch { line: parts.collect(), below: Vec::new() };
    name.with([addresses, state]).with(faults)
}

fn title(attachment: &Attachment) -> String {
    let addresses: Vec<String> = attachment.addresses.iter().map(ToString::to_string).collect();
    format!("{} {} {}", attachment.full_name(), addresses.join(" "), crate::node_networks::word(attachment.life))
}

fn worst(tones: impl Iterator<Item = Tone>) -> Tone {
    tones.fold(Tone::Plain, |worst, tone| match (worst, tone) {
        (Tone::Bad, _) | (_, Tone::Bad) => Tone::Bad,
        (Tone::Warning, _) | (_, Tone::Warning) => Tone::Warning,
        (worst, _) => worst,
    })
}
