//! The numbers of one call.

use std::collections::BTreeMap;

/// A quantity that is counted; README.md says how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// System calls of all processes and threads.
    Syscalls,
    /// Sends on sockets: each is a netlink request or several.
    Sends,
    /// Receptions from sockets.
    Receives,
    /// Child processes that became another program.
    Execs,
    /// Child processes that stayed what they were.
    Forks,
    /// Threads beside the first of each process.
    Threads,
    /// Files opened, or tried to.
    Opens,
    /// Files made durable.
    Fsyncs,
    Faults,
    /// The most memory that a process had resident, in KiB.
    PeakKib,
    /// Instructions of the called process.
    Instructions,
}

impl Metric {
    pub const ALL: [Self; 11] = [
        Self::Syscalls,
        Self::Sends,
        Self::Receives,
        Self::Execs,
        Self::Forks,
        Self::Threads,
        Self::Opens,
        Self::Fsyncs,
        Self::Faults,
        Self::PeakKib,
        Self::Instructions,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Syscalls => "syscalls",
            Self::Sends => "sends",
            Self::Receives => "receives",
            Self::Execs => "execs",
            Self::Forks => "forks",
            Self::Threads => "threads",
            Self::Opens => "opens",
            Self::Fsyncs => "fsyncs",
            Self::Faults => "faults",
            Self::PeakKib => "peak_kib",
            Self::Instructions => "instructions",
        }
    }

    /// Returns what the metric counts, for a message.
    pub fn label(self) -> &'static str {
        match self {
            Self::Syscalls => "system calls",
            Self::Sends => "sends to the kernel",
            Self::Receives => "receptions from the kernel",
            Self::Execs => "child processes with another program",
            Self::Forks => "child processes with the same program",
            Self::Threads => "threads",
            Self::Opens => "files opened",
            Self::Fsyncs => "files made durable",
            Self::Faults => "page faults",
            Self::PeakKib => "KiB of memory at most",
            Self::Instructions => "instructions",
        }
    }

    /// Returns whether the metric has a limit: it does if it counts what a call asks of the kernel. The rest also
    /// depends on the linker, the allocator, the processor and chance, and is only reported.
    pub fn has_limit(self) -> bool {
        matches!(self, Self::Syscalls) || self.has_limit_in_every_profile()
    }

    /// Whether an unoptimised executable has to keep the limit, too.
    pub fn has_limit_in_every_profile(self) -> bool {
        matches!(self, Self::Sends | Self::Execs | Self::Forks | Self::Threads | Self::Fsyncs)
    }
}

/// Counts by metric; what was not counted is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Metric, u64>);

impl Counts {
    /// Notes a count; of several the smallest stays, as what disturbs a call only ever adds.
    pub(crate) fn note(&mut self, metric: Metric, count: u64) {
        let least = self.0.get(&metric).map_or(count, |known| count.min(*known));
        self.0.insert(metric, least);
    }

    pub fn get(&self, metric: Metric) -> Option<u64> {
        self.0.get(&metric).copied()
    }
}
