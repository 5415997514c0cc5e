//! For Graphviz: <https://graphviz.org/doc/info/lang.html>.

use std::fmt::Write;

use super::{Drawing, plain};
use crate::tree::Tone;

/// The drawing in Graphviz's language.
#[must_use]
pub fn dot(drawing: &Drawing) -> String {
    let mut text = "graph cni {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n".to_owned();
    for (place, cell) in drawing.cells.iter().enumerate() {
        // `\l` ends a line that begins at the left.
        let label: String = cell.text.iter().map(|line| escaped(&plain(line)) + "\\l").collect();
        // Writing to a String cannot fail; so below.
        let _infallible = writeln!(text, "  n{place} [label=\"{label}\", color={}];", colour(cell.tone));
    }
    for (from, to) in &drawing.lines {
        let _infallible = writeln!(text, "  n{from} -- n{to};");
    }
    text + "}\n"
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
