//! The file of limits: reading it, comparing with it, writing it anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Folder, Metric, Seen};

/// What a count may be apart from its limit, in per mille of it.
struct Room {
    above: u64,
    below: u64,
}

/// Limits by call and metric, and the sizes of the executables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    bytes: BTreeMap<String, u64>,
    calls: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The file in the sources.
#[must_use]
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../limits.json")
}

impl Metric {
    /// The least of some calls must not be above its limit, but for what changes a little with addresses, seeds of hash
    /// maps and the processor. Far below it the limit says nothing any more. How many system calls and
    /// receptions a wait takes hangs on chance, and so does whether the least was ever seen.
    fn room(self) -> Room {
        let (above, below) = match self {
            // A call that waits for five others now and then has one more.
            Self::Syscalls => (5, 30),
            Self::Receives => (0, 150),
            Self::Sends | Self::Execs | Self::Forks | Self::Threads | Self::Opens | Self::Fsyncs => (0, 0),
            Self::PeakKib => (80, 150),
            Self::Faults => (80, 100),
            Self::Instructions => (30, 60),
        };
        Room { above, below }
    }
}

impl Limits {
    /// Reads the file; one that is not there has no limits.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let broken = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|error| broken(&error))?,
        };
        let all: Value = serde_json::from_str(&text).map_err(|error| broken(&error))?;
        let numbers = |value: &Value| {
            let mut numbers = BTreeMap::new();
            for (key, value) in value.as_object().into_iter().flatten() {
                let number = value.as_u64().ok_or_else(|| broken(&format_args!("{key} is no number")))?;
                numbers.insert(key.clone(), number);
            }
            Ok::<_, String>(numbers)
        };
        let calls = all["calls"].as_object().into_iter().flatten();
        let calls = calls.map(|(call, limits)| Ok::<_, String>((call.clone(), numbers(limits)?)));
        Ok(Self { bytes: numbers(&all["bytes"])?, calls: calls.collect::<Result<_, _>>()? })
    }

    /// The limits with these counts and sizes in their places.
    #[must_use]
    pub fn updated(mut self, all: &[Seen], sizes: &[(String, u64)]) -> Self {
        self.bytes.extend(sizes.iter().cloned());
        for seen in all {
            let limits = self.calls.entry(seen.call.clone()).or_default();
            let counted = |metric: Metric| Some((metric.name().to_owned(), seen.counts.get(metric)?));
            limits.extend(Metric::ALL.into_iter().filter_map(counted));
        }
        self
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        let about = "What each number is, and how to write them anew: exact/README.md";
        let call = |(name, limits): (&String, &BTreeMap<String, u64>)| {
            let in_order = Metric::ALL.iter().filter_map(|metric| Some((metric.name(), limits.get(metric.name())?)));
            let numbers = in_order.map(|(name, limit)| format!("{name:?}: {limit}")).collect::<Vec<_>>().join(", ");
            format!("    {:<20} {{ {numbers} }}", format!("{name:?}:"))
        };
        let calls = self.calls.iter().map(call).collect::<Vec<_>>().join(",\n");
        let sizes: Map<String, Value> = self.bytes.iter().map(|(name, size)| (name.clone(), json!(size))).collect();
        let sizes = Value::Object(sizes);
        format!("{{\n  \"about\": {about:?},\n  \"bytes\": {sizes},\n  \"calls\": {{\n{calls}\n  }}\n}}\n")
    }

    /// Compares counts, of which only those that `is_wanted`; a sentence for each that is not as its limit says.
    #[must_use]
    pub fn compare(&self, all: &[Seen], is_wanted: fn(Metric) -> bool) -> Vec<String> {
        let mut sentences = Vec::new();
        for seen in all {
            for metric in Metric::ALL.into_iter().filter(|metric| is_wanted(*metric)) {
                let sentence = match (self.of(seen, metric), seen.counts.get(metric)) {
                    (Some(limit), Some(count)) => metric.room().judge(limit, count),
                    (None, Some(count)) => Some(format!("{count}, and there is no limit: write the file anew")),
                    (_, None) => None,
                };
                sentences.extend(sentence.map(|sentence| format!("{}: {}: {sentence}", seen.call, metric.words())));
            }
        }
        sentences
    }

    /// Whether a count that `is_wanted` is above its limit, or has none.
    #[must_use]
    pub fn are_exceeded(&self, all: &[Seen], is_wanted: fn(Metric) -> bool) -> bool {
        let is_above = |seen: &Seen, metric: Metric| match (self.of(seen, metric), seen.counts.get(metric)) {
            (Some(limit), Some(count)) => count > metric.room().most(limit),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let wanted = || Metric::ALL.into_iter().filter(|metric| is_wanted(*metric));
        all.iter().any(|seen| wanted().any(|metric| is_above(seen, metric)))
    }

    /// The calls that have limits.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.calls.keys().map(String::as_str)
    }

    fn of(&self, seen: &Seen, metric: Metric) -> Option<u64> {
        self.calls.get(&seen.call)?.get(metric.name()).copied()
    }

    /// Compares sizes.
    #[must_use]
    pub fn compare_sizes(&self, sizes: &[(String, u64)]) -> Vec<String> {
        let judge_size = |(name, size): &(String, u64)| match self.bytes.get(name) {
            Some(limit) => Room { above: 5, below: 20 }.judge(*limit, *size),
            None => Some(format!("{size}, and there is no limit: write the file anew")),
        };
        let sentences = sizes.iter().filter_map(|size| Some(format!("{}: bytes: {}", size.0, judge_size(size)?)));
        sentences.collect()
    }
}

