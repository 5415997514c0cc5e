//! Text from outside, shown to people: nothing of it acts on their terminal.

pub use cni_spec::json::{acts, visible};

/// Lines of text, in which all but line feeds and tabs that a terminal may act on is escaped.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    let is_layout = |c: char| matches!(c, '\n' | '\t');
    text.split_inclusive(is_layout)
        .map(|part| match part.strip_suffix(is_layout) {
            Some(body) => format!("{}{}", visible(body), &part[body.len()..]),
            None => visible(part),
        })
        .collect()
}

/// The text without the numbers that the standard library writes behind the system's words: ` (os error 2)`.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = text.split(BEFORE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => whole + rest,
        _ => whole + BEFORE + part,
    })
}

/// Columns that a cell gives its column at most. A longer one, such as a name of 253 letters, pushes only its own line aside.
const CELL_COLUMNS_MAX: usize = 80;

/// Lines of cells as a table: columns as wide as their widest cell, unless that is very long, two spaces apart.
#[must_use]
pub fn table<L: AsRef<[String]>>(lines: &[L]) -> String {
    let mut widths = Vec::new();
    for line in lines {
        for (column, cell) in line.as_ref().iter().enumerate() {
            widths.resize(widths.len().max(column + 1), 0);
            let count = cell.chars().count();
            widths[column] = widths[column].max(if count > CELL_COLUMNS_MAX { 0 } else { count });
        }
    }
    let padded = |line: &L| {
        let cells = line.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(padded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_are_aligned() {
        let lines = [["NAME", "AGE"], ["a", "10s"], ["é-long", ""]].map(|line| line.map(str::to_owned));
        assert_eq!(table(&lines), "NAME    AGE\na       10s\né-long\n");
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        assert_eq!(visible("a\u{1b}[2J\u{9b}\u{202e}\té\n"), "a\\u{1b}[2J\\u{9b}\\u{202e}\\té\\n");
        assert_eq!(visible_lines("a\u{1b}\n\tb\r\n"), "a\\u{1b}\n\tb\\r\n");
    }

    #[test]
    fn a_very_long_cell_pushes_only_its_own_line_aside() {
        let long = "x".repeat(253);
        let lines = [["NAME", "AGE"], ["a", "1s"], [&long, "2s"]].map(|line| line.map(str::to_owned));
        assert_eq!(table(&lines), format!("NAME  AGE\na     1s\n{long}  2s\n"));
    }

    #[test]
    fn numbers_of_the_system_are_left_out() {
        for (text, shown) in [
            ("cannot read a: No such file or directory (os error 2)", "cannot read a: No such file or directory"),
            ("a (os error 2); b (os error 13).", "a; b."),
            ("a (os error x)", "a (os error x)"),
        ] {
            assert_eq!(without_numbers(text), shown);
        }
    }
}
