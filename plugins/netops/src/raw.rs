//! The one file with `unsafe`: handing a system call to a child process.

#![expect(unsafe_code, reason = "fork has no safe form; see each SAFETY")]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// Sends `bytes` on `socket` from a child process, which ends when the kernel is done with them.
///
/// The child holds nothing but the socket: no pipe of the caller's, no lock, so nobody waits for it.
/// It is not waited for either; when the caller ends, init reaps it.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`: no further process; nothing was sent.
pub(crate) fn send_from_child(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<Pid, Errno> {
    let fd = socket.as_raw_fd();
    // SAFETY: after fork in a process that may have threads, the child may call async-signal-safe
    // functions only. It calls dup2, close_range, send and _exit, all bare system calls: no allocation,
    // no lock, no destructor. `fd` is open (borrowed), `bytes` outlives the call, and the child never
    // returns from this block, so no Rust value is dropped twice.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                libc::dup2(fd, 0);
                // The number of the call is passed as glibc has no wrapper before 2.34; a kernel before 5.9
                // refuses, and then the files stay open for the moment the child lives.
                libc::syscall(libc::SYS_close_range, 1u32, u32::MAX, 0u32);
                libc::send(0, bytes.as_ptr().cast(), bytes.len(), 0);
                libc::_exit(0)
            }
            child => Ok(Pid::from_raw(child)),
        }
    }
}