impl Room {
    fn most(&self, limit: u64) -> u64 {
        limit + limit * self.above / 1000
    }

    fn least(&self, limit: u64) -> u64 {
        limit - limit * self.below / 1000
    }

    fn judge(&self, limit: u64, count: u64) -> Option<String> {
        let room = match self.most(limit) - limit {
            0 => String::new(),
            room => format!(" (and {room} of room)"),
        };
        if count > self.most(limit) {
            return Some(format!("{count} are more than the limit of {limit}{room}"));
        }
        (count < self.least(limit)).then(|| format!("{count} are fewer than the limit of {limit}: lower the limit"))
    }
}

/// The sizes of the executables in bytes.
///
/// # Errors
/// One is not there.
pub fn sizes(folder: &Folder) -> Result<Vec<(String, u64)>, String> {
    let size = |(name, path): (&str, &Path)| match path.metadata() {
        Ok(about) => Ok((name.to_owned(), about.len())),
        Err(error) => Err(format!("cannot look at {}: {error}", path.display())),
    };
    [("cni-plugins", &*folder.plugins), ("cnitool", &*folder.cnitool)].into_iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;

    fn seen(counts: &[(Metric, u64)]) -> Seen {
        let mut all = Counts::default();
        counts.iter().for_each(|(metric, count)| all.note(*metric, *count));
        Seen { call: "bridge ADD".into(), counts: all, names: BTreeMap::new(), functions: Vec::new() }
    }

    fn limits(counts: &[(Metric, u64)]) -> Limits {
        Limits::default().updated(&[seen(counts)], &[("cnitool".into(), 1000)])
    }

    #[test]
    fn what_is_above_or_far_below_its_limit_is_told() {
        let limits = limits(&[(Metric::Sends, 10), (Metric::Instructions, 1000)]);
        let told = |sends, instructions| {
            limits.compare(&[seen(&[(Metric::Sends, sends), (Metric::Instructions, instructions)])], |_| true)
        };
        assert_eq!(told(10, 1030), Vec::<String>::new());
        assert_eq!(told(10, 940), Vec::<String>::new());
        assert_eq!(
            told(11, 1031),
            [
                "bridge ADD: sends to the kernel: 11 are more than the limit of 10",
                "bridge ADD: instructions: 1031 are more than the limit of 1000 (and 30 of room)",
            ]
        );
        assert_eq!(
            told(9, 939),
            [
                "bridge ADD: sends to the kernel: 9 are fewer than the limit of 10: lower the limit",
                "bridge ADD: instructions: 939 are fewer than the limit of 1000: lower the limit",
            ]
        );
        assert_eq!(limits.compare_sizes(&[("cnitool".into(), 1006)]).len(), 1);
        assert_eq!(limits.compare_sizes(&[("cnitool".into(), 1005)]).len(), 0);
    }

    #[test]
    fn what_has_no_limit_is_told() {
        let told = Limits::default().compare(&[seen(&[(Metric::Opens, 1)])], |_| true);
        assert_eq!(told, ["bridge ADD: files opened: 1, and there is no limit: write the file anew"]);
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let limits = limits(&[(Metric::Syscalls, 100), (Metric::PeakKib, 3000)]);
        let file = std::env::temp_dir().join(format!("limits-{}.json", std::process::id()));
        std::fs::write(&file, limits.text()).unwrap();
        let again = Limits::read(&file);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(again.unwrap(), limits);
        assert_eq!(Limits::read(&file).unwrap(), Limits::default());
    }
}
