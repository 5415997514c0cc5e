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
            command: std::env::args().skip(1).filter(|word| word != "--bench").collect(),
        }
    }
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
    use super::date;

    #[test]
    fn days_have_dates() {
        let dates = [0, 58, 59, 365, 11_016, 11_017, 20_778].map(date);
        assert_eq!(
            dates,
            ["1970-01-01", "1970-02-28", "1970-03-01", "1971-01-01", "2000-02-29", "2000-03-01", "2026-11-21"]
        );
    }
}
