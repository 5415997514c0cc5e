//! The node's networks as a picture, for tickets and wikis.
//!
//! [`layout`] lays a node out: its way out, its networks, in each of these the links that attachments share, in each of those the
//! attachments as tiles. [`svg`] and [`html`] write a plan, [`dot`] leaves the layout to Graphviz. Names of containers, files
//! and rules come from outside: nothing of them is markup in any format.

pub(crate) mod dot;
pub(crate) mod html;
pub(crate) mod layout;
pub(crate) mod svg;

use crate::node_networks::Attachment;
use crate::show::tree;
use crate::tree_text::{Part, Tone};

/// A line's text without tones.
fn plain(line: &[Part]) -> String {
    line.iter().map(|part| part.text.as_str()).collect()
}

/// The colour of an attachment: the worst of its state and what is wrong with it.
fn tone(attachment: &Attachment) -> Tone {
    match tree::tone(attachment.life) {
        Tone::Good if !attachment.is_well() => Tone::Bad,
        tone => tone,
    }
}

/// The link, by its place, that each attachment of a network is on: its host link's master, or the network's only one, for an
/// attachment without a link on the host, such as a macvlan.
fn masters(network: &crate::node_networks::Network) -> impl Iterator<Item = (Option<usize>, &Attachment)> {
    let only = (network.links.len() == 1).then_some(0);
    network.attachments.iter().map(move |attachment| {
        let mut masters = attachment.links.iter().filter_map(|link| link.master.as_ref());
        let of = |master: &String| network.links.iter().position(|link| link.name == *master);
        (masters.find_map(of).or(only), attachment)
    })
}

#[cfg(test)]
mod tests;
