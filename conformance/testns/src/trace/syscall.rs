//! System calls: names, and which of them change something.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::message;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

#[cfg(target_arch = "x86_64")]
use {crate::must::Must, nix::sys::ptrace};

/// A system call at the moment it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscall {
    pub pid: i32,
    pub number: i64,
    pub arguments: [u64; 6],
    /// The call may change something outside its process.
    pub changes: bool,
}

/// A table of names, and whether a call of that name changes something.
macro_rules! table {
    ($($name:ident $changes:expr,)*) => {
        &[$((libc::$name, stringify!($name), $changes)),*]
    };
}

type Changes = fn(&[u64; 6]) -> bool;
type Row = (i64, &'static str, Changes);

const READS: Changes = |_| false;
const CHANGES: Changes = |_| true;

/// Calls of all architectures.
const EVERYWHERE: &[Row] = table! {
    SYS_bind READS, SYS_brk READS, SYS_clock_gettime READS, SYS_clock_nanosleep READS, SYS_clone CHANGES,
    SYS_clone3 CHANGES, SYS_close READS, SYS_connect READS, SYS_copy_file_range CHANGES, SYS_dup READS,
    SYS_dup3 READS, SYS_epoll_create1 READS, SYS_epoll_ctl READS, SYS_epoll_pwait READS, SYS_eventfd2 READS,
    SYS_execve CHANGES, SYS_execveat CHANGES, SYS_exit READS, SYS_exit_group READS, SYS_faccessat READS,
    SYS_faccessat2 READS, SYS_fallocate CHANGES, SYS_fchdir READS, SYS_fchmod CHANGES, SYS_fchmodat CHANGES,
    SYS_fchown CHANGES, SYS_fchownat CHANGES, SYS_fcntl READS, SYS_fdatasync CHANGES, SYS_flock READS,
    SYS_fstat READS, SYS_fstatfs READS, SYS_fsync CHANGES, SYS_ftruncate CHANGES, SYS_futex READS,
    SYS_getcwd READS, SYS_getdents64 READS, SYS_getpid READS, SYS_getppid READS, SYS_getrandom READS,
    SYS_getsockname READS, SYS_getsockopt READS, SYS_gettid READS, SYS_getuid READS, SYS_inotify_add_watch READS,
    SYS_inotify_init1 READS, SYS_ioctl CHANGES, SYS_kill CHANGES, SYS_linkat CHANGES, SYS_lseek READS,
    SYS_madvise READS, SYS_mkdirat CHANGES, SYS_mknodat CHANGES, SYS_mmap READS, SYS_mount CHANGES,
    SYS_mprotect READS, SYS_mremap READS, SYS_munmap READS, SYS_nanosleep READS, SYS_newfstatat READS,
    SYS_openat |arguments| creates(arguments[2]), SYS_openat2 CHANGES, SYS_pidfd_open READS,
    SYS_pidfd_send_signal CHANGES, SYS_pipe2 READS, SYS_ppoll READS, SYS_prctl READS, SYS_pread64 READS,
    SYS_prlimit64 READS, SYS_pwrite64 CHANGES, SYS_pwritev CHANGES, SYS_pwritev2 CHANGES, SYS_read READS,
    SYS_readlinkat READS, SYS_readv READS, SYS_recvfrom READS, SYS_recvmmsg READS, SYS_recvmsg READS,
    SYS_renameat2 CHANGES, SYS_rseq READS, SYS_rt_sigaction READS, SYS_rt_sigprocmask READS,
    SYS_rt_sigreturn READS, SYS_sched_getaffinity READS, SYS_sched_yield READS, SYS_sendfile CHANGES,
    SYS_sendmmsg CHANGES, SYS_sendmsg CHANGES, SYS_sendto CHANGES, SYS_set_robust_list READS,
    SYS_set_tid_address READS, SYS_setns CHANGES, SYS_setsockopt |arguments| replaces_tables(arguments[1]), SYS_sigaltstack READS,
    SYS_signalfd4 READS, SYS_socket READS, SYS_socketpair READS, SYS_splice CHANGES, SYS_statfs READS,
    SYS_statx READS, SYS_symlinkat CHANGES, SYS_sysinfo READS, SYS_tgkill CHANGES, SYS_timerfd_create READS,
    SYS_timerfd_settime READS, SYS_truncate CHANGES, SYS_umount2 CHANGES, SYS_uname READS,
    SYS_unlinkat CHANGES, SYS_unshare CHANGES, SYS_utimensat CHANGES, SYS_wait4 READS, SYS_waitid READS,
    SYS_write CHANGES, SYS_writev CHANGES,
};

/// Older calls that only x86 still has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Row] = table! {
    SYS_access READS, SYS_arch_prctl READS, SYS_chmod CHANGES, SYS_chown CHANGES, SYS_creat CHANGES,
    SYS_dup2 READS, SYS_epoll_create READS, SYS_epoll_wait READS, SYS_fork CHANGES, SYS_getdents READS, SYS_getrlimit READS,
    SYS_link CHANGES, SYS_lstat READS, SYS_mkdir CHANGES, SYS_open |arguments| creates(arguments[1]),
    SYS_pipe READS, SYS_poll READS, SYS_readlink READS, SYS_rename CHANGES, SYS_renameat CHANGES,
    SYS_rmdir CHANGES, SYS_select READS, SYS_stat READS, SYS_symlink CHANGES, SYS_unlink CHANGES,
    SYS_vfork CHANGES,
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Row] = &[];

