//! A plugin that a dead runtime left running.
//!
//! A runtime that is killed cannot end its plugin, which runs in a process group of its own and continues. An ADD or DEL that
//! still runs could undo what a later call does, so the next call for the attachment ends that plugin first. It does not
//! if the runtime lives: that has given the plugin up, and ends it.
//!
//! The cache's entry identifies the process. It was recorded there before the plugin got the end of its config, without
//! which the plugin does nothing; so a plugin that was forked and never recorded need not be ended. Nothing else is
//! evidence, least of all a process's environment: a daemon that the plugin has started for all containers has the
//! same. What the plugin started in its own process group ends with it, as at a deadline; a daemon that left the group
//! keeps running.

use crate::deadlines::Limits;
use crate::error::Error;
use cni_spec::exec::GRACE;
use cni_spec::{CniError, Code, Command};
use futures::future::join_all;
use nix::unistd::{Pid, getpgrp};
use processes::{ProcessId, Stat};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

/// The time between two looks whether a process has ended, where the kernel does not announce it.
const PAUSE: Duration = Duration::from_millis(20);

/// Ends the recorded plugin, with its process group: SIGTERM, on which plugins roll back, after [`GRACE`] SIGKILL. The
/// plugin of another runtime that lives is left to that, and its end is waited for.
/// Errors: [`Error::Orphans`] if it does not end, or `limits` are reached before.
pub(crate) async fn end(running: &RunningPlugin, limits: &Limits, command: Command) -> Result<(), Error> {
    let ended = async {
        let failed = |error| {
            CniError::new(Code::IO, format!("cannot look for the plugin of an unfinished ADD in /proc: {error}"))
        };
        let Some(plugin) = &running.plugin.find_here().map_err(failed)? else {
            return unseen(&running.plugin, limits).map_err(failed)?.map_or(Ok(()), Err);
        };
        let Some(orphan) = Orphan::find(plugin).map_err(failed)? else { return Ok(()) };
        if let Some(runtime) = running.living_runtime().map_err(failed)? {
            return orphan.leave_to(&runtime).await;
        }
        let others = members(plugin).map_err(failed)?;
        let pid = plugin.pid.as_raw();
        tracing::warn!(pid, others = others.len(), "ending a plugin that a dead runtime has left running");
        end_group(orphan, others, plugin).await
    };
    tokio::select! {
        // If the limits are reached already, nothing may be started.
        biased;
        error = limits.reached(command) => Err(error),
        outcome = ended => outcome,
    }
    .map_err(|error| Error::Orphans { error })
}

/// The error that the plugin may run in a PID namespace that cannot be seen from here, for as long as a plugin is given.
fn unseen(plugin: &ProcessId, limits: &Limits) -> io::Result<Option<CniError>> {
    if !plugin.may_run_unseen()? {
        return Ok(None);
    }
    let left = limits.each.saturating_sub(plugin.age()?);
    if left.is_zero() {
        tracing::warn!(
            pid = plugin.pid.as_raw(),
            "a plugin of another PID namespace counts as ended, as its time is over"
        );
        return Ok(None);
    }
    let msg = format!("plugin process {} of another PID namespace may still run for this attachment", plugin.pid);
    let seconds = left.as_secs_f32().ceil();
    Ok(Some(CniError::new(Code::TRY_AGAIN, msg).detail(format!(
        "It cannot be seen from here: try again in {seconds} s, when its time is over, or in the PID namespace of its runtime."
    ))))
}

async fn end_group(orphan: Orphan, others: Vec<Orphan>, plugin: &ProcessId) -> Result<(), CniError> {
    let mut group = others;
    orphan.signal(Signal::TERM);
    group.iter().for_each(|other| other.signal(Signal::TERM));
    if timeout(GRACE, orphan.ended()).await.is_err() {
        // Processes that it has started since.
        group.extend(members(plugin).unwrap_or_default());
    }
    group.push(orphan);
    // Processes that it left in its group end with it, as after a plugin that was terminated.
    group.iter().for_each(|member| member.signal(Signal::KILL));
    if timeout(GRACE, join_all(group.iter().map(Orphan::ended))).await.is_ok() {
        return Ok(());
    }
    let pid = plugin.pid;
    Err(CniError::new(
        Code::TIMEOUT,
        format!("cannot end process {pid}, which an earlier call has started for this attachment"),
    )
    .detail("It was sent SIGTERM and SIGKILL; a process that waits for a device or a file system may not end."))
}

