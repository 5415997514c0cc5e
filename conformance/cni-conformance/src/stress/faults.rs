//! Stress: the kernel says no. Memory and table space run out, permissions are missing, buffers overflow,
//! the disk is full or broken.
//!
//! System calls that a plugin's author could not make good anyway are left alone: those that make threads, and those
//! by which a language's runtime talks to itself (pipes, eventfd).

use crate::rules::prelude::*;
use crate::stress::interruption_points::{At, Share};
use crate::stress::recovery::Recovery;
use crate::testbed::Answer;
use nix::errno::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use testns::trace::{Fate, Syscall, Traced};

pub(super) const CASES: &[Code] = &[
    ("faults.add-answers/first-half", |testbed| add_fails(testbed, SYSTEM_CALL, half(0))),
    ("faults.add-answers/second-half", |testbed| add_fails(testbed, SYSTEM_CALL, half(1))),
    ("faults.add-answers/refused", |testbed| add_fails(testbed, REFUSED, WHOLE)),
    ("faults.del-answers", |testbed| fails(testbed, Verb::Del, SYSTEM_CALL, WHOLE)),
    ("faults.add-is-all-or-nothing", all_or_nothing),
    ("faults.disk-errors/no-space", |testbed| add_fails(testbed, NO_SPACE, WHOLE)),
    ("faults.disk-errors/io-error", |testbed| add_fails(testbed, IO_ERROR, WHOLE)),
    ("faults.disk-errors/short-write", |testbed| add_fails(testbed, SHORT, WHOLE)),
];

/// Points of a call at which a case lets something fail, at most.
const LIMIT: usize = 60;
/// A point that no call comes to: it is counted how many there are.
const NEVER: usize = usize::MAX;
const WHOLE: Share = Share { number: 0, of: 1, limit: LIMIT };

fn half(number: usize) -> Share {
    Share { number, of: 2, limit: LIMIT }
}

#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    fate: Fate,
}

impl Fault {
    /// The same for what a script can bear: how its interpreter makes processes is no matter of its author.
    fn of(self, testbed: &Testbed) -> Self {
        let is_script = |index| {
            let path = testbed.node.bin_dir().join(testbed.profile.executable(index));
            let mut start = [0; 2];
            File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
        };
        match self.name == SYSTEM_CALL.name && (0..testbed.plugin_count()).any(is_script) {
            true => Self { name: self.name, fate: Fate::FailWhere(suitable_for_a_script) },
            false => self,
        }
    }
}

const SYSTEM_CALL: Fault = Fault { name: "system call", fate: Fate::FailWhere(suitable) };
const REFUSED: Fault = Fault { name: "netlink message", fate: Fate::Refuse };
const NO_SPACE: Fault = Fault { name: "write to a file", fate: Fate::FailWhere(no_space) };
const IO_ERROR: Fault = Fault { name: "write to a file", fate: Fate::FailWhere(io_error) };
/// As on a disk that fills up meanwhile: what there was room for is there, and the rest has to be written again.
const SHORT: Fault = Fault { name: "write to a file", fate: Fate::ShortenWhere(is_long_write) };

/// An error that a system call may well return; `None` where it would not fail.
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

fn suitable_for_a_script(call: &Syscall) -> Option<Errno> {
    let is_of_interpreter = ["clone", "clone3", "fork", "vfork", "execve", "ioctl"].contains(&call.name().as_str());
    suitable(call).filter(|_| !is_of_interpreter)
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

/// Whether a call writes more than a byte to a file on a disk.
fn is_long_write(call: &Syscall) -> bool {
    matches!(call.name().as_str(), "write" | "pwrite64") && call.arguments[2] > 1 && is_on_disk(call)
}

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

/// The answer of a call, unless the call that failed was to print it.
fn unless_unprinted<'a>(traced: &Traced, answer: &'a Answer) -> Option<&'a Answer> {
    let is_of_printing = |call: &Syscall| matches!(call.name().as_str(), "write" | "writev") && call.arguments[0] <= 2;
    Some(answer).filter(|_| !traced.hit.as_ref().is_some_and(is_of_printing))
}

/// Goes through the points of ADD or DEL of each plugin: `each` hears of the point, and the answer if it is one.
fn each_point(
    recovery: &Recovery<'_>,
    verb: Verb,
    fault: Fault,
    share: Share,
    each: impl Fn(&At<'_>, Option<&Answer>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let testbed = recovery.operations.testbed;
    let mut random = testbed.random();
    for index in 0..testbed.plugin_count() {
        let what = format!("{} of {verb} of {} failed, number", fault.name, testbed.profile.executable(index));
        let (whole, answer) = recovery.disturb(verb, index, Some((NEVER, fault.fate)))?;
        answer.succeeds()?;
        recovery.operations.testbed.del(recovery.pod.attachment(), None)?;
        let count = if matches!(fault.fate, Fate::Refuse) { whole.messages.len() } else { whole.eligible };
        for point in share.points(count, testbed, &mut random) {
            testbed.forget_calls();
            let (traced, answer) = recovery.disturb(verb, index, Some((point, fault.fate)))?;
            let at = At { what: &what, point, hit: traced.hit.as_ref() };
            each(&at, unless_unprinted(&traced, &answer))?;
        }
    }
    Ok(())
}

fn add_fails(testbed: &Testbed, fault: Fault, share: Share) -> Result<(), Stop> {
    fails(testbed, Verb::Add, fault, share)
}

fn fails(testbed: &Testbed, verb: Verb, fault: Fault, share: Share) -> Result<(), Stop> {
    let fault = fault.of(testbed);
    let recovery = Recovery::new(testbed)?;
    each_point(&recovery, verb, fault, share, |at, answer| recovery.bears(answer, 1, at))
}

fn all_or_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let recovery = Recovery::new(testbed)?;
    each_point(&recovery, Verb::Add, REFUSED, WHOLE, |at, answer| {
        if answer.is_some_and(|answer| !answer.is_success()) {
            recovery.operations.nothing_is_left(&at.to_string())?;
        }
        recovery.del(1, at)
    })
}
