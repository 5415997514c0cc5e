//! The ptrace loop.

use std::collections::BTreeSet;
use std::fs;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Fate;
use super::message::{Cargo, Message, cargo};
use super::program::Process;
use super::syscall::{Syscall, set_number_invalid, set_result, set_third};
use crate::must::Must;

/// Follows a process and all that come from it to their ends.
pub(crate) struct Tracer {
    leader: Pid,
    fate: Option<(usize, Fate)>,
    alive: BTreeSet<Pid>,
    started: bool,
    /// The program has started another process.
    has_children: bool,
    /// All threads stay stopped until the caller's callback has returned.
    holds: bool,
    changes: usize,
    steps: usize,
    /// Calls that [`Fate::FailWhere`], [`Fate::ShortenWhere`] or [`Fate::Orphan`] is about.
    pub(crate) eligible: usize,
    failing: Vec<(Pid, Errno)>,
    killed: bool,
    pub(crate) calls: Vec<Syscall>,
    pub(crate) messages: Vec<Message>,
    /// The processes of the program and of all that came from it.
    pub(crate) processes: Vec<Process>,
    pub(crate) hit: Option<Syscall>,
    /// The leader's end as `wait(2)` codes it.
    pub(crate) status: i32,
}

impl Tracer {
    /// Takes hold of a child that is about to stop itself, and returns when nothing of it is left. `meanwhile` has its
    /// turn at [`Fate::Orphan`].
    pub(crate) fn follow(leader: Pid, fate: Option<(usize, Fate)>, meanwhile: &mut dyn FnMut()) -> Self {
        let stop = waitpid(leader, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::__WALL));
        let stop = stop.must("wait for the process to stop");
        assert!(matches!(stop, WaitStatus::Stopped(..)), "the process did not stop: {stop:?}");
        let mut options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL;
        if fate.is_none() {
            options |= Options::PTRACE_O_TRACEEXIT; // who kills or fails calls need not stop once more at each end
        }
        ptrace::seize(leader, options).must("trace the process");
        kill(leader, Signal::SIGCONT).must("continue the process");
        let mut tracer = Self {
            leader,
            fate,
            alive: BTreeSet::from([leader]),
            started: false,
            has_children: false,
            holds: false,
            changes: 0,
            steps: 0,
            eligible: 0,
            failing: Vec::new(),
            killed: false,
            calls: Vec::new(),
            messages: Vec::new(),
            processes: Vec::new(),
            hit: None,
            status: 0,
        };
        while tracer.step(meanwhile) {}
        tracer
    }

    fn step(&mut self, meanwhile: &mut dyn FnMut()) -> bool {
        // Other threads trace their own: __WNOTHREAD leaves theirs alone.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, code)) => self.ended(pid, code << 8),
            Ok(WaitStatus::Signaled(pid, signal, _)) => self.ended(pid, signal as i32),
            Ok(WaitStatus::PtraceSyscall(pid)) => {
                self.at_syscall(pid);
                if std::mem::take(&mut self.holds) {
                    meanwhile();
                }
                resume(pid, None);
            }
            Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                self.at_event(pid, event);
                resume(pid, None);
            }
            Ok(WaitStatus::Stopped(pid, signal)) => {
                self.known(pid);
                resume(pid, Some(signal));
            }
            Ok(WaitStatus::Continued(_) | WaitStatus::StillAlive) => {}
            Err(Errno::ECHILD) => return false,
            Err(Errno::EINTR) => {}
            Err(errno) => panic!("cannot wait for a traced process: {errno}"),
        }
        true
    }

    fn ended(&mut self, pid: Pid, status: i32) {
        self.alive.remove(&pid);
        if pid == self.leader {
            self.status = status;
        }
    }

    fn at_event(&mut self, pid: Pid, event: i32) {
        self.known(pid);
        match event {
            libc::PTRACE_EVENT_EXEC => {
                let execs = usize::from(self.started); // the first is how the program itself begins
                self.started = true;
                self.process(pid).execs += execs;
            }
            libc::PTRACE_EVENT_EXIT if self.started => {
                let peak = status(pid, "VmHWM:");
                let process = self.process(pid);
                process.peak_kib = process.peak_kib.max(peak);
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.has_children |= self.started;
                let message = ptrace::getevent(pid).ok();
                if let Some(child) = message.and_then(|child| i32::try_from(child).ok()) {
                    self.known(Pid::from_raw(child));
                    self.born(Pid::from_raw(child));
                }
            }
            _ => {}
        }
    }

    fn born(&mut self, child: Pid) {
        if self.started {
            let process = self.process(child);
            process.threads += usize::from(process.pid != child.as_raw());
        }
    }

    fn process(&mut self, thread: Pid) -> &mut Process {
        let pid = i32::try_from(status(thread, "Tgid:")).ok().filter(|pid| *pid > 0).unwrap_or(thread.as_raw());
        let place = self.processes.iter().position(|process| process.pid == pid).unwrap_or(self.processes.len());
        if place == self.processes.len() {
            self.processes.push(Process { pid, execs: 0, threads: 0, peak_kib: 0 });
        }
        &mut self.processes[place]
    }

    /// Remembers a process or thread; one that comes up after the kill is killed as well.
    fn known(&mut self, pid: Pid) {
        self.alive.insert(pid);
        if self.killed {
            kill(pid, Signal::SIGKILL).ok();
        }
    }

    fn at_syscall(&mut self, pid: Pid) {
        self.known(pid);
        // ESRCH: killed meanwhile; its end is reported next.
        let Ok(info) = ptrace::syscall_info(pid) else {
            return;
        };
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            self.at_entry(pid);
        } else if let Some(place) = self.failing.iter().position(|(failing, _)| *failing == pid) {
            set_result(pid, self.failing.swap_remove(place).1);
        }
    }

    fn at_entry(&mut self, pid: Pid) {
        let is_orphaned = self.hit.is_some() && matches!(self.fate, Some((_, Fate::Orphan)));
        if !self.started || self.killed || is_orphaned {
            return;
        }
        let Some(mut call) = Syscall::entered(pid) else {
            return;
        };
        let mut step = call.changes || call.receives();
        if let Cargo::Netlink(messages) = cargo(&call) {
            step = true;
            call.changes = !messages.is_empty();
            messages.into_iter().for_each(|message| self.at_message(call, message));
        }
        self.calls.push(call);
        self.changes += usize::from(call.changes);
        self.steps += usize::from(step);
        match self.fate {
            Some((n, Fate::FailStep(errno))) if step && self.steps == n => {
                self.seal(pid, call, Fate::Fail(errno(&call)))
            }
            Some((n, Fate::FailWhere(errno))) => {
                if let Some(errno) = errno(&call) {
                    self.eligible += 1;
                    if self.eligible == n {
                        self.seal(pid, call, Fate::Fail(errno));
                    }
                }
            }
            Some((_, Fate::FailEach(errno))) => {
                if let Some(errno) = errno(&call) {
                    self.seal(pid, call, Fate::Fail(errno));
                }
            }
            Some((n, Fate::FailAny(errno, spared))) if self.calls.len() >= n && self.hit.is_none() => {
                if !spared.contains(&call.number) {
                    self.seal(pid, call, Fate::Fail(errno));
                }
            }
            Some((_, Fate::Deny(number, errno))) if call.number == number => self.seal(pid, call, Fate::Fail(errno)),
            Some((_, Fate::FailAny(..) | Fate::Deny(..))) => {}
            Some((n, fate @ Fate::ShortenWhere(suits))) => {
                self.eligible += usize::from(suits(&call));
                if suits(&call) && self.eligible == n {
                    self.seal(pid, call, fate);
                }
            }
            Some((n, fate @ Fate::Orphan)) => {
                self.eligible += usize::from(self.has_children);
                if self.has_children && self.eligible == n {
                    self.seal(pid, call, fate);
                }
            }
            Some((_, Fate::Refuse | Fate::FailStep(_))) | None => {}
            Some((n, fate)) if call.changes && self.changes == n => self.seal(pid, call, fate),
            Some(_) => {}
        }
    }

    fn at_message(&mut self, call: Syscall, message: Message) {
        self.messages.push(message);
        if let Some((n, Fate::Refuse)) = self.fate
            && self.messages.len() == n
        {
            message.spoil();
            self.hit = Some(call);
        }
    }

    fn seal(&mut self, pid: Pid, call: Syscall, fate: Fate) {
        self.hit = Some(call);
        match fate {
            Fate::Kill => {
                self.killed = true;
                for pid in &self.alive {
                    kill(*pid, Signal::SIGKILL).ok();
                }
            }
            Fate::KillCaller => {
                kill(pid, Signal::SIGKILL).ok(); // to a thread: it ends all of its process
            }
            Fate::Fail(errno) => {
                set_number_invalid(pid);
                self.failing.push((pid, errno));
            }
            Fate::ShortenWhere(_) => set_third(pid, call.arguments[2] / 2),
            Fate::Signal(signal) => {
                kill(self.leader, signal).ok();
            }
            Fate::Orphan => {
                kill(self.leader, Signal::SIGKILL).ok();
                self.holds = true;
            }
            Fate::Refuse | Fate::FailStep(_) | Fate::FailWhere(_) | Fate::FailEach(_) => {}
            Fate::FailAny(..) | Fate::Deny(..) => {}
        }
    }
}

/// Lets a stopped process go on to its next system call; it may have been killed meanwhile.
fn resume(pid: Pid, signal: Option<Signal>) {
    ptrace::syscall(pid, signal).ok();
}

/// A number of `/proc/PID/status`; 0 if it is not there.
fn status(pid: Pid, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}
