//! Beyond the letter: the kernel says no. Memory and table space run out, permissions are missing, buffers overflow,
//! the disk is full or broken.
//!
//! System calls that a plugin's author could not make good anyway are left alone: those that make threads, and those
//! by which a language's runtime talks to itself (pipes, eventfd).

use crate::bench::Bench;
use crate::beyond::operator::{Operator, is_proper, within};
use crate::beyond::points::{At, Share};
use crate::finding::Stop;
use crate::profile::Role;
use crate::rule::{Case, Level, Proof, Rule, Versions};
use nix::errno::Errno;
use std::path::Path;
use testns::trace::{Fate, Syscall};
use testns::{Container, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "faults.add-answers",
        section: "SPEC 2, DEL",
        level: Level::Must,
        sentence: "An ADD in which any one system call fails ends with a result or an error object, and DEL after it leaves nothing.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            Case {
                name: "first-half",
                versions: Versions::Newest,
                run: |bench| add_fails(bench, SYSTEM_CALL, half(0)),
            },
            Case {
                name: "second-half",
                versions: Versions::Newest,
                run: |bench| add_fails(bench, SYSTEM_CALL, half(1)),
            },
            Case { name: "refused", versions: Versions::Newest, run: |bench| add_fails(bench, REFUSED, WHOLE) },
        ]),
    },
    Rule {
        id: "faults.del-answers",
        section: "SPEC 2, DEL",
        level: Level::Must,
        sentence: "A DEL in which any one system call fails ends with success or an error object, and DEL after it leaves nothing.",
        roles: Role::ALL,
        proof: Proof::Cases(&[Case { name: "", versions: Versions::Newest, run: del_fails }]),
    },
    Rule {
        id: "faults.add-is-all-or-nothing",
        section: "beyond",
        level: Level::Should,
        sentence: "An ADD that fails because the kernel refused a change leaves nothing, even without DEL.",
        roles: Role::ALL,
        proof: Proof::Cases(&[Case { name: "", versions: Versions::Newest, run: all_or_nothing }]),
    },
    Rule {
        id: "faults.disk-errors",
        section: "SPEC 2, DEL",
        level: Level::Must,
        sentence: "An ADD in which a file cannot be written for want of space or by an I/O error ends with a result or an error object; no address is lost or given twice.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            Case { name: "no-space", versions: Versions::Newest, run: |bench| add_fails(bench, NO_SPACE, WHOLE) },
            Case { name: "io-error", versions: Versions::Newest, run: |bench| add_fails(bench, IO_ERROR, WHOLE) },
        ]),
    },
];

/// Points of a call at which a case lets something fail, at most.
const LIMIT: usize = 60;
/// A point that no call comes to: it is counted how many there are.
const NEVER: usize = usize::MAX;
const WHOLE: Share = Share { number: 0, of: 1, limit: LIMIT };

fn half(number: usize) -> Share {
    Share { number, of: 2, limit: LIMIT }
}

/// How a call is disturbed.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    fate: Fate,
}

const SYSTEM_CALL: Fault = Fault { name: "system call", fate: Fate::FailWhere(suitable) };
const REFUSED: Fault = Fault { name: "netlink message", fate: Fate::Refuse };
const NO_SPACE: Fault = Fault { name: "write to a file", fate: Fate::FailWhere(no_space) };
const IO_ERROR: Fault = Fault { name: "write to a file", fate: Fate::FailWhere(io_error) };

/// What the kernel may well say to a call; `None` where it would not fail.
fn suitable(call: &Syscall) -> Option<Errno> {
    if let Some(errno) = no_space(call) {
        return Some(errno);
    }
    match call.name().as_str() {
        "sendto" | "sendmsg" => is_socket(call).then_some(Errno::ENOMEM),
        "recvfrom" | "recvmsg" => is_socket(call).then_some(Errno::ENOBUFS),
        "clone" | "clone3" | "fork" | "vfork" => (!call.makes_thread()).then_some(Errno::EAGAIN),
        "setns" | "unshare" | "ioctl" | "mount" => Some(Errno::EPERM),
        "execve" => Some(Errno::EACCES),
        "setsockopt" if call.changes => Some(Errno::ENOMEM),
        // A sysctl: read-only in many containers.
        "write" | "open" | "openat" if call.changes => is_sysctl(call).then_some(Errno::EROFS),
        _ => None,
    }
}

fn is_socket(call: &Syscall) -> bool {
    call.descriptor().is_some_and(|what| what.to_string_lossy().starts_with("socket:"))
}

fn is_sysctl(call: &Syscall) -> bool {
    let path = match call.name().as_str() {
        "write" => call.descriptor(),
        "open" => call.path(0),
        _ => call.path(1),
    };
    path.is_some_and(|path| path.starts_with("/proc/sys") || path.starts_with("/sys"))
}

fn no_space(call: &Syscall) -> Option<Errno> {
    let errno = match call.name().as_str() {
        "fsync" | "fdatasync" | "unlink" | "unlinkat" | "rmdir" => Errno::EIO,
        _ => Errno::ENOSPC,
    };
    is_on_disk(call).then_some(errno)
}

fn io_error(call: &Syscall) -> Option<Errno> {
    is_on_disk(call).then_some(Errno::EIO)
}

