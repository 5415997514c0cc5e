//! The conditions of a run: when, on what machine, and by which command.

use std::fs;
use std::thread::available_parallelism;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

/// When, where, and how.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// `2026-11-21`.
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) processors: usize,
    /// Processes that were running, on average over the minute before.
    pub(crate) load: f64,
    /// The time of one `CPUID`, in nanoseconds: on a virtual machine an exit to the hypervisor, of which glibc's start makes many and
    /// musl's none. None on other processors, and in reports of before.
    #[serde(default)]
    pub(crate) cpuid_ns: Option<u64>,
    /// The arguments of the benchmark.
    pub(crate) command: Vec<String>,
}

impl Conditions {
    /// Now and here.
    pub(crate) fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let about = read("/proc/cpuinfo");
        let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self {
            date: now.split('T').next().unwrap_or_default().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned()),
            processors: available_parallelism().map_or(1, usize::from),
            load: read("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            cpuid_ns: cpuid_ns(),
            command: command(std::env::args().skip(1)),
        }
    }
}

/// The least of a thousand, so that no interruption counts.
#[cfg(target_arch = "x86_64")]
fn cpuid_ns() -> Option<u64> {
    let one = || {
        let start = Instant::now();
        std::hint::black_box(std::arch::x86_64::__cpuid(0));
        start.elapsed().as_nanos()
    };
    (0..1000).map(|_| one()).min().and_then(|least| u64::try_from(least).ok())
}

#[cfg(not(target_arch = "x86_64"))]
const fn cpuid_ns() -> Option<u64> {
    None
}

/// The arguments without those that only say where the figures go.
fn command(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in arguments {
        let (name, takes_value) = (word.split('=').next().unwrap_or_default(), !word.contains('='));
        match name {
            _ if is_value => is_value = false,
            "--json" => is_value = takes_value,
            "--bench" => {}
            _ => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn the_command_is_what_decides_the_figures() {
        let arguments = "--bench --only bridge --json /x --subject a=b --json=z --pods 3".split(' ');
        let kept = command(arguments.map(str::to_owned)).join(" ");
        assert_eq!(kept, "--only bridge --subject a=b --pods 3");
    }
}
