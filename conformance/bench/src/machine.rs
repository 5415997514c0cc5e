//! When and where a report was made.

use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::report::Made;

impl Made {
    /// Now and here.
    pub(crate) fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let about = read("/proc/cpuinfo");
        let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            date: date(seconds / (24 * 60 * 60)),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned()),
            processors: available_parallelism().map_or(1, usize::from),
            load: read("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            command: command(std::env::args().skip(1)),
        }
    }
}

/// Words of the command line without those that only say where the figures go.
fn command(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in words {
        let (name, takes_value) = (word.split('=').next().unwrap_or_default(), !word.contains('='));
        match name {
            _ if is_value => is_value = false,
            "--json" | "--svg" => is_value = takes_value,
            "--bench" | "--write-readme" => {}
            _ => kept.push(word),
        }
    }
    kept
}

/// The date of a day since 1970, in the Gregorian calendar.
fn date(mut day: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::{command, date};

    #[test]
    fn the_command_is_what_decides_the_figures() {
        let words = "--bench --only bridge --json /x --svg=y --subject a=b --write-readme --json=z --pods 3".split(' ');
        let kept = command(words.map(str::to_owned)).join(" ");
        assert_eq!(kept, "--only bridge --subject a=b --pods 3");
    }

    #[test]
    fn days_have_dates() {
        let dates = [0, 58, 59, 365, 11_016, 11_017, 20_778].map(date);
        assert_eq!(
            dates,
            ["1970-01-01", "1970-02-28", "1970-03-01", "1971-01-01", "2000-02-29", "2000-03-01", "2026-11-21"]
        );
    }
}
