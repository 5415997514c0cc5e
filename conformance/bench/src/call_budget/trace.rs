//! Counting under ptrace.

use std::collections::BTreeMap;

use testns::trace::Program;
use testns::{Node, Output, orphans};

use super::invocation::{DEADLINE, Invocation};
use super::metric::{Counts, Metric};

/// Makes a call and counts what it does; says how often it made each system call.
pub(crate) fn count(
    call: &Invocation,
    node: &Node,
    counts: &mut Counts,
) -> Result<(Output, BTreeMap<String, u64>), String> {
    // Of helpers that exist, in whatever state, plugins start no more than a few; then they wait for the kernel themselves.
    orphans::wait(DEADLINE)?;
    let program = Program {
        executable: &call.executable,
        arguments: &call.arguments,
        environment: &call.environment,
        stdin: &call.stdin,
        deadline: DEADLINE,
    };
    let seen = program.trace(node).ok_or_else(|| format!("it takes longer than {DEADLINE:?}"))?;
    let mut names = BTreeMap::<String, u64>::new();
    for call in &seen.calls {
        *names.entry(call.name()).or_default() += 1;
    }
    let of = |wanted: &[&str]| wanted.iter().filter_map(|name| names.get(*name)).sum::<u64>();
    let sum = |number: fn(&testns::trace::Process) -> usize| {
        seen.processes.iter().map(|process| u64::try_from(number(process)).unwrap_or(u64::MAX)).sum::<u64>()
    };
    let children = seen.processes.get(1..).unwrap_or_default();
    let forked = children.iter().filter(|child| child.execs == 0).count();
    counts.note(Metric::Syscalls, names.values().sum());
    counts.note(Metric::Sends, of(&["sendto", "sendmsg", "sendmmsg"]));
    counts.note(Metric::Receives, of(&["recvfrom", "recvmsg", "recvmmsg"]));
    counts.note(Metric::Execs, sum(|process| process.execs));
    counts.note(Metric::Forks, u64::try_from(forked).unwrap_or(u64::MAX));
    counts.note(Metric::Threads, sum(|process| process.threads));
    counts.note(Metric::Opens, of(&["open", "openat", "openat2", "creat"]));
    counts.note(Metric::Fsyncs, of(&["fsync", "fdatasync", "sync", "syncfs", "sync_file_range"]));
    if let Some(peak) = seen.processes.iter().map(|process| process.peak_kib).max() {
        counts.note(Metric::PeakKib, peak);
    }
    Ok((seen.output, names))
}