/// A process that cannot be mistaken for another one.
struct Orphan {
    pid: Pid,
    handle: Handle,
}

enum Handle {
    /// A descriptor, which cannot come to mean another process. Readable when it has ended.
    Pidfd(AsyncFd<OwnedFd>),
    /// The process's start time, where the kernel has no such descriptors (Linux before 5.3): compared before each signal.
    Started(ProcessId),
}

impl Orphan {
    /// The recorded process, if it still runs and is not the caller or its ancestor: a plugin that links this library
    /// runs for an attachment as well.
    fn find(plugin: &ProcessId) -> io::Result<Option<Self>> {
        if own_groups()?.contains(&plugin.pid) {
            return Ok(None);
        }
        // The descriptor is opened first and the process is examined after: what is seen is the descriptor's process,
        // or that has ended.
        let Some(orphan) = Self::open(plugin.pid)? else { return Ok(None) };
        Ok(plugin.runs()?.then_some(orphan))
    }

    /// The process that has this pid now.
    fn open(pid: Pid) -> io::Result<Option<Self>> {
        let Some(number) = rustix::process::Pid::from_raw(pid.as_raw()) else { return Ok(None) };
        match pidfd_open(number, PidfdFlags::empty()) {
            // EINVAL: the number is a thread's, which never was a plugin.
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(Errno::NOSYS) => {
                let id = ProcessId::of(pid)?;
                Ok(id.map(|id| Self { pid, handle: Handle::Started(id) }))
            }
            pidfd => Ok(Some(Self { pid, handle: Handle::Pidfd(watched(pidfd?)?) })),
        }
    }

    fn signal(&self, signal: Signal) {
        let sent = match &self.handle {
            Handle::Pidfd(pidfd) => pidfd_send_signal(pidfd.get_ref(), signal),
            Handle::Started(id) => match (id.runs(), rustix::process::Pid::from_raw(id.pid.as_raw())) {
                (Ok(true), Some(pid)) => kill_process(pid, signal),
                _ => Ok(()),
            },
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, pid = self.pid.as_raw(), "cannot signal a plugin"),
        }
    }

    /// Waits for the end of a plugin that its runtime has given up, as that ends it.
    async fn leave_to(&self, runtime: &ProcessId) -> Result<(), CniError> {
        if timeout(2 * GRACE, self.ended()).await.is_ok() {
            return Ok(());
        }
        let (pid, runtime) = (self.pid, runtime.pid);
        Err(CniError::new(Code::TRY_AGAIN, format!("plugin process {pid} still runs for this attachment"))
            .detail(format!("Process {runtime} has started it, and lives: try again when it has ended, or end both.")))
    }

    /// Waits until it has ended.
    async fn ended(&self) {
        match &self.handle {
            Handle::Pidfd(pidfd) => {
                if let Err(error) = pidfd.readable().await {
                    tracing::warn!(%error, pid = self.pid.as_raw(), "cannot wait for a plugin");
                }
            }
            Handle::Started(id) => has_ended(id).await,
        }
    }
}

/// Waits for the end of a process that is not a child: without a descriptor nothing announces it.
#[expect(clippy::disallowed_methods, reason = "such a kernel does not announce the end of another's child")]
async fn has_ended(id: &ProcessId) {
    while id.runs().unwrap_or(false) {
        sleep(PAUSE).await;
    }
}

#[expect(deprecated, reason = "the successor is unsafe for types that might close their descriptor; this one does not")]
fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

