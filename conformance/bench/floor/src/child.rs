//! Leaving a wait to a child process.

#![expect(unsafe_code, reason = "fork has no safe form")]

use nix::errno::Errno;
use nix::unistd::{ForkResult, close, fork};

/// Runs `work` in a child process, which ends afterwards; this process does not wait for it.
///
/// The child's standard files are closed: a process that waits for the end of the parent's output does not wait for the child.
pub(crate) fn leave_to_child(work: impl FnOnce()) -> Result<(), Errno> {
    // SAFETY: this program has one thread, so the child may do whatever the parent may (fork(2), nix's condition). It
    // does not return to the caller: it ends by `_exit`, so nothing is dropped or flushed twice.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(()),
        ForkResult::Child => {
            for file in 0..3 {
                close(file).ok();
            }
            work();
            // SAFETY: ends the process, nothing else.
            unsafe { nix::libc::_exit(0) }
        }
    }
}
