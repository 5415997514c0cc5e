//! Values from outside in error texts: nothing of them acts on a terminal.

/// Whether a terminal may act on it: controls, marks of direction, and what has no width.
#[must_use]
pub fn acts(c: char) -> bool {
    let marks = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    let is_mark = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || is_mark || marks.contains(&c)
}

/// The text in one line, with all that a terminal may act on escaped.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if acts(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}
