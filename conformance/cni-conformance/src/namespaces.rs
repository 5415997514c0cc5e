//! Namespaces of one's own: user, mount, processes, and what of the machine is seen there.

use crate::write_protection;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Folders that a testbed's node hides under empty ones, beside those of [`write_protection::SCRATCH`].
pub(crate) const HIDDEN: [&str; 3] = ["/run", "/var/lib/cni", "/etc/cni"];

/// The folder in which [`Shown`] puts what nodes hide. It is part of the Filesystem Hierarchy Standard; its contents
/// are hidden from the trial, and the machine sees nothing of that.
const SHOWN: &str = "/mnt";

/// Moves this process, which must have one thread only, into namespaces of its own: user (as root there) and mount; with
/// `own_processes`, its next child is the first process of a new process namespace. Its node makes the network's: two
/// for each trial would be one too many for a kernel that takes long to end them.
/// Errors: the kernel's error; most often that user namespaces are forbidden.
#[expect(clippy::disallowed_methods, reason = "a trial is a process in namespaces of its own, before its first thread")]
pub fn leave_the_machine(own_processes: bool) -> io::Result<()> {
    let (user, group) = (Uid::effective(), Gid::effective());
    let mut all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
    all.set(CloneFlags::CLONE_NEWPID, own_processes);
    unshare(all).map_err(|errno| io::Error::other(format!("unshare: {errno}")))?;
    // Without it an ordinary user may not write gid_map (user_namespaces(7)).
    for (file, text) in
        [("setgroups", "deny"), ("uid_map", &format!("0 {user} 1")), ("gid_map", &format!("0 {group} 1"))]
    {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| io::Error::other(format!("{file}: {error}")))?;
    }
    Ok(())
}

/// Moves this process, which must have one thread only, into a network of its own.
#[expect(clippy::disallowed_methods, reason = "for an task without a node, before its first thread")]
pub(crate) fn leave_the_network() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| io::Error::other(format!("unshare: {errno}")))
}

/// Ends this process as soon as the one that reads its stdout, or its parent, has ended.
///
/// Comes after [`leave_the_machine`]: the kernel forgets it with a change of credentials (PR_SET_PDEATHSIG(2const)).
pub fn die_with_parent() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    let broken = fds.iter().filter_map(PollFd::revents).any(|events| events.contains(PollFlags::POLLERR));
    match broken {
        true => Err(io::Error::other("no process waits for this trial any more")),
        false => Ok(()),
    }
}

/// Makes the mounts private, and gives the first process of a new process namespace the `/proc` that goes with it.
/// Errors: `EPERM` where the machine hides parts of its own `/proc`, as containers do.
pub fn own_mounts(own_processes: bool) -> io::Result<()> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    if own_processes {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let mounted = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
        mounted.map_err(|errno| io::Error::other(format!("mount /proc: {errno}")))?;
    }
    Ok(())
}

/// The files and folders that the testbed's node hides, bound where the trial sees them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// The path where a file or folder is seen, and its real path.
    bound: Vec<(PathBuf, PathBuf)>,
}

impl Shown {
    /// The path under which a file or folder will be seen: itself, unless a node hides it.
    pub(crate) fn see(&mut self, path: &Path) -> io::Result<PathBuf> {
        let real = path.canonicalize()?;
        let is_hidden =
            |path: &Path| HIDDEN.iter().chain(&write_protection::SCRATCH).any(|folder| path.starts_with(folder));
        if !is_hidden(&real) {
            return Ok(if is_hidden(path) { real } else { path.to_owned() });
        }
        if self.bound.is_empty() {
            mount(Some("tmpfs"), SHOWN, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, None::<&str>)?;
        }
        // The path's own name stays the last: a program may look at what it or its folder is called.
        let around = Path::new(SHOWN).join(self.bound.len().to_string());
        fs::create_dir(&around)?;
        let place = around.join(real.file_name().unwrap_or_default());
        match real.is_dir() {
            true => fs::create_dir(&place)?,
            false => drop(File::create_new(&place)?),
        }
        mount(Some(&real), &place, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
        self.bound.push((place.clone(), real));
        Ok(place)
    }

    /// The real path of a file or folder.
    pub(crate) fn real(&self, seen: &Path) -> PathBuf {
        let real = |(place, real): &(PathBuf, PathBuf)| seen.strip_prefix(place).ok().map(|rest| real.join(rest));
        self.bound.iter().find_map(real).unwrap_or_else(|| seen.to_owned())
    }
}