/// Whether a call changes what is on a disk.
fn is_on_disk(call: &Syscall) -> bool {
    let is_kept =
        |path: &Path| path.is_absolute() && !["/proc", "/sys", "/dev"].iter().any(|dir| path.starts_with(dir));
    match call.name().as_str() {
        // Not stdout and stderr, which are files here.
        "write" | "writev" | "pwrite64" | "ftruncate" | "fallocate" | "fsync" | "fdatasync" => {
            call.arguments[0] > 2 && call.descriptor().is_some_and(|path| is_kept(&path))
        }
        "open" | "creat" | "mkdir" | "link" | "rename" | "symlink" | "unlink" | "rmdir" => {
            call.changes && call.path(0).is_some_and(|path| is_kept(&path))
        }
        "openat" => call.changes && call.path(1).is_some_and(|path| is_kept(&path) || path.is_relative()),
        "mkdirat" | "linkat" | "renameat" | "renameat2" | "symlinkat" | "unlinkat" => true,
        _ => false,
    }
}

/// Whether a call is the answer itself: nobody can be told then.
fn is_answer(call: &Syscall) -> bool {
    matches!(call.name().as_str(), "write" | "writev") && call.arguments[0] <= 2
}

/// What the cases work with.
struct Scene<'a> {
    operator: Operator<'a>,
    pod: Container,
    other: Container,
}

impl<'a> Scene<'a> {
    fn new(bench: &'a Bench) -> Result<Self, Stop> {
        let mut operator = Operator::with_pool(bench, 1);
        operator.warm_up()?;
        let (pod, other) = (bench.pod(), bench.pod());
        for pod in [&pod, &other] {
            let result = operator.add(pod)?;
            operator.del(&pod.attachment(), Some(&result))?;
        }
        bench.remember();
        Ok(Self { operator, pod, other })
    }

    /// Goes through the points of ADD of each plugin: `each` hears of the point, and whether ADD succeeded.
    fn each_point(
        &self,
        fault: Fault,
        share: Share,
        each: impl Fn(&At<'_>, bool) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Self { operator, pod, .. } = self;
        let (bench, attachment) = (operator.bench, pod.attachment());
        let mut random = bench.random();
        for index in 0..bench.plugin_count() {
            let disturbed = |fate| {
                let before = operator.add_until(index, &attachment)?;
                operator.disturb(&operator.call(index, Verb::Add, &attachment, before.as_ref()), fate)
            };
            let what = format!("{} of ADD of {} failed, number", fault.name, bench.profile.executable(index));
            let (whole, answer) = disturbed(Some((NEVER, fault.fate)))?;
            answer.succeeds()?;
            operator.del(&attachment, None)?;
            let count = if matches!(fault.fate, Fate::Refuse) { whole.messages.len() } else { whole.eligible };
            for point in share.points(count, &mut random) {
                bench.forget_calls();
                let (traced, answer) = disturbed(Some((point, fault.fate)))?;
                let at = At { what: &what, point, hit: traced.hit.as_ref() };
                if !traced.hit.as_ref().is_some_and(is_answer) {
                    is_proper(&answer).map_err(|stop| within(stop, &format!("as {at}")))?;
                }
                each(&at, answer.is_success())?;
            }
        }
        Ok(())
    }

    fn del(&self, at: &At<'_>) -> Result<(), Stop> {
        let done = self.operator.del(&self.pod.attachment(), None);
        done.map_err(|stop| within(stop, &format!("of DEL after {at}")))
    }

    fn is_clean(&self, at: &At<'_>) -> Result<(), Stop> {
        self.operator.nothing_is_left(&format!("{at}, and DEL"))?;
        match self.operator.is_pooled() || at.point.is_multiple_of(8) {
            true => self.operator.others_are_served(&self.other, &at.to_string()),
            false => Ok(()),
        }
    }
}

fn add_fails(bench: &Bench, fault: Fault, share: Share) -> Result<(), Stop> {
    let scene = Scene::new(bench)?;
    scene.each_point(fault, share, |at, _| {
        scene.del(at)?;
        scene.is_clean(at)
    })
}

fn all_or_nothing(bench: &Bench) -> Result<(), Stop> {
    let scene = Scene::new(bench)?;
    scene.each_point(REFUSED, WHOLE, |at, is_success| {
        if !is_success {
            scene.operator.nothing_is_left(&at.to_string())?;
        }
        scene.del(at)
    })
}

fn del_fails(bench: &Bench) -> Result<(), Stop> {
    let scene = Scene::new(bench)?;
    let Scene { operator, pod, .. } = &scene;
    let attachment = pod.attachment();
    let mut random = bench.random();
    for index in 0..bench.plugin_count() {
        let disturbed = |fate| {
            let result = operator.add(pod)?;
            for later in (index + 1..bench.plugin_count()).rev() {
                bench.make(&operator.call(later, Verb::Del, &attachment, Some(&result)))?.succeeds()?;
            }
            operator.disturb(&operator.call(index, Verb::Del, &attachment, Some(&result)), fate)
        };
        let (whole, answer) = disturbed(Some((NEVER, SYSTEM_CALL.fate)))?;
        answer.succeeds()?;
        let what = format!("system call of DEL of {} failed, number", bench.profile.executable(index));
        for point in WHOLE.points(whole.eligible, &mut random) {
            bench.forget_calls();
            let (traced, answer) = disturbed(Some((point, SYSTEM_CALL.fate)))?;
            let at = At { what: &what, point, hit: traced.hit.as_ref() };
            if !traced.hit.as_ref().is_some_and(is_answer) {
                is_proper(&answer).map_err(|stop| within(stop, &format!("as {at}")))?;
            }
            scene.del(&at)?;
            scene.is_clean(&at)?;
        }
    }
    Ok(())
}
