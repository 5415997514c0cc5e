//! The one file with `unsafe`: handing a system call to a child process, and the requests of `/dev/net/tun`.

#![expect(unsafe_code, reason = "fork and ioctl have no safe form; see each SAFETY")]

use std::fs::File;
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

/// A number that `/dev/net/tun` is given for an open link (include/uapi/linux/if_tun.h).
#[derive(Debug, Clone, Copy)]
pub(crate) enum TunSetting {
    /// Stays when it is closed: 1.
    Persist = 203,
    /// A user.
    Owner = 204,
    /// A group.
    Group = 206,
}

/// Makes the tun or tap of this name and attaches it to `file`, which has `/dev/net/tun` open: `TUNSETIFF`.
///
/// # Errors
/// `EBUSY`: with `IFF_TUN_EXCL`, the name is taken. `EINVAL`: a name of more than 15 bytes. As `ioctl(2)`.
pub(crate) fn attach_tun(file: &File, name: &str, flags: libc::c_short) -> Result<(), Errno> {
    // SAFETY: an `ifreq` is integers, arrays of them and unions of both, for all of which zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::EINVAL);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = flags;
    let number = nix::request_code_write!(b'T', 202, size_of::<libc::c_int>());
    // SAFETY: the kernel reads and writes one `ifreq` at the pointer, which is that of a live, exclusive local.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number, &raw mut request) }).map(drop)
}

/// Sets a number of the tun or tap that is attached to `file`.
///
/// # Errors
/// As `ioctl(2)`.
pub(crate) fn set_tun(file: &File, setting: TunSetting, value: u32) -> Result<(), Errno> {
    let number = nix::request_code_write!(b'T', setting as u8, size_of::<libc::c_int>());
    // SAFETY: these requests take the number itself, and no memory of the caller's is touched.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number, libc::c_ulong::from(value)) }).map(drop)
}