/// Whether an open with these flags may make or empty a file.
fn creates(flags: u64) -> bool {
    i32::try_from(flags & 0xffff_ffff).is_ok_and(|flags| flags & (libc::O_CREAT | libc::O_TRUNC) != 0)
}

/// Returns whether socket options of this level reach beyond their socket: iptables sets its tables by them.
fn replaces_tables(level: u64) -> bool {
    i32::try_from(level & 0xffff_ffff).is_ok_and(|level| matches!(level, libc::SOL_IP | libc::SOL_IPV6))
}

impl Syscall {
    /// The call that a stopped thread is about to make; `None` if the thread is gone.
    pub(crate) fn entered(pid: Pid) -> Option<Self> {
        let (number, arguments) = registers(pid)?;
        let changes = row(number).is_some_and(|(_, _, changes)| changes(&arguments));
        Some(Self { pid: pid.as_raw(), number, arguments, changes })
    }

    pub(crate) fn receives(&self) -> bool {
        matches!(self.number, libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg)
    }

    /// The process of the thread, while it is stopped at this call.
    pub fn process(&self) -> i32 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        line.and_then(|id| id.trim().parse().ok()).unwrap_or(self.pid)
    }

    /// What its first argument is a descriptor of, while the thread is stopped at it: a path, or words such as
    /// `socket:[7]`.
    pub fn descriptor(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/fd/{}", self.pid, self.arguments[0])).ok()
    }

    /// Returns whether the call starts a thread, not a process, while the calling thread is stopped at it.
    pub fn makes_thread(&self) -> bool {
        let thread = u64::try_from(libc::CLONE_THREAD).unwrap_or_default();
        match self.number {
            libc::SYS_clone => self.arguments[0] & thread != 0,
            // The flags come first in its struct clone_args.
            libc::SYS_clone3 => message::u64_at(self.pid, self.arguments[0]).is_some_and(|flags| flags & thread != 0),
            _ => false,
        }
    }

    /// The path that one of its arguments points at, while the thread is stopped at it.
    pub fn path(&self, argument: usize) -> Option<PathBuf> {
        let address = *self.arguments.get(argument)?;
        let bytes = message::text_at(self.pid, address)?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Returns the call's name, `sendto`; a number where this table has no name.
    pub fn name(&self) -> String {
        match row(self.number) {
            Some((_, name, _)) => name.trim_start_matches("SYS_").to_owned(),
            None => format!("syscall_{}", self.number),
        }
    }
}

impl fmt::Display for Syscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, ..] = self.arguments;
        write!(f, "{}({first:#x}, {second:#x}, {third:#x}, ...) by {}", self.name(), self.pid)
    }
}

fn row(number: i64) -> Option<&'static Row> {
    EVERYWHERE.iter().chain(OLDER).find(|(other, ..)| *other == number)
}

#[cfg(target_arch = "x86_64")]
fn registers(pid: Pid) -> Option<(i64, [u64; 6])> {
    let all = ptrace::getregs(pid).ok()?;
    Some((all.orig_rax.cast_signed(), [all.rdi, all.rsi, all.rdx, all.r10, all.r8, all.r9]))
}

/// Makes the call that a thread is about to make one that the kernel does not know.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_number_invalid(pid: Pid) {
    let mut all = ptrace::getregs(pid).must("read registers");
    all.orig_rax = u64::MAX;
    ptrace::setregs(pid, all).must("write registers");
}

/// Changes the third argument of the call that a thread is about to make: how much is to be written.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_third(pid: Pid, value: u64) {
    let mut all = ptrace::getregs(pid).must("read registers");
    all.rdx = value;
    ptrace::setregs(pid, all).must("write registers");
}

/// Makes the call that a thread has just made return an error.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_result(pid: Pid, errno: Errno) {
    let mut all = ptrace::getregs(pid).must("read registers");
    all.rax = i64::from(-(errno as i32)).cast_unsigned();
    ptrace::setregs(pid, all).must("write registers");
}

/// Reads them from where the kernel shows them for every architecture, which takes longer than reading registers.
#[cfg(not(target_arch = "x86_64"))]
fn registers(pid: Pid) -> Option<(i64, [u64; 6])> {
    let line = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let (number, arguments) = line.split_once(' ')?;
    let mut arguments = arguments.split(' ').map(|argument| u64::from_str_radix(argument.trim_start_matches("0x"), 16));
    Some((number.parse().ok()?, [(); 6].map(|()| arguments.next().and_then(Result::ok).unwrap_or_default())))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn set_number_invalid(_: Pid) {
    panic!("failing a system call is not written for this architecture yet");
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn set_third(_: Pid, _: u64) {
    panic!("shortening a system call is not written for this architecture yet");
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn set_result(pid: Pid, errno: Errno) {
    panic!("no call of {pid} was to fail with {errno}");
}
