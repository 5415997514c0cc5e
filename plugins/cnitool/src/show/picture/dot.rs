//! The drawing for Graphviz: <https://graphviz.org/doc/info/lang.html>.

use std::fmt::Write;

use super::{masters, plain, tone};
use crate::node_networks::View;
use crate::show::tree::{self, Parts};
use crate::tree_text::{Branch, Tone, wrapped};

/// The node in Graphviz's language: a box for each network, for each link that attachments share, and for each attachment.
pub(crate) fn dot(view: &View) -> String {
    let mut graph = Graph { text: String::new(), boxes: 0 };
    let node = graph.add(&tree::summary(view).with(view.ways_out.iter().map(Branch::plain)), Tone::Plain);
    for network in &view.networks {
        let Parts { head, links, own, .. } = Parts::of(network, view.at);
        let head = graph.add(&head.with(own), Tone::Plain);
        graph.connect(node, head);
        let mut places = Vec::new();
        for (link, shared) in links.iter().zip(&network.links) {
            let place = graph.add(link, if shared.up { Tone::Good } else { Tone::Bad });
            graph.connect(head, place);
            places.push(place);
        }
        for (master, attachment) in masters(network) {
            let place = graph.add(&tree::of_attachment(attachment, view.at), tone(attachment));
            graph.connect(master.and_then(|at| places.get(at)).copied().unwrap_or(head), place);
        }
        for object in &network.nameless {
            let place = graph.add(&Branch::plain(object), Tone::Warning);
            graph.connect(head, place);
        }
    }
    for (title, items) in view.rest() {
        graph.add(&Branch::plain(title).with(items.iter().map(Branch::plain)), Tone::Warning);
    }
    format!("graph cni {{\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n{}}}\n", graph.text)
}

struct Graph {
    text: String,
    boxes: usize,
}

impl Graph {
    /// Adds a box, and returns its number. `\l` ends a line that begins at the left.
    fn add(&mut self, branch: &Branch, tone: Tone) -> usize {
        let lines = std::iter::once(branch).chain(&branch.below).flat_map(|it| wrapped(&it.line, 44, 44));
        let label: String = lines.map(|line| escaped(&plain(&line)) + "\\l").collect();
        let (place, colour) = (self.boxes, colour(tone));
        // Writing to a String cannot fail; so below.
        let _infallible = writeln!(self.text, "  n{place} [label=\"{label}\", color={colour}];");
        self.boxes += 1;
        place
    }

    fn connect(&mut self, from: usize, to: usize) {
        let _infallible = writeln!(self.text, "  n{from} -- n{to};");
    }
}

fn colour(tone: Tone) -> &'static str {
    match tone {
        Tone::Bad => "red3",
        Tone::Warning => "orange3",
        Tone::Good => "green4",
        Tone::Plain | Tone::Name | Tone::Faint => "gray40",
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
