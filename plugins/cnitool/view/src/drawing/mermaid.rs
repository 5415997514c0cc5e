//! For Mermaid, which wikis and code hosts draw: <https://mermaid.js.org/syntax/flowchart.html>.

use std::fmt::Write;

use super::{Drawing, plain};

/// The drawing as a flowchart.
#[must_use]
pub fn mermaid(drawing: &Drawing) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for (place, cell) in drawing.cells.iter().enumerate() {
        let lines: Vec<_> = cell.text.iter().map(|line| escaped(&plain(line))).collect();
        // Writing to a String cannot fail; so below.
        let _infallible = writeln!(text, "  n{place}[\"{}\"]:::{}", lines.join("<br/>"), cell.tone.name());
    }
    for (from, to) in &drawing.lines {
        let _infallible = writeln!(text, "  n{from} --- n{to}");
    }
    text + "  classDef plain stroke:#888\n  classDef good stroke:#2a2\n  classDef warning stroke:#c80\n  classDef bad stroke:#c22,stroke-width:2px\n"
}

/// Letters, digits and a few harmless signs as they are, anything else by its number: in a label, quotes, backticks, `#`,
/// `;`, `<` and `&` have a meaning, and `end` in words has none.
fn escaped(text: &str) -> String {
    let is_harmless =
        |c: char| c.is_alphanumeric() || matches!(c, ' ' | '.' | ',' | ':' | '/' | '-' | '_' | '%' | '█' | '░');
    let mut escaped = String::new();
    for c in text.chars() {
        if is_harmless(c) {
            escaped.push(c);
        } else {
            let _infallible = write!(escaped, "#{};", u32::from(c));
        }
    }
    escaped
}
