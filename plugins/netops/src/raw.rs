//! The one file with `unsafe`: handing a system call to a child process.

#![expect(unsafe_code, reason = "fork has no safe form; see each SAFETY")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// Sends `bytes` on `socket` from a child process, which ends when the kernel is done with them. The returned pipe
/// hangs up when it has ended, however that came.
///
/// The child holds nothing but the socket and its end of the pipe: no file of the caller's, no lock, so nobody waits
/// for it. It is not waited for either; when the caller ends, init reaps it.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`, `EMFILE`: no further process or pipe; nothing was sent.
pub(crate) fn send_from_child(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (socket, writer) = (socket.as_raw_fd(), write_end.as_raw_fd());
    // SAFETY: after fork in a process that may have threads, the child may call async-signal-safe
    // functions only. It calls those of `keep_only`, send and _exit, all bare system calls: no allocation,
    // no lock, no destructor. The descriptors are open: one is borrowed, one is owned until after the fork;
    // `bytes` outlives the call, and the child never returns from this block, so no Rust value is dropped twice.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                keep_only(socket, writer);
                libc::send(0, bytes.as_ptr().cast(), bytes.len(), 0);
                libc::_exit(0)
            }
            _ => Ok(read_end),
        }
    }
}

/// Leaves a child nothing open but two files, as 0 and 1.
///
/// # Safety
/// Only in a child that ends without returning to the caller's code: everything the caller has open is closed.
unsafe fn keep_only(first: libc::c_int, second: libc::c_int) {
    // SAFETY: bare system calls on numbers; a number that is not open is refused. By this function's own
    // condition nobody uses the closed descriptors afterwards.
    unsafe {
        // Neither may be overwritten by what is put at 0 and 1 before it is used.
        let (first, second) = (libc::fcntl(first, libc::F_DUPFD, 3), libc::fcntl(second, libc::F_DUPFD, 3));
        libc::dup2(first, 0);
        libc::dup2(second, 1);
        // A kernel before 5.9 refuses. A runtime waits for the end of the plugin's stdout, so one by one then, as
        // many as a process may have by default.
        if libc::syscall(libc::SYS_close_range, 2u32, u32::MAX, 0u32) != 0 {
            for fd in 2..1024 {
                libc::close(fd);
            }
        }
    }
}

/// A close that has to wait for nf_tables' grace period holds the lock of the ruleset meanwhile, so that
/// nobody can change it. A child that is in no hurry comes when the period (10 to 25 ms) is over; the kernel has
/// no event for that, and nothing depends on it.
const LINGER_NS: libc::c_long = 100_000_000;

/// Keeps `socket` open in a child process until the caller has closed its end of the returned pipe, or
/// has ended, and a little longer: the close that waits for the kernel is then the child's.
///
/// The child holds nothing but the socket and its end of the pipe, and is not waited for.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`, `EMFILE`: no further process or pipe.
pub(crate) fn hold_in_child(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (socket, reader) = (socket.as_raw_fd(), read_end.as_raw_fd());
    // SAFETY: as in `send_from_child`: the child makes bare system calls only (those of `keep_only`, read,
    // nanosleep, _exit) and never returns from this block. The descriptors are open: one is
    // borrowed, two are owned until after the fork. `byte` and `linger` live on the child's own stack.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                keep_only(socket, reader);
                let mut byte = 0_u8;
                libc::read(1, (&raw mut byte).cast(), 1);
                let linger = libc::timespec { tv_sec: 0, tv_nsec: LINGER_NS };
                libc::nanosleep(&raw const linger, std::ptr::null_mut());
                libc::_exit(0)
            }
            _ => Ok(write_end),
        }
    }
}
