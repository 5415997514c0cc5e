//! Locks on files: the range of one, and the process that holds one.

use crate::Stat;
use nix::libc;
use nix::unistd::Pid;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The kernel writes `/proc/locks` one page at a time and skips lines if locks before them are released meanwhile. So
/// one read may miss a lock that is held all the time.
const LOOKS: usize = 10;

/// The process that holds a `flock(2)` lock on a file, for messages: `process PID (NAME)`, or `process PID`. `None`: no process was
/// found. Takes no lock.
pub fn find_holder(file: &Metadata) -> Option<String> {
    let id = id(file);
    let look = || holder_in(&std::fs::read_to_string("/proc/locks").unwrap_or_default(), &id);
    let pid = (0..LOOKS).find_map(|_| look())?;
    Some(describe(pid))
}

/// The process that was stopped by a signal or a debugger (states T and t of proc(5)) and holds a `flock(2)` lock on a file, as
/// [`find_holder`] names it.
pub fn find_stopped_holder(file: &Metadata) -> Option<String> {
    let id = id(file);
    let is_stopped = |pid: &i32| matches!(Stat::of(Pid::from_raw(*pid)), Ok(Some(stat)) if stat.is_stopped());
    let look = || holders_in(&std::fs::read_to_string("/proc/locks").unwrap_or_default(), &id).find(is_stopped);
    (0..LOOKS).find_map(|_| look()).map(describe)
}

fn id(file: &Metadata) -> String {
    let (device, inode) = (file.dev(), file.ino());
    format!("{:02x}:{:02x}:{inode}", nix::sys::stat::major(device), nix::sys::stat::minor(device))
}

fn describe(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}

/// The pid in a line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; `->` marks waiting processes.
pub fn holder_in(locks: &str, id: &str) -> Option<i32> {
    holders_in(locks, id).next()
}

fn holders_in<'a>(locks: &'a str, id: &'a str) -> impl Iterator<Item = i32> + 'a {
    locks.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, file, ..] if *file == id => pid.parse().ok().filter(|pid| *pid > 0),
            _ => None,
        }
    })
}

/// A lock for `fcntl(2)` of `length` bytes from `start`, by `F_WRLCK`, `F_RDLCK` or `F_UNLCK`; 0 bytes: to the end of the file.
/// Where an offset has 32 bits, the place is that of the lower 31 bits.
#[allow(clippy::useless_conversion, reason = "with glibc for 32 bits off_t is i32")]
pub fn byte_range(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    // The constants of libc have the type that its functions take, the field of the structure is shorter.
    let short = |number: libc::c_int| libc::c_short::try_from(number).unwrap_or_default();
    let offset = |number: i64| libc::off_t::try_from(number & i64::from(libc::off_t::MAX)).unwrap_or_default();
    let (l_start, l_len) = (offset(start), offset(length));
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start, l_len, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_process_is_not_the_holder() {
        let locks = "1: -> FLOCK  ADVISORY  WRITE 9 fe:00:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fe:00:12 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:12"), Some(7));
        assert_eq!(holder_in(locks, "fe:00:13"), None);
        assert_eq!(holder_in("garbage\n\n1:", "x"), None);
    }
}
