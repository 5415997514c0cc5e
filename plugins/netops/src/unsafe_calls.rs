//! The one file with `unsafe`: handing a system call to a child process, the requests of `/dev/net/tun`, the kind of a
//! namespace, the address of a packet socket, leases of files.

#![expect(unsafe_code, reason = "fork and ioctl have no safe form; see each SAFETY")]

use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;
use socket2::SockAddr;

/// How long a child keeps its files open when it has nothing else to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Less than a second.
    pub(crate) least: Duration,
    /// If not zero: until the time since the boot is a multiple of this, so that all children end at once.
    pub(crate) until_multiple_of: Duration,
}

impl Rest {
    /// No time at all.
    pub(crate) const NONE: Self = Self { least: Duration::ZERO, until_multiple_of: Duration::ZERO };
}

/// Sends `bytes` on `socket` from a child process, which ends when the kernel has processed them, and the rest is over. The
/// returned pipe hangs up when the kernel has, or when the child has ended, for whatever reason.
///
/// The child keeps nothing open but the socket, its end of the pipe and `held`: no other file or lock of the caller. So
/// no process waits for it, and the caller does not either; when the caller ends, init reaps the child.
/// Errors: `EAGAIN`, `ENOMEM`, `EMFILE`: no further process or pipe is possible; nothing was sent.
pub(crate) fn send_from_child(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    held: Option<BorrowedFd<'_>>,
    rest: Rest,
) -> Result<(Pid, OwnedFd), Errno> {
    let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let kept = [socket.as_raw_fd(), write_end.as_raw_fd(), held.map_or(-1, |held| held.as_raw_fd())];
    leave_zombies();
    // SAFETY: after fork in a process that may have threads, the child may call async-signal-safe
    // functions only. It calls those of `keep_only` and `take_rest`, send, close and _exit, all bare system calls: no allocation,
    // no lock, no destructor. The descriptors are open: two are borrowed, one is owned until after the fork;
    // `bytes` outlives the call, and the child never returns from this block, so no Rust value is dropped twice.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                keep_only(kept);
                libc::send(0, bytes.as_ptr().cast(), bytes.len(), 0);
                if rest != Rest::NONE {
                    libc::close(0);
                    libc::close(1);
                    take_rest(rest);
                }
                libc::_exit(0)
            }
            pid => Ok((Pid::from_raw(pid), read_end)),
        }
    }
}

/// Holds `file` open in a child process for as long as `rest`; then the child ends, which closes the file.
///
/// The child keeps nothing else open, as with [`send_from_child`].
/// Errors: `EAGAIN`, `ENOMEM`: no further process is possible.
pub(crate) fn hold_in_child(file: BorrowedFd<'_>, rest: Rest) -> Result<Pid, Errno> {
    let kept = [file.as_raw_fd(), -1, -1];
    leave_zombies();
    // SAFETY: as in `send_from_child`: the child calls those of `keep_only` and `take_rest`, and _exit only, on a descriptor
    // that is open, and never returns from this block.
    unsafe {
        match libc::fork() {
            -1 => Err(Errno::last()),
            0 => {
                keep_only(kept);
                take_rest(rest);
                libc::_exit(0)
            }
            pid => Ok(Pid::from_raw(pid)),
        }
    }
}

/// Sleeps for as long as `rest`; async-signal-safe.
fn take_rest(rest: Rest) {
    let sleep = |clock, flags, nanoseconds| {
        let time = TimeSpec::from_duration(Duration::from_nanos(nanoseconds));
        // SAFETY: `time` is a live local; a null pointer asks for no remainder.
        unsafe { libc::clock_nanosleep(clock, flags, time.as_ref(), std::ptr::null_mut()) }
    };
    if !rest.least.is_zero() {
        sleep(libc::CLOCK_MONOTONIC, 0, rest.least.subsec_nanos().into());
    }
    if let Some(period) = NonZeroU64::new(rest.until_multiple_of.subsec_nanos().into()) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one `timespec` at the pointer, which points to a live, exclusively borrowed local.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        let now = u64::try_from(Duration::from(TimeSpec::from(now)).as_nanos()).unwrap_or_default();
        sleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, (now / period + 1) * period.get());
    }
}

/// Makes children that have ended stay until a process waits for them, also where the runtime made its children ignore
/// `SIGCHLD`: a helper that has disappeared is the evidence that PID 1 waits for orphans (`helper_process.rs`).
fn leave_zombies() {
    // SAFETY: the default action of this signal is to do nothing, and no handler of another is touched.
    if let Err(errno) = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) } {
        tracing::debug!(%errno, "SIGCHLD keeps its action");
    }
}

