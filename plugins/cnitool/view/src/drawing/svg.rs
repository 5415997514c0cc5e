//! As SVG that stands alone: no font and no style from elsewhere, for light and dark pages.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{Cell, Drawing, Rank, plain};

/// Pixels of a column and a line of text, of the space in a box, between boxes, and between the columns of boxes.
const COLUMN: usize = 8;
const LINE: usize = 18;
const PADDING: usize = 10;
const GAP: usize = 12;
const AISLE: usize = 64;

/// The colours, by the reader's preference. A page of HTML has them, too.
pub(crate) const STYLE: &str = "\
svg{--paper:#fff;--ink:#1f2328;--faint:#656d76;--line:#afb8c1;--good:#1a7f37;--warning:#9a6700;--bad:#cf222e;\
background:var(--paper);font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#8d96a0;--line:#484f58;--good:#3fb950;\
--warning:#d29922;--bad:#f85149}}\
svg text{fill:var(--ink);white-space:pre}svg rect{fill:none;stroke:var(--line)}svg path{fill:none;stroke:var(--line)}\
svg .name{font-weight:bold}svg .faint{fill:var(--faint)}svg tspan.good{fill:var(--good)}\
svg tspan.warning{fill:var(--warning)}svg tspan.bad{fill:var(--bad)}svg rect.good{stroke:var(--good)}\
svg rect.warning{stroke:var(--warning)}svg rect.bad{stroke:var(--bad);stroke-width:2}";

/// A box's upper left corner and its size.
#[derive(Clone, Copy, Default)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// The drawing as SVG.
#[must_use]
pub fn svg(drawing: &Drawing) -> String {
    let places = placed(drawing);
    let width = places.iter().map(|place| place.x + place.width).max().unwrap_or(0) + GAP;
    let height = places.iter().map(|place| place.y + place.height).max().unwrap_or(0) + GAP;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>Container networks of this node</title>\n\
         <style>{STYLE}</style>\n"
    );
    for (from, to) in &drawing.lines {
        if let (Some(from), Some(to)) = (places.get(*from), places.get(*to)) {
            connect(*from, *to, &mut text);
        }
    }
    for (cell, place) in drawing.cells.iter().zip(&places) {
        write(cell, *place, &mut text);
    }
    text + "</svg>\n"
}

/// Each network is a band; in it, boxes of a rank are below each other.
fn placed(drawing: &Drawing) -> Vec<Place> {
    let ranks = [Rank::Network, Rank::Link, Rank::Attachment];
    let widest = |rank| {
        let of_rank = drawing.cells.iter().filter(|cell| cell.rank == rank);
        of_rank.map(width).max().map_or(0, |width| width + AISLE)
    };
    let x_of = |rank| GAP + ranks.into_iter().filter(|left| *left < rank).map(widest).sum::<usize>();
    let xs = ranks.map(x_of);
    let (mut places, mut group, mut top, mut ends) = (Vec::new(), 0, GAP, [GAP; 3]);
    for cell in &drawing.cells {
        if cell.group != group {
            group = cell.group;
            top = ends.into_iter().max().unwrap_or(top) + GAP;
            ends = [top; 3];
        }
        let rank = cell.rank as usize;
        let height = cell.text.len() * LINE + PADDING;
        places.push(Place { x: xs[rank], y: ends[rank], width: width(cell), height });
        ends[rank] += height + GAP;
    }
    places
}

fn width(cell: &Cell) -> usize {
    cell.text.iter().map(|line| plain(line).width()).max().unwrap_or(0) * COLUMN + 2 * PADDING
}

fn connect(from: Place, to: Place, text: &mut String) {
    let (x1, x2) = (from.x + from.width, to.x);
    // From the first line of each: boxes of many lines are high.
    let (y1, y2) = (from.y + PADDING / 2 + LINE / 2, to.y + PADDING / 2 + LINE / 2);
    let middle = x2.saturating_sub(AISLE / 2);
    // Writing to a String cannot fail; so below.
    let _infallible = writeln!(text, "<path d=\"M{x1} {y1}H{middle}V{y2}H{x2}\"/>");
}

fn write(cell: &Cell, place: Place, text: &mut String) {
    let Place { x, y, width, height } = place;
    let class = cell.tone.name();
    let _infallible =
        writeln!(text, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>");
    for (at, line) in cell.text.iter().enumerate() {
        let (x, y) = (x + PADDING, y + PADDING / 2 + at * LINE + 13);
        // A reader's font may have other widths than the boxes are made for.
        let length = plain(line).width() * COLUMN;
        let _infallible = write!(text, "<text x=\"{x}\" y=\"{y}\" xml:space=\"preserve\"");
        let _infallible = write!(text, " textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\">");
        for part in line {
            let _infallible = write!(text, "<tspan class=\"{}\">{}</tspan>", part.tone.name(), escaped(&part.text));
        }
        text.push_str("</text>\n");
    }
}

/// Text of an XML document. Control characters are escaped before, by `visible`; what else XML forbids is replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}
