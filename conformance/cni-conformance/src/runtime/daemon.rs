//! A daemon that a runtime needs: there before its first run, gone with the testbed.

use super::runtime_testbed::Variables;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that a daemon may take to be ready.
const DEADLINE: Duration = Duration::from_secs(20);
/// The line that a ready daemon writes to the socket in `NOTIFY_SOCKET` (sd_notify(3)), in one datagram with other
/// lines or not.
const READY: &str = "READY=1";

/// A daemon that runs. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts it and waits until it says that it is ready, as sd_notify(3) has it. Its log is in `work_dir`.
    pub(super) fn start(arguments: &[String], environment: Variables, work_dir: &Path) -> io::Result<Self> {
        let (log, notify) = (work_dir.join("daemon.log"), work_dir.join("notify"));
        let socket = UnixDatagram::bind(&notify)?;
        let program = arguments.first().map(String::as_str).unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments.iter().skip(1)).env_clear().envs(environment).env("NOTIFY_SOCKET", &notify);
        command.current_dir(work_dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let daemon = command.spawn().map_err(|error| io::Error::other(format!("cannot start {program}: {error}")))?;
        let daemon = Self(daemon);
        daemon.wait(&socket).map_err(|error| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(format!(
                "{program} {error}; its log ends with {:?}",
                log.lines().last().unwrap_or_default()
            ))
        })?;
        Ok(daemon)
    }

    fn wait(&self, socket: &UnixDatagram) -> io::Result<()> {
        let pid = Pid::from_raw(self.0.id().cast_signed()).ok_or_else(|| io::Error::other("has no process ID"))?;
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        let (start, mut message) = (Instant::now(), [0; 4096]);
        loop {
            let left = PollTimeout::try_from(DEADLINE.saturating_sub(start.elapsed())).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, left)? == 0 {
                return Err(io::Error::other(format!("was not ready within {} s", DEADLINE.as_secs())));
            }
            let [has_message, has_ended] = fds.map(|fd| fd.any().unwrap_or_default());
            if has_message {
                let length = socket.recv(&mut message)?;
                let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default());
                if text.lines().any(|line| line == READY) {
                    return Ok(());
                }
            } else if has_ended {
                return Err(io::Error::other("ended before it was ready"));
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok(); // the daemon may have ended
        self.0.wait().ok();
    }
}
