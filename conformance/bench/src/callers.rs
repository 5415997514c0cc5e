//! Callers in a PID namespace of their own, whose PID 1 waits for orphans or does not.
//!
//! A call's helper becomes a child of PID 1. The benchmark's own process waits for it after each call, so that nothing is
//! left before the next one; a runtime that drains a node does not. So calls that follow each other are made by this
//! program once more, started in the namespace: jobs come on its stdin, the answer goes to stdout.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Call, Cost, DEADLINE, Ended, spent};

/// The option that makes this program the callers.
pub(crate) const OPTION: &str = "--callers";

/// The way PID 1 treats orphans that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Init {
    Reaps,
    Leaves,
}

impl Init {
    pub(crate) const ALL: [Self; 2] = [Self::Reaps, Self::Leaves];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reaps => "reaps",
            Self::Leaves => "leaves",
        }
    }
}

/// Calls to make.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The number of callers, each of which makes the next call when it is through with one.
    pub(crate) at_once: usize,
    /// Conditions first, one after the other, and not counted: a node whose PID 1 has not reaped a helper has just started.
    pub(crate) first: Vec<Call>,
    pub(crate) calls: Vec<Call>,
}

/// The outcome of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Of all calls, the first ones included.
    pub(crate) answers: Vec<Value>,
    /// Of the calls that count.
    pub(crate) costs: Vec<Cost>,
    /// From the first of these calls to the last answer.
    pub(crate) busy: Duration,
    /// From the last answer until no process of a call ran.
    pub(crate) left: Duration,
}

/// Makes the calls from a namespace with such a PID 1, in the network and mount namespaces of the calling thread.
pub(crate) fn make(job: &Job, init: Init) -> Result<Done, String> {
    let failed = |error: std::io::Error| format!("cannot start callers in a PID namespace: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    match init {
        // A shell that waits for a command also takes other children that have ended.
        Init::Reaps => unshare.args(["sh", "-c", &format!(r#""$0" {OPTION}; exit $?"#)]).arg(program),
        // The callers are PID 1 and wait for their own children only.
        Init::Leaves => unshare.arg(program).arg(OPTION),
    };
    let mut callers = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let sent = callers.stdin.take().map(|mut stdin| serde_json::to_writer(&mut stdin, job));
    let mut answer = String::new();
    let read = callers.stdout.take().map(|mut stdout| stdout.read_to_string(&mut answer));
    callers.wait().map_err(failed)?;
    sent.transpose().map_err(|error| failed(error.into()))?;
    read.transpose().map_err(failed)?;
    serde_json::from_str(&answer).map_err(|error| format!("no answer of the callers, stderr says why: {error}"))?
}

/// Reads a job, does it, and prints the answer: the whole work of a program that was started with [`OPTION`].
pub(crate) fn serve() -> Result<(), String> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock()).map_err(|error| format!("no job: {error}"))?;
    let done = job.run();
    let mut stdout = std::io::stdout().lock();
    let written = serde_json::to_writer(&mut stdout, &done).map_err(std::io::Error::from).and_then(|()| stdout.flush());
    written.map_err(|error| format!("cannot answer: {error}"))
}

impl Job {
    fn run(&self) -> Result<Done, String> {
        let mut answers = Vec::new();
        for call in &self.first {
            answers.push(call.verify(&call.run()?)?);
        }
        let (before, start) = (spent(), Instant::now());
        let ends = self.all();
        let busy = start.elapsed();
        wait_for_others()?;
        let left = start.elapsed() - busy;
        let after = spent();
        let count = u32::try_from(self.calls.len()).unwrap_or(u32::MAX).max(1);
        let (cpu, switches) = ((after.0 - before.0) / count, (after.1 - before.1) / i64::from(count));
        let mut costs = Vec::new();
        for ((_, end), call) in ends.into_iter().zip(&self.calls) {
            let ended = end?;
            answers.push(call.verify(&ended)?);
            costs.push(Cost { wall: ended.wall, gone: ended.wall, cpu, switches });
        }
        match costs.len() < self.calls.len() {
            true => Err("a caller ended early: stderr says why".to_owned()),
            false => Ok(Done { answers, costs, busy, left }),
        }
    }

    /// Makes the calls; the ends in the order of the calls.
    fn all(&self) -> Vec<(usize, Result<Ended, String>)> {
        let next = AtomicUsize::new(0);
        let mut ends: Vec<_> = thread::scope(|scope| {
            let caller = || {
                let mut ends = Vec::new();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(call) = self.calls.get(place) else {
                        return ends;
                    };
                    ends.push((place, call.run()));
                }
            };
            let callers: Vec<_> = (0..self.at_once).map(|_| scope.spawn(caller)).collect();
            callers.into_iter().flat_map(|caller| caller.join().unwrap_or_default()).collect()
        });
        ends.sort_by_key(|(place, _)| *place);
        ends
    }
}

/// Waits until no process of this namespace runs but PID 1 and this one.
fn wait_for_others() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot wait for the helpers: {error}");
    let own = BTreeSet::from([1, std::process::id().cast_signed()]);
    let names = std::fs::read_dir("/proc").map_err(failed)?.flatten().map(|entry| entry.file_name());
    let pids: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    for pid in pids.into_iter().filter(|pid| !own.contains(pid)).filter_map(rustix::process::Pid::from_raw) {
        // A process that has been reaped meanwhile has none.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let timeout = PollTimeout::try_from(DEADLINE).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(&process), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Err(format!("process {} of a call was left after {DEADLINE:?}", pid.as_raw_nonzero())),
            Ok(_) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
    }
    Ok(())
}
