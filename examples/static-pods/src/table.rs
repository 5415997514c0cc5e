//! The board as a table.

use crate::board::{Board, Phase, PodStatus};
use crate::manifest::Key;

/// Columns of a cell's lines: a pod with two addresses takes two lines.
type Row = [Vec<String>; 5];

const HEADS: [&str; 5] = ["POD", "PHASE", "ADDRESSES", "NETWORKS", "AGE"];
const GAP: usize = 2;
/// Lines that one error may take.
const ERROR_LINES: usize = 3;

/// The table, a line each, none wider than `width` columns. `now` is in seconds since 1970.
pub(crate) fn render(board: &Board, now: u64, width: usize) -> Vec<String> {
    let width = width.max(20);
    let mut lines = vec![fit(&format!("network {}", board.network), width), String::new()];
    let notes = |pod: &PodStatus| pod.error.iter().cloned().chain(pod.warnings.iter().map(warning)).collect();
    let rows: Vec<(Row, Vec<String>)> = board.pods.iter().map(|(key, pod)| (row(key, pod, now), notes(pod))).collect();
    let widths = widths(&rows, width);
    if !rows.is_empty() {
        lines.push(laid_out(&HEADS.map(str::to_owned), &widths));
    }
    for (row, notes) in &rows {
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            lines.push(laid_out(&row.each_ref().map(|cell| cell.get(line).cloned().unwrap_or_default()), &widths));
        }
        lines.extend(notes.iter().flat_map(|note| wrapped(note, width)));
    }
    for (file, problems) in &board.problems {
        lines.push(fit(&format!("{file} rejected:"), width));
        lines.extend(problems.iter().flat_map(|problem| wrapped(problem, width)));
    }
    if rows.is_empty() && board.problems.is_empty() {
        lines.push("no pods: put a manifest into the folder".to_owned());
    }
    lines
}

fn row(key: &Key, pod: &PodStatus, now: u64) -> Row {
    let dash = || vec!["-".to_owned()];
    let addresses = match (pod.host_network, pod.addresses.is_empty()) {
        (true, _) => vec!["the node's".to_owned()],
        (false, true) => dash(),
        (false, false) => pod.addresses.iter().map(ToString::to_string).collect(),
    };
    let networks = if pod.networks.is_empty() { dash() } else { pod.networks.clone() };
    let age = pod.created.map_or_else(|| "-".to_owned(), |created| age(now.saturating_sub(created)));
    [vec![key.to_string()], vec![pod.phase.to_string()], addresses, networks, vec![age]]
}

/// As wide as the contents, and narrowed from the first column on where the terminal is too narrow.
fn widths(rows: &[(Row, Vec<String>)], width: usize) -> [usize; 5] {
    let mut widths = HEADS.map(str::len);
    for (row, _) in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = cell.iter().map(|text| text.chars().count()).fold(*widest, usize::max);
        }
    }
    let mut excess = (widths.iter().sum::<usize>() + GAP * (widths.len() - 1)).saturating_sub(width);
    // The start of names and networks identifies them; an address has to be whole, so it is narrowed last.
    for (column, least) in [(0, 12), (3, 8), (2, 10)] {
        let give = excess.min(widths[column].saturating_sub(least));
        widths[column] -= give;
        excess -= give;
    }
    widths
}

fn laid_out(cells: &[String; 5], widths: &[usize; 5]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| {
        let cell = fit(cell, *width);
        format!("{cell:width$}{:GAP$}", "")
    });
    padded.collect::<String>().trim_end().to_owned()
}

/// The text, or its beginning.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// An error or a warning below its pod, in a few lines.
fn wrapped(error: &str, width: usize) -> Vec<String> {
    let (indent, width) = ("  ", width - 2);
    let mut lines = vec![String::new()];
    for word in printable(error).split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    if lines.len() > ERROR_LINES {
        lines.truncate(ERROR_LINES);
        lines.iter_mut().skip(ERROR_LINES - 1).for_each(|line| line.push_str(" …"));
    }
    lines.into_iter().map(|line| format!("{indent}{}", fit(&line, width))).collect()
}

/// On one line, and without what a terminal would take for a command: plugins' messages may contain anything.
pub(crate) fn printable(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.chars().filter(|c| !c.is_control()).collect::<String>());
    words.collect::<Vec<_>>().join(" ")
}

/// As `kubectl` has it: two units at most.
fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}m", minutes % 60),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// A change in one line, for a log.
pub(crate) fn change(key: &Key, pod: &PodStatus) -> String {
    let mut line = format!("pod {key}: {}", pod.phase);
    if pod.phase == Phase::Running {
        match pod.host_network {
            true => line.push_str(" in the node's network"),
            false => {
                let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
                line.push_str(&format!(" addresses={} networks={}", addresses.join(","), pod.networks.join(",")));
            }
        }
        line.push_str(&pod.pid.map(|pid| format!(" pid={pid}")).unwrap_or_default());
    }
    if let Some(error) = &pod.error {
        line.push_str(&format!(": {}", printable(error)));
    }
    for text in &pod.warnings {
        line.push_str(&format!(": {}", printable(&warning(text))));
    }
    line
}

fn warning(text: &String) -> String {
    format!("warning: {text}")
}

#[cfg(test)]
mod tests;
