//! Counts as a table for people.

use std::fmt::Write;

use super::{CountedCall, Metric};

/// Returns a table with a line for each call.
pub fn table(all: &[CountedCall]) -> String {
    let header = std::iter::once("call".to_owned()).chain(Metric::ALL.iter().map(|metric| metric.name().to_owned()));
    let row = |seen: &CountedCall| {
        let counts = Metric::ALL.iter().map(|metric| seen.counts.get(*metric).map_or("-".to_owned(), grouped));
        std::iter::once(seen.call.clone()).chain(counts).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = std::iter::once(header.collect()).chain(all.iter().map(row)).collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..=Metric::ALL.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            }
            .ok();
        }
        text.push('\n');
    }
    text
}

/// How often each call made each system call, the most frequent first.
pub fn system_calls(all: &[CountedCall]) -> String {
    let mut text = String::new();
    for seen in all {
        let mut names: Vec<_> = seen.names.iter().collect();
        names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let names: Vec<_> = names.iter().map(|(name, count)| format!("{name} {count}")).collect();
        // Writing to a String cannot fail.
        writeln!(text, "{}: {}", seen.call, names.join(", ")).ok();
    }
    text
}

/// `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