/// The other processes of the plugin's group. None if the plugin has ended: the group's number may be in use again.
fn members(plugin: &ProcessId) -> io::Result<Vec<Orphan>> {
    let is_member = |pid| Ok::<_, io::Error>(Stat::of(pid)?.is_some_and(|stat| stat.group == plugin.pid));
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw) else { continue };
        // Most processes are not in the group, and opening them costs more than reading their group.
        if pid == plugin.pid || !is_member(pid)? {
            continue;
        }
        if let Some(member) = Orphan::open(pid)?
            && is_member(pid)?
        {
            members.push(member);
        }
    }
    if !plugin.runs()? {
        members.clear();
    }
    Ok(members)
}

/// The process groups of this process and its ancestors.
fn own_groups() -> io::Result<BTreeSet<Pid>> {
    let mut groups = BTreeSet::from([getpgrp()]);
    let mut pid = Pid::parent();
    // 0: the first process of the namespace, or a parent outside this PID namespace.
    while pid.as_raw() > 0 {
        let Some(stat) = Stat::of(pid)? else { break };
        groups.insert(stat.group);
        pid = stat.parent;
    }
    Ok(groups)
}

/// The plugin that runs ADD of an attachment, and the runtime that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningPlugin {
    pub(crate) plugin: ProcessId,
    /// `None`: an earlier version of this library has recorded the plugin.
    pub(crate) runtime: Option<ProcessId>,
}

impl RunningPlugin {
    /// The length of the text: two processes and a separator.
    pub(crate) const TEXT_BYTES: usize = 2 * ProcessId::TEXT_BYTES + 1;

    pub(crate) fn of(plugin: Pid) -> io::Result<Option<Self>> {
        let Some(plugin) = ProcessId::of(plugin)? else { return Ok(None) };
        Ok(Some(Self { plugin, runtime: ProcessId::of(Pid::this())? }))
    }

    /// The runtime of a plugin that can be seen here, if it runs and is another process than this one.
    pub(crate) fn living_runtime(&self) -> io::Result<Option<ProcessId>> {
        let Some(runtime) = &self.runtime else { return Ok(None) };
        Ok(runtime.find_here()?.filter(|runtime| runtime.pid != Pid::this()))
    }
}

/// Always of the same length. The PID namespace stands behind both: earlier versions read three words for each.
impl fmt::Display for RunningPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.as_ref().map(ProcessId::to_string).unwrap_or_default();
        write!(f, "{} {runtime:width$}", self.plugin.clone().beside(None), width = ProcessId::TEXT_BYTES)
    }
}

impl FromStr for RunningPlugin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_ascii_whitespace();
        let plugin = ProcessId::parse(&mut words.by_ref().take(3)).ok_or(())?;
        let runtime = ProcessId::parse(&mut words);
        Ok(Self { plugin: plugin.beside(runtime.as_ref()), runtime })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    /// When the plugin has ended, its group's number says nothing: another process may have it next.
    #[test]
    fn the_group_of_a_plugin_that_has_ended_has_no_members() {
        let mut plugin = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 >&- & echo $!; read word"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(plugin.id().try_into().unwrap());
        let id = ProcessId::of(pid).unwrap().unwrap();
        let mut said = plugin.stdout.take().unwrap();
        said.read_exact(&mut [0]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _inside = runtime.enter();
        let group = members(&id).unwrap();
        assert_eq!(group.len(), 1);
        drop(plugin.stdin.take());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(members(&id).unwrap().len(), 0);
        group.iter().for_each(|member| member.signal(Signal::KILL));
        plugin.wait().unwrap();
    }

    #[test]
    fn the_text_is_read_back_and_has_one_length() {
        let plugin = ProcessId::of(Pid::this()).unwrap().unwrap();
        for runtime in [None, Some(plugin.clone())] {
            let running = RunningPlugin { plugin: plugin.clone().beside(runtime.as_ref()), runtime };
            assert_eq!(running.to_string().len(), RunningPlugin::TEXT_BYTES);
            assert_eq!(running.to_string().parse(), Ok(running));
        }
        // As earlier versions wrote it.
        let plugin = plugin.beside(None);
        assert_eq!(plugin.to_string().parse(), Ok(RunningPlugin { plugin, runtime: None }));
        assert!("1 2".parse::<RunningPlugin>().is_err());
    }
}
