//! Facts of `/proc` about processes: the identity of one, as its pid alone may be in use again; the boot in which that is valid;
//! and the holder of a lock.

mod lock;

pub use lock::{byte_range, find_holder, find_stopped_holder, holder_in};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::OnceLock;

/// The unique identity of a process on a node: pid, start time, and the boot in which both are valid.
///
/// The executable is not included: a plugin that is a wrapper executes another program in the middle of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessId {
    /// The pid, as this process's PID namespace has it.
    pub pid: Pid,
    /// In clock ticks since the boot (proc(5), field 22 of `stat`).
    start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`, a UUID.
    boot: String,
}

/// The state of a process (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// `Z` and `X`: it has ended. `T` and `t`: it is stopped.
    pub state: char,
    /// The parent's pid.
    pub parent: Pid,
    /// The process group.
    pub group: Pid,
    /// In clock ticks since the boot (field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The length of the text: the digits of two numbers, the UUID, and the separators.
    pub const TEXT_BYTES: usize = 10 + 1 + 20 + 1 + 36;

    /// The identity of the process with this pid, if there is one.
    ///
    /// # Errors
    /// `/proc` is not mounted, or closed to this user.
    pub fn of(pid: Pid) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        Ok(Some(Self { pid, start_ticks: stat.start_ticks, boot: boot()?.to_owned() }))
    }

    /// Whether the process runs. Only the holder of its pidfd can be sure that the pid is still its own when this
    /// returns.
    ///
    /// # Errors
    /// As [`ProcessId::of`].
    pub fn runs(&self) -> io::Result<bool> {
        let Some(stat) = Stat::of(self.pid)? else { return Ok(false) };
        let is_it = !stat.has_ended() && stat.start_ticks == self.start_ticks;
        Ok(is_it && boot()? == self.boot)
    }
}

/// Always of the same length.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10} {:>20} {:>36}", self.pid.as_raw(), self.start_ticks, self.boot)
    }
}

impl FromStr for ProcessId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::parse(&mut text.split_ascii_whitespace()).ok_or(())
    }
}

impl ProcessId {
    /// Reads the three words of the text.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0).map(Pid::from_raw)?;
        Some(Self { pid, start_ticks: words.next()?.parse().ok()?, boot: words.next()?.to_owned() })
    }
}

/// The kernel's random number for this boot (`kernel.random.boot_id`), read once.
///
/// # Errors
/// `NotFound`: no `/proc` is mounted.
pub fn boot() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot);
    }
    let boot = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(BOOT.get_or_init(|| boot))
}

impl Stat {
    /// The state of the process with this pid, if there is one.
    ///
    /// # Errors
    /// As [`ProcessId::of`].
    pub fn of(pid: Pid) -> io::Result<Option<Self>> {
        match read(&format!("/proc/{pid}/stat")) {
            // The process ended before the file was opened or while it was read (ESRCH).
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_gone(&error) => Ok(None),
            text => Ok(Self::parse(&text?)),
        }
    }

    /// Whether the process has ended, and has only not been waited for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal or a debugger has stopped the process.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The fields after the name in parentheses, which may contain any character.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok().map(Pid::from_raw);
        let (parent, group) = (number()?, number()?);
        Some(Self { state, parent, group, start_ticks: fields.nth(16)?.parse().ok()? })
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// A file of /proc that one read returns whole.
fn read(path: &str) -> io::Result<String> {
    let mut bytes = [0; 1024];
    // musl's `open` sets close-on-exec by a system call more.
    let file = openat(AT_FDCWD, path, OFlag::O_CLOEXEC, Mode::empty())?;
    let count = File::from(file).read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_its_number_its_start_and_its_boot() {
        let own = ProcessId::of(Pid::this()).unwrap().unwrap();
        assert!(own.runs().unwrap());
        assert!(!ProcessId { start_ticks: own.start_ticks + 1, ..own.clone() }.runs().unwrap());
        assert!(!ProcessId { boot: "another".into(), ..own.clone() }.runs().unwrap());
        assert!(ProcessId::of(Pid::from_raw(i32::MAX)).unwrap().is_none());
    }

    #[test]
    fn the_text_is_read_back_and_has_one_length() {
        let own = ProcessId::of(Pid::this()).unwrap().unwrap();
        let most = ProcessId { pid: Pid::from_raw(i32::MAX), start_ticks: u64::MAX, ..own.clone() };
        for id in [own, most] {
            assert_eq!(id.to_string().len(), ProcessId::TEXT_BYTES);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "   ", "1", "1 2", "0 2 b", "-1 2 b", "x 2 b", "1 x b"] {
            assert!(bad.parse::<ProcessId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_may_have_anything_in_it() {
        let stat = Stat::parse("7 (a) R b) S 1 5 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 3 4").unwrap();
        assert_eq!((stat.state, stat.parent.as_raw(), stat.group.as_raw(), stat.start_ticks), ('S', 1, 5, 4242));
        assert!(Stat::parse("7 (a").is_none() && Stat::parse("").is_none());
    }
}
