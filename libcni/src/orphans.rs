//! Plugins that a dead runtime left running.
//!
//! A runtime that is killed cannot end its plugins: they run in process groups of their own, and go on. A DEL beside an
//! ADD that still runs would be undone by it, so DEL of an attachment whose ADD was not finished ends them first. They
//! are known by their environment; nothing else looks at `/proc`.
//!
//! A child that was forked but has not become the plugin yet does not have that environment. It does no harm: its config
//! was to be written after that, so it reads an empty one and fails before it does anything, as does a plugin whose
//! config was cut off.

use crate::attachment::Attachment;
use crate::error::Error;
use crate::limits::Limits;
use cni_spec::exec::GRACE;
use cni_spec::{CniError, Code, Command};
use futures::future::join_all;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp};
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// A process that runs ADD for the attachment.
struct Orphan {
    pid: Pid,
    group: Pid,
    /// Readable when it has ended.
    pidfd: AsyncFd<OwnedFd>,
}

/// Ends all processes that run ADD for this attachment: SIGTERM to their groups, on which plugins roll back, after
/// [`GRACE`] SIGKILL.
///
/// # Errors
/// [`Error::Orphans`] if they do not end, or `limits` are reached before.
pub(crate) async fn end(attachment: &Attachment, limits: &Limits, command: Command) -> Result<(), Error> {
    let ended = async {
        let orphans = find(attachment).map_err(|error| {
            CniError::new(Code::IO, format!("cannot look for plugins of an unfinished ADD in /proc: {error}"))
        })?;
        if orphans.is_empty() {
            return Ok(());
        }
        let pids: Vec<_> = orphans.iter().map(|orphan| orphan.pid.as_raw()).collect();
        tracing::warn!(?pids, "ending plugins that still run an ADD which was not finished");
        end_all(orphans).await
    };
    tokio::select! {
        // Limits that are reached already let nothing begin.
        biased;
        error = limits.reached(command) => Err(error),
        outcome = ended => outcome,
    }
    .map_err(|error| Error::Orphans { error })
}

async fn end_all(orphans: Vec<Orphan>) -> Result<(), CniError> {
    let groups: BTreeSet<Pid> = orphans.iter().map(|orphan| orphan.group).collect();
    let signal = |signal| {
        for group in &groups {
            // ESRCH: the group has ended.
            killpg(*group, signal).ok();
        }
    };
    signal(Signal::SIGTERM);
    let has_ended = timeout(GRACE, join_all(orphans.iter().map(Orphan::ended))).await.is_ok();
    // What they left running in their groups ends with them, as after a plugin that was told to end.
    signal(Signal::SIGKILL);
    if has_ended || timeout(GRACE, join_all(orphans.iter().map(Orphan::ended))).await.is_ok() {
        return Ok(());
    }
    let pids: Vec<_> = orphans.iter().map(|orphan| orphan.pid.to_string()).collect();
    let pids = pids.join(", ");
    Err(CniError::new(Code::TIMEOUT, format!("cannot end process {pids}, which still runs ADD for this attachment"))
        .detail("It was sent SIGTERM and SIGKILL; a process that waits for a device or a file system may not end."))
}

impl Orphan {
    /// The process of this number, if it runs ADD for the attachment and is in none of `groups`.
    fn find(pid: Pid, attachment: &Attachment, groups: &BTreeSet<Pid>) -> io::Result<Option<Self>> {
        let Some(number) = rustix::process::Pid::from_raw(pid.as_raw()) else { return Ok(None) };
        // Most processes are not it, and opening them costs more than reading.
        if !runs_add(pid, attachment) {
            return Ok(None);
        }
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            pidfd => watched(pidfd?)?,
        };
        // Once more: now the number stays with the process until it has ended and the descriptor says so.
        let Some(group) = getpgid(Some(pid)).ok().filter(|_| runs_add(pid, attachment)) else { return Ok(None) };
        Ok((!groups.contains(&group)).then_some(Self { pid, group, pidfd }))
    }

    /// Waits until it has ended.
    async fn ended(&self) {
        if let Err(error) = self.pidfd.readable().await {
            tracing::warn!(%error, pid = self.pid.as_raw(), "cannot wait for a plugin");
        }
    }
}

#[expect(deprecated, reason = "the successor is unsafe for types that might close their descriptor; this one does not")]
fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

/// All processes that run ADD for the attachment, but for this one and those it was started by: a plugin that links this
/// library runs for an attachment, too. Nor those of their groups, which a signal to the group would reach.
fn find(attachment: &Attachment) -> io::Result<Vec<Orphan>> {
    let own = own_groups();
    let mut orphans = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw) else { continue };
        orphans.extend(Orphan::find(pid, attachment, &own)?);
    }
    Ok(orphans)
}

/// Whether the process was called to ADD this attachment. One that cannot be looked at has ended or is nobody's plugin
/// that this process could have started.
fn runs_add(pid: Pid, attachment: &Attachment) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    let has = |key: &str, value: &str| {
        let is_it = |entry: &[u8]| entry.strip_prefix(key.as_bytes()).is_some_and(|rest| rest == value.as_bytes());
        environment.split(|byte| *byte == 0).any(is_it)
    };
    has("CNI_CONTAINERID=", attachment.id.container_id.as_str())
        && has("CNI_COMMAND=", Command::Add.as_str())
        && has("CNI_IFNAME=", attachment.id.ifname.as_str())
        && has("CNI_NETNS=", &attachment.netns)
        && is_on_this_node(pid, &attachment.netns)
}

/// Whether the process means the same by the path of a namespace: nodes within this one (containers that run containers)
/// have paths, and perhaps identifiers, alike, and their processes are to be seen from here.
fn is_on_this_node(pid: Pid, netns: &str) -> bool {
    let mounts = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    let of = pid.to_string();
    if let (Some(theirs), Some(own)) = (mounts(&of), mounts("thread-self"))
        && theirs == own
    {
        return true;
    }
    // A runtime that runs in a container may have been started anew in another one.
    let file = |path: String| std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
    let theirs = file(format!("/proc/{of}/root{netns}"));
    theirs.is_some() && theirs == file(netns.to_owned())
}

/// The process groups of this process and its ancestors.
fn own_groups() -> BTreeSet<Pid> {
    let mut groups = BTreeSet::from([getpgrp()]);
    let mut pid = Pid::parent();
    // 0: the first process there is, or one whose parent is out of sight in another process namespace.
    while pid.as_raw() > 0 {
        groups.extend(getpgid(Some(pid)));
        let Some(parent) = parent(pid) else { break };
        pid = parent;
    }
    groups
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    number.trim().parse().ok().map(Pid::from_raw)
}
