//! A call under ptrace: counted, cut off, or made to fail at any system call.
//!
//! ```no_run
//! # use testns::{Call, Node, Verb};
//! # let config = "{}";
//! // Killed before each state-changing system call in turn, and cleaned up after.
//! for n in 1.. {
//!     let node = Node::new();
//!     let pod = node.container();
//!     let traced = Call::new(Verb::Add, config, &pod).kill_before(&node, n);
//!     node.call(Verb::Del, config, &pod).ok();
//!     node.assert_as_before();
//!     if traced.hit.is_none() {
//!         break; // the plugin ended before its nth call
//!     }
//! }
//! ```
//!
//! The whole tree of processes and threads is followed. A call counts as state-changing when it may send, write,
//! create, rename, remove, mount, change namespace or start a process; a send that only asks netlink for something
//! does not. The count starts at the plugin's own first instruction.
//!
//! A send may carry many netlink messages: [`Call::refuse`] lets the kernel refuse any one of them.

mod message;
mod program;
mod syscall;
mod tracer;

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::Node;
use crate::call::{Call, Reply};
use crate::must::Must;

pub use message::Message;
pub use program::{Process, Program, ProgramTrace};
pub use syscall::Syscall;
use tracer::Tracer;

#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// All processes are killed before a state-changing one is made.
    Kill,
    /// The process that is about to make a state-changing one is killed; others go on.
    KillCaller,
    /// A call for which the function has an error is not made, and returns it; only such calls are counted.
    FailWhere(fn(&Syscall) -> Option<Errno>),
    /// Each for which the function has an error is not made, and returns it, as on a kernel that does not have the call.
    FailEach(fn(&Syscall) -> Option<Errno>),
    /// A call is not made, and returns this error; all calls are counted, of every process. Where its number is among these, the
    /// next call with another number fails: two runs do not make their calls in one order.
    FailAny(Errno, &'static [i64]),
    /// Each call of this number is not made, and returns this error, as under seccomp.
    Deny(i64, Errno),
    /// A call for which the function is true writes the first half of what it should; only such calls are counted.
    ShortenWhere(fn(&Syscall) -> bool),
    /// The call is not made, and returns this error.
    Fail(Errno),
    /// As `Fail`, counting steps: see [`Call::fail_step`].
    FailStep(fn(&Syscall) -> Errno),
    /// The plugin gets this signal before the call is made.
    Signal(Signal),
    /// The kernel refuses the netlink message of this number, whichever system call it is in.
    Refuse,
    /// As in [`Program::orphan`]; all system calls after the first start of a process are counted.
    Orphan,
}

#[derive(Debug, Clone)]
pub struct Traced {
    /// The plugin's answer; a killed plugin ended with 137.
    pub reply: Reply,
    pub calls: Vec<Syscall>,
    /// All netlink messages that asked for a change, in order.
    pub messages: Vec<Message>,
    pub hit: Option<Syscall>,
    /// How many system calls a fate that counts some of them was about.
    pub eligible: usize,
}

impl Traced {
    pub fn changes(&self) -> impl Iterator<Item = &Syscall> {
        self.calls.iter().filter(|call| call.changes)
    }

    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.calls {
            *counts.entry(call.name()).or_default() += 1;
        }
        counts
    }
}

impl Call {
    /// Makes the call and records its system calls.
    #[track_caller]
    pub fn trace(&self, node: &Node) -> Traced {
        self.traced(node, None)
    }

    /// Makes the call and kills everything of it before its `n`th (from 1) state-changing system call.
    #[track_caller]
    pub fn kill_before(&self, node: &Node, n: usize) -> Traced {
        self.traced(node, Some((n, Fate::Kill)))
    }

    /// Makes the call and lets its `n`th (from 1) step fail with the errno that suits it, without its being made.
    ///
    /// A step is a state-changing system call, a question to netlink, or the reception of an answer: failing that,
    /// a change was made and the error could not be reported.
    #[track_caller]
    pub fn fail_step(&self, node: &Node, n: usize, errno: fn(&Syscall) -> Errno) -> Traced {
        self.traced(node, Some((n, Fate::FailStep(errno))))
    }

    /// Makes the call and lets each system call fail for which the function has an error, without its being made.
    #[track_caller]
    pub fn fail_each(&self, node: &Node, errno: fn(&Syscall) -> Option<Errno>) -> Traced {
        self.traced(node, Some((1, Fate::FailEach(errno))))
    }

    /// Makes the call and sends the plugin a signal before its `n`th (from 1) state-changing system call.
    #[track_caller]
    pub fn signal_before(&self, node: &Node, n: usize, signal: Signal) -> Traced {
        self.traced(node, Some((n, Fate::Signal(signal))))
    }

    /// Makes the call and lets the kernel refuse its `n`th (from 1) netlink message that asks for a change; others in
    /// the same send are as they were. It answers `EOPNOTSUPP` to a spoilt routing message, `EINVAL` to another.
    #[track_caller]
    pub fn refuse(&self, node: &Node, n: usize) -> Traced {
        self.traced(node, Some((n, Fate::Refuse)))
    }

    #[track_caller]
    fn traced(&self, node: &Node, fate: Option<(usize, Fate)>) -> Traced {
        self.try_traced(node, fate).must(format_args!("trace the call within {:?}", self.time()))
    }

    /// Makes the call, with a fate at the system call or message of a number (from 1) if wanted; `None` when it takes
    /// longer than the deadline.
    #[track_caller]
    pub fn try_traced(&self, node: &Node, fate: Option<(usize, Fate)>) -> Option<Traced> {
        let (executable, environment) = (self.executable(node), self.variables(node));
        let program = Program {
            executable: &executable,
            arguments: &[],
            environment: &environment,
            stdin: self.stdin(),
            deadline: self.time(),
        };
        let (output, tracer) = program.follow(node, fate, &mut || {})?;
        let Tracer { calls, messages, hit, eligible, .. } = tracer;
        Some(Traced { reply: self.reply(output), calls, messages, hit, eligible })
    }
}
