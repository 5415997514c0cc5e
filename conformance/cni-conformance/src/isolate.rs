//! Namespaces of one's own: user, mount, network, processes.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};
use std::io;

/// Moves this process, which must have one thread only, into namespaces of its own: user (as root there), mount and
/// network; its next child is the first process of a new process namespace.
///
/// # Errors
/// What the kernel says; most often that user namespaces are forbidden.
#[expect(clippy::disallowed_methods, reason = "a trial is a process in namespaces of its own, before its first thread")]
pub fn leave_the_machine() -> io::Result<()> {
    let (user, group) = (Uid::effective(), Gid::effective());
    let all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    unshare(all)?;
    // Without it an ordinary user may not write gid_map (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Gives the first process of a new process namespace the `/proc` that goes with it.
///
/// # Errors
/// `EPERM` where the machine hides parts of its own `/proc`, as containers do.
pub fn own_proc() -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)?)
}
