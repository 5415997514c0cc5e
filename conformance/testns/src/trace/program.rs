//! Any program under ptrace, and what its processes were.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};

use super::message::Message;
use super::syscall::Syscall;
use super::tracer::Tracer;
use super::{Fate, Must};
use crate::Node;
use crate::process::{Output, group_of};

/// Stops itself so that the tracer can take hold, then becomes the program.
const STOP_FIRST: &str = "kill -STOP $$; exec \"$0\" \"$@\"";

#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    pub executable: &'a Path,
    pub arguments: &'a [String],
    pub environment: &'a [(String, String)],
    pub stdin: &'a str,
    /// Time it may take under trace, with all that comes from it.
    pub deadline: Duration,
}

/// What a program did under trace.
#[derive(Debug, Clone)]
pub struct ProgramTrace {
    pub output: Output,
    /// System calls of all of its processes and threads, in order.
    pub calls: Vec<Syscall>,
    /// Netlink messages that asked for a change, in order.
    pub messages: Vec<Message>,
    /// The program's processes in the order in which they began; the first is the program itself.
    pub processes: Vec<Process>,
    /// The system call at which a fate came last.
    pub hit: Option<Syscall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub execs: usize,
    /// Threads beside the process's first.
    pub threads: usize,
    /// The most memory it ever had resident, in KiB (`VmHWM` in proc(5)), since it last became a program.
    ///
    /// Read while it ends, so nothing of the process that started it counts. Before Linux 6.17 the kernel may be
    /// wrong by some tens of pages for each CPU.
    pub peak_kib: u64,
}

impl Program<'_> {
    /// Runs it to its end, or `None` when it takes longer than the deadline.
    #[track_caller]
    pub fn trace(&self, node: &Node) -> Option<ProgramTrace> {
        self.with_fate(node, None)
    }

    /// As [`Program::trace`], with a fate at the system call of a number (from 1) if wanted.
    #[must_use]
    #[track_caller]
    pub fn with_fate(&self, node: &Node, fate: Option<(usize, Fate)>) -> Option<ProgramTrace> {
        let (output, tracer) = self.follow(node, fate, &mut || {})?;
        let Tracer { calls, messages, processes, hit, .. } = tracer;
        Some(ProgramTrace { output, calls, messages, processes, hit })
    }

    /// As [`Program::trace`], where each system call fails for which the function has an error, without its being made.
    #[track_caller]
    pub fn fail_each(&self, node: &Node, errno: fn(&Syscall) -> Option<Errno>) -> Option<ProgramTrace> {
        self.with_fate(node, Some((1, Fate::FailEach(errno))))
    }

    /// Runs it and kills it, and nothing that it has started, before the `n`th (from 1) system call of any of its
    /// processes since it started the first. Each other process is held at its next system call while `meanwhile` runs,
    /// and goes on to its end then.
    ///
    /// Returns the system calls until then, the `n`th with them; `None` if there were not so many.
    #[track_caller]
    pub fn orphan(&self, node: &Node, n: usize, mut meanwhile: impl FnMut() + Send) -> Option<Vec<Syscall>> {
        let followed = self.follow(node, Some((n, Fate::Orphan)), &mut meanwhile);
        let (_, Tracer { calls, hit, .. }) = followed.must("trace a program within its deadline");
        hit.map(|_| calls)
    }

    /// Runs it and kills everything of it before its `n`th (from 1) state-changing system call, which is returned; `None` if there were not so
    /// many.
    #[track_caller]
    pub fn kill_before(&self, node: &Node, n: usize) -> Option<Syscall> {
        self.with_fate(node, Some((n, Fate::Kill))).must("trace a program within its deadline").hit
    }

    /// Follows it from a thread that has no other children, and so may wait for any.
    pub(super) fn follow(
        &self,
        node: &Node,
        fate: Option<(usize, Fate)>,
        meanwhile: &mut (dyn FnMut() + Send),
    ) -> Option<(Output, Tracer)> {
        let done = thread::scope(|scope| scope.spawn(|| self.follow_here(node, fate, meanwhile)).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    #[expect(clippy::zombie_processes, reason = "the tracer waits for it")]
    fn follow_here(
        &self,
        node: &Node,
        fate: Option<(usize, Fate)>,
        meanwhile: &mut dyn FnMut(),
    ) -> Option<(Output, Tracer)> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let file = |end| node.work_dir().join(format!("trace-{run}.{end}"));
        let create = |end| File::create(file(end)).must("create a file for the traced call");
        let read = |end| fs::read(file(end)).must("read what the traced call wrote");

        // Files, not pipes, which would have to be fed and drained while the tracer waits.
        fs::write(file("in"), self.stdin).must("write stdin of the traced call");
        let stdin = File::open(file("in")).must("open stdin of the traced call");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", STOP_FIRST]).arg(self.executable).args(self.arguments);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(environment).process_group(0);
        command.stdin(stdin).stdout(create("out")).stderr(create("err"));

        let start = Instant::now();
        let child = command.spawn().must("start /bin/sh");
        let group = group_of(&child);
        let (finished, watch) = channel::<()>();
        let tracer = thread::scope(|scope| {
            scope.spawn(move || {
                if watch.recv_timeout(self.deadline).is_err() {
                    killpg(group, Signal::SIGKILL).ok();
                }
            });
            let tracer = Tracer::follow(group, fate, meanwhile);
            finished.send(()).ok();
            tracer
        });
        let elapsed = start.elapsed();
        if elapsed >= self.deadline {
            return None;
        }
        let text = |end| String::from_utf8_lossy(&read(end)).into_owned();
        let status = ExitStatus::from_raw(tracer.status);
        Some((Output { status, stdout: text("out"), stderr: text("err"), elapsed }, tracer))
    }
}
