//! The drawing as SVG that needs no other file: no font and no style from elsewhere, for light and dark pages.

use std::fmt::Write;

use cni_suite::text::visible;
use unicode_width::UnicodeWidthStr;

use super::layout::{COLUMN, Item, Place, Plan};
use super::plain;

/// Pixels from the upper side of a line of text to the line that its letters stand on.
const BASELINE: usize = 13;

/// The colours, by the reader's preference. A page of HTML has them, too.
const STYLE: &str = "\
svg{--paper:#fff;--ink:#1f2328;--faint:#59636e;--line:#afb8c1;--good:#1a7f37;--warning:#9a6700;--bad:#cf222e;\
background:var(--paper);font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#9198a1;--line:#484f58;--good:#3fb950;\
--warning:#d29922;--bad:#f85149}}\
svg text{fill:var(--ink);white-space:pre}svg rect{fill:none;stroke:var(--line)}svg line{stroke:var(--line)}\
svg .name{font-weight:bold}svg .faint{fill:var(--faint)}svg tspan.good{fill:var(--good)}\
svg tspan.warning{fill:var(--warning)}svg tspan.bad{fill:var(--bad)}svg rect.warning{stroke:var(--warning)}\
svg rect.bad{stroke:var(--bad);stroke-width:2}svg rect.tile{stroke:none;fill:var(--good)}\
svg rect.tile.warning{fill:var(--warning)}svg rect.tile.bad{fill:var(--bad)}";

pub(crate) fn svg(plan: &Plan, title: &str) -> String {
    let Plan { width, height, items } = plan;
    let title = escaped(&visible(title));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n"
    );
    items.iter().for_each(|item| write(item, &mut text));
    text + "</svg>\n"
}

fn write(item: &Item, text: &mut String) {
    // Writing to a String cannot fail.
    let _infallible = match item {
        Item::Frame { place, tone } => writeln!(text, "<rect class=\"{}\" {} rx=\"4\"/>", tone.name(), corners(*place)),
        Item::Tile { place, tone, title } => {
            let (tone, corners, title) = (tone.name(), corners(*place), escaped(&visible(title)));
            writeln!(text, "<rect class=\"tile {tone}\" {corners} rx=\"3\"><title>{title}</title></rect>")
        }
        Item::Wire { from: (x1, y1), to: (x2, y2) } => {
            writeln!(text, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>")
        }
        Item::Text { at: (x, y), line } => {
            // A reader's font may have other widths than the boxes are made for.
            let (y, length) = (y + BASELINE, plain(line).width() * COLUMN);
            let words = line
                .iter()
                .map(|part| format!("<tspan class=\"{}\">{}</tspan>", part.tone.name(), escaped(&part.text)));
            let words: String = words.collect();
            writeln!(
                text,
                "<text x=\"{x}\" y=\"{y}\" xml:space=\"preserve\" textLength=\"{length}\" \
                 lengthAdjust=\"spacingAndGlyphs\">{words}</text>"
            )
        }
    };
}

fn corners(Place { x, y, width, height }: Place) -> String {
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
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
