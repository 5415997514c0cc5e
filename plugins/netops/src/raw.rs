//! The one file with `unsafe`: handing a system call to a child process.

#![expect(unsafe_code, reason = "fork has no safe form; see each SAFETY")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// Sends `bytes` on `socket` from a child process, which ends when the kernel is done with them. The returned pipe
/// hangs up when it has ended, however that came.
///
/// The child holds nothing but the socket, its end of the pipe and `held`: no other file of the caller's, no lock, so nobody
/// waits for it. It is not waited for either; when the caller ends, init reaps it.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`, `EMFILE`: no further process or pipe; nothing was sent.
pub(crate) fn send_from_child(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    held: Option<BorrowedFd<'_>>,
) -> Result<(Pid, OwnedFd), Errno> {
    let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let kept = [socket.as_raw_fd(), write_end.as_raw_fd(), held.map_or(-1, |held| held.as_raw_fd())];
    // SAFETY: after fork in a process that may have threads, the child may call async-signal-safe
    // functions only. It calls those of `keep_only`, send and _exit, all bare system calls: no allocation,
    // no lock, no destructor. The descriptors are open: two are borrowed, one is owned until after the fork;
    // `bytes` outlives the call, and the child never returns from this block, so no Rust value is dropped twice.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                keep_only(kept);
                libc::send(0, bytes.as_ptr().cast(), bytes.len(), 0);
                libc::_exit(0)
            }
            pid => Ok((Pid::from_raw(pid), read_end)),
        }
    }
}

/// Leaves a child nothing open but three files, as 0, 1 and 2; a number that is none stays closed.
///
/// # Safety
/// Only in a child that ends without returning to the caller's code: everything the caller has open is closed.
unsafe fn keep_only(files: [libc::c_int; 3]) {
    // SAFETY: bare system calls on numbers; a number that is not open is refused. By this function's own
    // condition nobody uses the closed descriptors afterwards.
    unsafe {
        // None may be overwritten by what is put at 0, 1 and 2 before it is used.
        let files = files.map(|file| libc::fcntl(file, libc::F_DUPFD, 3));
        for (number, file) in (0..).zip(files) {
            if libc::dup2(file, number) == -1 {
                libc::close(number);
            }
        }
        // A kernel before 5.9 refuses. A runtime waits for the end of the plugin's stdout, so one by one then, as
        // many as a process may have by default.
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) != 0 {
            for fd in 3..1024 {
                libc::close(fd);
            }
        }
    }
}
