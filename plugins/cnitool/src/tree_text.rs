//! Trees of text for a terminal, at most [`COLUMNS_MAX`] wide: lines of coloured words, and what is below each.

use std::fmt::{Display, Write};

use crate::output::{columns, has_colour, say};
use anstyle::{AnsiColor, Style};
use cni_suite::text::visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a line where no terminal says how many it has: longer ones go on below.
pub const COLUMNS: usize = 80;

/// Columns of a line at most: a longer one is not read well.
pub const COLUMNS_MAX: usize = 120;

/// A line of the tree, and what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    pub line: Vec<Part>,
    pub below: Vec<Branch>,
}

/// Some words of a line. Nothing in them acts on a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub tone: Tone,
    pub text: String,
    /// Columns that the part takes at least, before another one follows it: rows below each other are aligned by it.
    pub columns: usize,
}

/// What words are, from which their colour follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// The name of a network or container.
    Name,
    /// A line of less importance.
    Faint,
    /// A line about what is as it should be.
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// The tone's name in pictures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Name => "name",
            Self::Faint => "faint",
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Name => Style::new().bold(),
            Self::Faint => Style::new().dimmed(),
            Self::Good => colour(AnsiColor::Green),
            Self::Warning => colour(AnsiColor::Yellow),
            Self::Bad => colour(AnsiColor::Red),
        }
    }
}

impl Branch {
    /// A line of these words, with nothing below it.
    pub fn new(tone: Tone, text: impl Display) -> Self {
        Self { line: Vec::new(), below: Vec::new() }.and(tone, text)
    }

    /// The same of no particular tone.
    pub fn plain(text: impl Display) -> Self {
        Self::new(Tone::Plain, text)
    }

    /// The line with more words.
    pub fn and(self, tone: Tone, text: impl Display) -> Self {
        self.and_wide(tone, text, 0)
    }

    /// The line with more words, which take so many columns at least.
    pub(crate) fn and_wide(mut self, tone: Tone, text: impl Display, columns: usize) -> Self {
        self.line.push(Part { tone, text: visible(&text.to_string()), columns });
        self
    }

    pub fn with(mut self, below: impl IntoIterator<Item = Branch>) -> Self {
        self.below.extend(below);
        self
    }
}

/// Prints trees as wide as the terminal is.
pub(crate) fn print(trees: &[Branch]) -> anyhow::Result<()> {
    let text = text_within(columns(), trees);
    say(if has_colour() { text } else { anstream::adapter::strip_str(&text).to_string() }.as_bytes())
}

/// The trees as lines, with the escapes of colours; a stream that wants none removes them.
pub fn text(trees: &[Branch]) -> String {
    text_within(COLUMNS, trees)
}

/// The same, for a terminal of so many columns.
pub fn text_within(columns: usize, trees: &[Branch]) -> String {
    let mut text = String::new();
    for tree in trees {
        write_lines(columns, &tree.line, ["", ""], &mut text);
        write_below(columns, tree, "", &mut text);
    }
    text
}

fn write_below(columns: usize, tree: &Branch, before: &str, text: &mut String) {
    for (place, branch) in tree.below.iter().enumerate() {
        let is_last = place + 1 == tree.below.len();
        let (here, then) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let below = if branch.below.is_empty() { "  " } else { "│ " };
        write_lines(columns, &branch.line, [&format!("{before}{here}"), &format!("{before}{then}{below}")], text);
        write_below(columns, branch, &format!("{before}{then}"), text);
    }
}

/// Writes a line between words into as many as it takes.
fn write_lines(columns: usize, line: &[Part], [first, next]: [&str; 2], text: &mut String) {
    let room = |before: &str| columns.saturating_sub(before.width());
    for (place, parts) in wrapped(line, room(first), room(next)).iter().enumerate() {
        text.push_str(if place == 0 { first } else { next });
        parts.iter().for_each(|part| styled(part.tone.style(), &part.text, text));
        text.push('\n');
    }
}

/// A line as lines of at most so many columns, between words; a word that has no room in any is cut into pieces. Parts keep two
/// columns between them, words one.
pub(crate) fn wrapped(line: &[Part], first: usize, next: usize) -> Vec<Vec<Part>> {
    let mut lines: Vec<Vec<Part>> = vec![Vec::new()];
    let (mut column, mut gap, mut columns) = (0, 0, first);
    let push = |lines: &mut Vec<Vec<Part>>, tone, text| {
        if let Some(line) = lines.last_mut() {
            line.push(Part { tone, text, columns: 0 });
        }
    };
    for part in line {
        let start = column + gap;
        for word in part.text.split_whitespace() {
            let width = word.width();
            if column + gap + width > columns && column > 0 {
                lines.push(Vec::new());
                (column, gap, columns) = (0, 0, next);
            }
            if gap > 0 {
                push(&mut lines, Tone::Plain, " ".repeat(gap));
            }
            column += gap;
            let mut piece = String::new();
            for c in word.chars() {
                let width = c.width().unwrap_or(0);
                if column + width > columns && column > 0 {
                    // After a mark of its own, if the line is half full then.
                    let mark = piece.rfind(['/', '-', '.', ':']).map(|at| at + 1).filter(|at| at * 2 > columns);
                    let rest = mark.map_or(String::new(), |at| piece.split_off(at));
                    push(&mut lines, part.tone, std::mem::replace(&mut piece, rest));
                    lines.push(Vec::new());
                    (column, columns) = (piece.width(), next);
                }
                piece.push(c);
                column += width;
            }
            push(&mut lines, part.tone, piece);
            gap = 1;
        }
        gap = 2;
        if column < start + part.columns && lines.len() == 1 {
            gap += start + part.columns - column;
        }
    }
    lines
}

fn styled(style: Style, words: &str, text: &mut String) {
    // Writing to a String cannot fail.
    let _infallible = write!(text, "{style}{words}{style:#}");
}
