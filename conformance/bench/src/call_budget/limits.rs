//! The file of limits: reading it, comparing with it, writing it anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CountedCall, Metric};

/// Bytes of the plugins' executable without a plugin: the standard library, netlink, JSON, logs, records of calls (30 kB),
/// and what lets it run on kernels and file systems that lack newer features (70 kB).
const BASE_BYTES: u64 = 4_060_000;
/// Bytes that a plugin may add, on average: its keys, its plan and its steps. Dispatch and drivers are compiled once.
const PLUGIN_BYTES: u64 = 77_500;
/// Bytes of dhcp beyond those of a plugin: a daemon, and the crate that has every option of DHCP (783 kB in all, of them 175 for
/// IPv6, November 2026).
const DAEMON_BYTES: u64 = 720_000;

/// Upper limits by call and metric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    calls: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The file in the sources.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.json")
}

impl Metric {
    /// The most that a count may be. The least of some calls counts, so it has to keep the limit itself; a call that waits
    /// for five others now and then has one system call more.
    fn most(self, limit: u64) -> u64 {
        match self {
            Self::Syscalls => limit + limit / 50,
            _ => limit,
        }
    }
}

impl Limits {
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
        Ok(Self { calls: calls.collect::<Result<_, _>>()? })
    }

    pub fn updated(mut self, all: &[CountedCall]) -> Self {
        for seen in all {
            let counted = |metric: Metric| Some((metric.name().to_owned(), seen.counts.get(metric)?));
            let limits = Metric::ALL.into_iter().filter(|metric| metric.has_limit()).filter_map(counted);
            self.calls.insert(seen.call.clone(), limits.collect());
        }
        self
    }

    pub fn text(&self) -> String {
        let about = "What each number is, and how to write them anew: conformance/bench/README.md";
        let call = |(name, limits): (&String, &BTreeMap<String, u64>)| {
            let in_order = Metric::ALL.iter().filter_map(|metric| Some((metric.name(), limits.get(metric.name())?)));
            let numbers = in_order.map(|(name, limit)| format!("{name:?}: {limit}")).collect::<Vec<_>>().join(", ");
            format!("    {:<20} {{ {numbers} }}", format!("{name:?}:"))
        };
        let calls = self.calls.iter().map(call).collect::<Vec<_>>().join(",\n");
        format!("{{\n  \"about\": {about:?},\n  \"calls\": {{\n{calls}\n  }}\n}}\n")
    }

    /// Compares counts, of which only those that `is_wanted`; a sentence for each that is above its limit.
    pub fn compare(&self, all: &[CountedCall], is_wanted: fn(Metric) -> bool) -> Vec<String> {
        let mut sentences = Vec::new();
        for seen in all {
            for metric in Metric::ALL.into_iter().filter(|metric| is_wanted(*metric)) {
                let sentence = match (self.of(seen, metric), seen.counts.get(metric)) {
                    (Some(limit), Some(count)) if count > metric.most(limit) => {
                        Some(format!("{count} are more than the limit of {limit}"))
                    }
                    (None, Some(count)) => Some(format!("{count}, and there is no limit: write the file anew")),
                    (Some(_), Some(_)) | (_, None) => None,
                };
                sentences.extend(sentence.map(|sentence| format!("{}: {}: {sentence}", seen.call, metric.label())));
            }
        }
        sentences
    }

    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.calls.keys().map(String::as_str)
    }

    fn of(&self, seen: &CountedCall, metric: Metric) -> Option<u64> {
        self.calls.get(&seen.call)?.get(metric.name()).copied()
    }
}

/// Compares the size of the executable that is all plugins with its budget, which grows with their number.
pub fn compare_size(bytes: u64, plugins: usize) -> Option<String> {
    let budget = BASE_BYTES + DAEMON_BYTES + PLUGIN_BYTES * u64::try_from(plugins).unwrap_or(u64::MAX);
    (bytes > budget)
        .then(|| format!("cni-plugins: {bytes} bytes are more than the budget of {budget} for {plugins} plugins"))
}

/// The size of an executable in bytes.
pub fn size(path: &Path) -> Result<u64, String> {
    path.metadata().map(|about| about.len()).map_err(|error| format!("cannot look at {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_budget::Counts;

    fn seen(counts: &[(Metric, u64)]) -> CountedCall {
        let mut all = Counts::default();
        counts.iter().for_each(|(metric, count)| all.note(*metric, *count));
        CountedCall { call: "bridge ADD".into(), counts: all, names: BTreeMap::new(), functions: Vec::new() }
    }

    fn limits(counts: &[(Metric, u64)]) -> Limits {
        Limits::default().updated(&[seen(counts)])
    }

    #[test]
    fn a_count_above_its_limit_is_reported() {
        let limits = limits(&[(Metric::Sends, 10), (Metric::Syscalls, 200), (Metric::Faults, 50)]);
        let compare = |sends, syscalls, faults| {
            let counts = [(Metric::Sends, sends), (Metric::Syscalls, syscalls), (Metric::Faults, faults)];
            limits.compare(&[seen(&counts)], Metric::has_limit)
        };
        assert_eq!(compare(10, 204, 1000), Vec::<String>::new());
        assert_eq!(compare(1, 1, 1), Vec::<String>::new());
        assert_eq!(
            compare(11, 205, 50),
            [
                "bridge ADD: system calls: 205 are more than the limit of 200",
                "bridge ADD: sends to the kernel: 11 are more than the limit of 10",
            ]
        );
    }

    #[test]
    fn a_count_without_a_limit_is_reported() {
        let sentences = Limits::default().compare(&[seen(&[(Metric::Forks, 1)])], Metric::has_limit);
        assert_eq!(
            sentences,
            ["bridge ADD: child processes with the same program: 1, and there is no limit: write the file anew"]
        );
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let limits = limits(&[(Metric::Syscalls, 100), (Metric::Forks, 1), (Metric::PeakKib, 3000)]);
        let file = std::env::temp_dir().join(format!("limits-{}.json", std::process::id()));
        std::fs::write(&file, limits.text()).unwrap();
        let again = Limits::read(&file);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(again.unwrap(), limits);
        assert_eq!(Limits::read(&file).unwrap(), Limits::default());
    }
}
