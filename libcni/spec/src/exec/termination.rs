//! How a plugin is ended that takes too long, or that nothing waits for any more: SIGTERM, a time to clean up, SIGKILL.

use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use tokio::time::timeout;

use super::{Child, GRACE, Group, KILLED, Running};

impl Running {
    /// Ends the child: SIGTERM, and after `grace`, or when `hurry` ends, SIGKILL. Returns whether it has ended; if not, the kernel
    /// ends it as soon as it can.
    pub(super) async fn end(&mut self, grace: Duration, hurry: impl Future<Output = ()>) -> bool {
        let Some(child) = &mut self.child else { return true };
        let group = child.pid(); // none once it was waited for
        if !self.terminated {
            signal(child, self.group, Signal::SIGTERM);
            self.terminated = true;
        }
        let mut has_ended = true;
        let is_left = async {
            tokio::select! {
                _ = child.wait() => false,
                () = hurry => true,
            }
        };
        if timeout(grace, is_left).await.unwrap_or(true) {
            signal(child, self.group, Signal::SIGKILL);
            match timeout(KILLED, child.wait()).await {
                Ok(Err(error)) => tracing::warn!(%error, "cannot wait for a killed plugin"),
                Ok(Ok(_)) => {}
                Err(_) => has_ended = false,
            }
        } else if let (Group::Own, Some(group)) = (self.group, group) {
            // Processes that the plugin left in its group end with it; ESRCH: there are none.
            killpg(group, Signal::SIGKILL).ok();
        }
        self.child = None;
        has_ended
    }
}

impl Drop for Running {
    /// Sends SIGTERM at once: the runtime may never poll the task that waits for the child.
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        if self.terminated {
            // The runtime ended before the grace period did.
            signal(&child, self.group, Signal::SIGKILL);
            return;
        }
        signal(&child, self.group, Signal::SIGTERM);
        let mut rest = Running { child: Some(child), group: self.group, terminated: true };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move { rest.end(GRACE, std::future::pending()).await }));
        }
    }
}

/// Sends a signal to the child, or to its whole group. The child is not reaped yet, so its pid is still its own.
fn signal(child: &Child, group: Group, signal: Signal) {
    let Some(pid) = child.pid() else { return };
    let sent = match group {
        Group::Own => killpg(pid, signal),
        Group::Callers => kill(pid, signal),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, %pid, "cannot signal a plugin");
    }
}
