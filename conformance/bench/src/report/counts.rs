//! TraceCounts of a trace: system calls, messages, processes.

use testns::trace::ProgramTrace;

use super::TraceCounts;

impl TraceCounts {
    /// Adds one more program.
    pub(crate) fn add(&mut self, seen: &ProgramTrace) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (children, first) = (seen.processes.get(1..).unwrap_or_default(), seen.processes.first());
        let became = children.iter().filter(|process| process.execs > 0).count();
        self.syscalls += count(seen.calls.len());
        self.messages += count(seen.messages.len());
        self.forks += count(children.len() - became);
        self.execs += count(became);
        self.threads += seen.processes.iter().map(|process| count(process.threads)).sum::<u64>();
        let largest = first.into_iter().chain(children).map(|process| process.peak_kib).max();
        self.peak_kib = self.peak_kib.max(largest.unwrap_or_default());
    }

    /// The median of each count, by itself.
    pub(crate) fn median(all: &[Self]) -> Option<Self> {
        let median = |read: fn(&Self) -> u64| {
            let mut values: Vec<_> = all.iter().map(read).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        Some(Self {
            syscalls: median(|counts| counts.syscalls)?,
            messages: median(|counts| counts.messages)?,
            forks: median(|counts| counts.forks)?,
            execs: median(|counts| counts.execs)?,
            threads: median(|counts| counts.threads)?,
            peak_kib: median(|counts| counts.peak_kib)?,
        })
    }
}
