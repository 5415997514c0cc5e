//! A table of a few words a cell. By hand: forty lines, for a crate that lays tables out brings its own idea of a
//! terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// A table. All but the first column may be narrower than their heads: heads that do not fit become letters with a key
/// below, so that nothing is cut off.
#[derive(Debug)]
pub(super) struct Table {
    heads: Vec<String>,
    key: Vec<(String, String)>,
    rows: Vec<Row>,
    room: usize,
}

#[derive(Debug)]
enum Row {
    Heading(String),
    Cells(Vec<(String, Style)>),
}

impl Table {
    /// An empty table that should not be wider than `room`.
    pub(super) fn new(heads: impl IntoIterator<Item = String>, room: usize) -> Self {
        Self { heads: heads.into_iter().collect(), key: Vec::new(), rows: Vec::new(), room }
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.rows.push(Row::Heading(text.to_owned()));
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = (String, Style)>) {
        self.rows.push(Row::Cells(cells.into_iter().collect()));
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |column: usize| {
            self.rows.iter().filter_map(move |row| match row {
                Row::Heading(_) => None,
                Row::Cells(cells) => cells.get(column).map(|(text, _)| text.width()),
            })
        };
        let widest = |(column, head): (usize, &String)| cells(column).chain([head.width()]).max().unwrap_or(0);
        self.heads.iter().enumerate().map(widest).collect()
    }

    pub(super) fn width(&self) -> usize {
        self.widths().iter().sum::<usize>() + 2 * self.heads.len().saturating_sub(1)
    }

    pub(super) fn text(mut self) -> String {
        if self.width() > self.room {
            self.shorten_heads();
        }
        let widths = self.widths();
        let bold = Style::new().bold();
        let heads: Vec<_> = self.heads.iter().map(|head| (head.clone(), bold)).collect();
        let mut out = line(&heads, &widths);
        for row in &self.rows {
            match row {
                Row::Heading(text) => out += &format!("{bold}{text}{bold:#}\n"),
                Row::Cells(cells) => out += &line(cells, &widths),
            }
        }
        self.key.iter().for_each(|(letter, head)| out += &format!("{letter}: {head}\n"));
        out
    }

    /// Puts letters in place of the heads that are wider than their cells.
    fn shorten_heads(&mut self) {
        let rows = std::mem::take(&mut self.heads);
        let blank = Self {
            heads: vec![String::new(); rows.len()],
            key: Vec::new(),
            rows: std::mem::take(&mut self.rows),
            room: 0,
        };
        let cells = blank.widths();
        self.rows = blank.rows;
        let letters =
            (b'A'..=b'Z').map(|letter| char::from(letter).to_string()).chain((1..).map(|number| format!("#{number}")));
        let mut letters = letters;
        for (place, head) in rows.into_iter().enumerate() {
            if place > 0 && head.width() > cells[place] && head.width() > 5 {
                let letter = letters.next().unwrap_or_default();
                self.key.push((letter.clone(), head));
                self.heads.push(letter);
            } else {
                self.heads.push(head);
            }
        }
    }
}

fn line(cells: &[(String, Style)], widths: &[usize]) -> String {
    let mut out = String::new();
    for (place, ((text, style), width)) in cells.iter().zip(widths).enumerate() {
        let gap =
            if place + 1 < cells.len() { " ".repeat(width - text.width().min(*width) + 2) } else { String::new() };
        out += &format!("{style}{text}{style:#}{gap}");
    }
    out.push('\n');
    out
}