/// Closes all files of a child but three, which become 0, 1 and 2. A negative number stays closed.
///
/// # Safety
/// Only in a child that ends without returning to the caller's code: everything the caller has open is closed.
unsafe fn keep_only(files: [libc::c_int; 3]) {
    // SAFETY: bare system calls on numbers; the kernel refuses a number that is not open. By this function's own
    // condition the closed descriptors are not used afterwards.
    unsafe {
        // The three files must not be overwritten when they are moved to 0, 1 and 2; usually none is one of these.
        let files = match files.iter().any(|file| (0..3).contains(file)) {
            true => files.map(|file| libc::fcntl(file, libc::F_DUPFD, 3)),
            false => files,
        };
        for (number, file) in (0..).zip(files) {
            if libc::dup2(file, number) == -1 {
                libc::close(number);
            }
        }
        // A kernel before 5.9 refuses. Then close one by one, up to the default limit of open files: a runtime waits
        // for the end of the plugin's stdout.
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) != 0 {
            for fd in 3..1024 {
                libc::close(fd);
            }
        }
    }
}

/// The address of a link for packet(7) sockets; `protocol` is an `ETH_P_*` (linux/if_ether.h).
#[expect(clippy::cast_possible_truncation, reason = "a family and the size of a small structure")]
pub(crate) fn packet_address(index: u32, protocol: u16) -> SockAddr {
    // SAFETY: `sockaddr_ll` is integers, for which zeroes are valid, and is smaller than the storage, which is aligned
    // for every kind of address; the length that is returned is its size.
    let filled = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = &mut *storage.cast::<libc::sockaddr_ll>();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol.to_be();
            address.sll_ifindex = index.cast_signed();
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    };
    match filled {
        Ok(((), address)) => address,
        Err(_) => unreachable!("the closure returns no error"),
    }
}

/// A numeric setting of an open tun or tap (include/uapi/linux/if_tun.h).
#[derive(Debug, Clone, Copy)]
pub(crate) enum TunSetting {
    /// 1: the link stays when it is closed.
    Persist = 203,
    /// The user who may open it.
    Owner = 204,
    /// The group that may open it.
    Group = 206,
}

/// Creates the tun or tap of this name and attaches it to `file`, an open `/dev/net/tun`: `TUNSETIFF`.
/// Errors: `EBUSY`: with `IFF_TUN_EXCL`, the name is taken. `EINVAL`: the name is longer than 15 bytes. Others as `ioctl(2)`.
pub(crate) fn attach_tun(file: &File, name: &str, flags: libc::c_short) -> Result<(), Errno> {
    // SAFETY: an `ifreq` consists of integers, arrays of them and unions of both. Zeroes are valid for all of these.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::EINVAL);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = flags;
    let number = nix::request_code_write!(b'T', 202, size_of::<libc::c_int>());
    // SAFETY: the kernel reads and writes one `ifreq` at the pointer, which points to a live, exclusively borrowed
    // local.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number, &raw mut request) }).map(drop)
}

/// The kind of the namespace that `file`, a regular file, is: `CLONE_NEWNET` and the like (`NS_GET_NSTYPE`, linux/nsfs.h).
/// Errors: `ENOTTY`: it is no namespace, or the kernel is older than 4.11.
pub(crate) fn namespace_kind(file: &File) -> Result<libc::c_int, Errno> {
    let number = nix::request_code_none!(0xb7, 3);
    // SAFETY: this request has no argument and accesses no memory of the caller.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number) })
}

/// Takes a read lease of `file`, which is open for reading only: no process has the file open for writing, and one that opens it
/// for writing waits until the lease is returned (`F_SETLEASE`).
/// Errors: `EAGAIN`: it is open for writing. `EACCES`: it is another user's. `EINVAL`: its file system has no leases.
pub(crate) fn take_read_lease(file: &File) -> Result<(), Errno> {
    /// Chooses the signal that tells the holder of a process that waits (asm-generic/fcntl.h).
    const F_SETSIG: libc::c_int = 10;
    // This signal does nothing by default; the usual one would end the process.
    // SAFETY: these requests have a number as argument and access no memory of the caller.
    unsafe {
        Errno::result(libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG))?;
        Errno::result(libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)).map(drop)
    }
}

/// Sets a property of the tun or tap that is attached to `file`.
pub(crate) fn set_tun(file: &File, setting: TunSetting, value: u32) -> Result<(), Errno> {
    let number = nix::request_code_write!(b'T', setting as u8, size_of::<libc::c_int>());
    // SAFETY: these requests take the number itself and access no memory of the caller.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number, libc::c_ulong::from(value)) }).map(drop)
}
