//! Facts of `/proc` about processes: the identity of one, as its pid alone may be in use again; the boot and the PID namespace in
//! which that is valid; and the holder of a lock.
//!
//! ```
//! let own = processes::ProcessId::of(nix::unistd::Pid::this())?.expect("this process runs");
//! assert!(own.runs()?); // by pid, start time, boot and PID namespace: never another process with the pid
//! # Ok::<(), std::io::Error>(())
//! ```

mod lock;

pub use lock::{byte_range, find_holder, find_stopped_holder, holder_in};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// The unique identity of a process on a node: pid, start time, and the boot and the PID namespace in which they are valid.
///
/// The executable is not included: a plugin that is a wrapper executes another program in the middle of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessId {
    /// The pid in the PID namespace of the process that recorded it.
    pub pid: Pid,
    /// In clock ticks since the boot (proc(5), field 22 of `stat`).
    start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`, a UUID.
    boot: String,
    /// The inode of the PID namespace. `None`: an earlier version has recorded the process; the namespace counts as this one.
    namespace: Option<u64>,
}

/// The first PID namespace, which has all processes (`PROC_PID_INIT_INO` of linux/proc_ns.h).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;
/// A namespace that no process is in: `/proc` is another namespace's.
const NO_NAMESPACE: u64 = 0;
/// The unit of start times: `USER_HZ`, of every architecture that Rust has with Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The state of a process (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// `Z` and `X`: it has ended. `T` and `t`: it is stopped.
    pub state: char,
    pub parent: Pid,
    /// The process group.
    pub group: Pid,
    /// In clock ticks since the boot (field 22).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The length of the text: the digits of two numbers, the UUID, the digits of the namespace, and the separators.
    pub const TEXT_BYTES: usize = 10 + 1 + 20 + 1 + 36 + 1 + 20;

    /// The identity of the process with this pid, if there is one.
    /// Errors: `/proc` is not mounted, or closed to this user.
    pub fn of(pid: Pid) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        let (boot, namespace) = (boot()?.to_owned(), Some(own_namespace()?));
        Ok(Some(Self { pid, start_ticks: stat.start_ticks, boot, namespace }))
    }

    /// Whether the process runs; one that cannot be seen from this PID namespace counts as running. Only the holder of its pidfd
    /// can be sure that the pid is still its own when this returns.
    pub fn runs(&self) -> io::Result<bool> {
        Ok(self.find_here()?.is_some() || self.may_run_unseen()?)
    }

    /// The process with its pid in this PID namespace, if it runs and can be seen.
    pub fn find_here(&self) -> io::Result<Option<Self>> {
        if boot()? != self.boot {
            return Ok(None);
        }
        if self.is_numbered_here()? {
            let stat = Stat::of(self.pid)?.filter(|stat| self.has(stat));
            return Ok(stat.map(|_| self.clone()));
        }
        if own_namespace()? == NO_NAMESPACE {
            return Ok(None);
        }
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw) else { continue };
            // Most processes have another start, which costs least to read.
            if Stat::of(pid)?.is_some_and(|stat| self.has(&stat)) && place(pid) == Some((self.namespace, self.pid)) {
                return Self::of(pid);
            }
        }
        Ok(None)
    }

    /// Whether the process may run where this one cannot see it: in a PID namespace that is neither this one nor inside it.
    pub fn may_run_unseen(&self) -> io::Result<bool> {
        Ok(boot()? == self.boot && !self.is_numbered_here()? && own_namespace()? != FIRST_NAMESPACE)
    }

    /// The time since its start.
    /// Errors: those of `clock_gettime(2)`.
    pub fn age(&self) -> io::Result<Duration> {
        let uptime = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
        Ok(uptime.saturating_sub(Duration::from_secs(self.start_ticks / TICKS_PER_SECOND)))
    }

    /// Whether the pid is one of this PID namespace.
    fn is_numbered_here(&self) -> io::Result<bool> {
        let Some(namespace) = self.namespace else { return Ok(true) };
        Ok(namespace != NO_NAMESPACE && namespace == own_namespace()?)
    }

    fn has(&self, stat: &Stat) -> bool {
        !stat.has_ended() && stat.start_ticks == self.start_ticks
    }
}

/// Always of the same length.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.map(|namespace| namespace.to_string()).unwrap_or_default();
        write!(f, "{:>10} {:>20} {:>36} {namespace:>20}", self.pid.as_raw(), self.start_ticks, self.boot)
    }
}

impl FromStr for ProcessId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::parse(&mut text.split_ascii_whitespace()).ok_or(())
    }
}

impl ProcessId {
    /// Reads the words of the text: four, in records of earlier versions three.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0).map(Pid::from_raw)?;
        let (start_ticks, boot) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        Some(Self { pid, start_ticks, boot, namespace: words.next().and_then(|word| word.parse().ok()) })
    }

    /// The same process as one of the other's PID namespace: the text of both names that once.
    pub fn beside(self, other: Option<&Self>) -> Self {
        Self { namespace: other.and_then(|other| other.namespace), ..self }
    }
}

/// The PID namespace of this process as [`ProcessId`] has it, read once.
fn own_namespace() -> io::Result<u64> {
    static OWN: OnceLock<u64> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(*own);
    }
    let is_its_proc = std::fs::read_link("/proc/self")?.as_os_str() == OsStr::new(&Pid::this().to_string());
    let own = if is_its_proc { std::fs::metadata("/proc/self/ns/pid")?.ino() } else { NO_NAMESPACE };
    Ok(*OWN.get_or_init(|| own))
}

/// Whether this process is in the PID namespace that has all processes of the machine.
pub fn is_first_namespace() -> io::Result<bool> {
    Ok(own_namespace()? == FIRST_NAMESPACE)
}

/// The inodes of the PID namespaces that have processes; `None`: this process's PID namespace does not see all.
pub fn find_pid_namespaces() -> io::Result<Option<BTreeSet<u64>>> {
    if !is_first_namespace()? {
        return Ok(None);
    }
    let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path().join("ns/pid"));
    Ok(Some(processes.filter_map(|path| Some(path.metadata().ok()?.ino())).collect()))
}

/// The PID namespace of the process with this pid, and its pid there (`NSpid`, proc_pid_status(5)).
fn place(pid: Pid) -> Option<(Option<u64>, Pid)> {
    let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?.ino();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some((Some(namespace), Pid::from_raw(pids.split_ascii_whitespace().last()?.parse().ok()?)))
}

/// The kernel's random number for this boot (`kernel.random.boot_id`), read once.
/// Errors: `NotFound`: no `/proc` is mounted.
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
    pub fn of(pid: Pid) -> io::Result<Option<Self>> {
        match read(&format!("/proc/{pid}/stat")) {
            // The process ended before the file was opened or while it was read (ESRCH).
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_gone(&error) => Ok(None),
            text => Ok(Self::parse(&text?)),
        }
    }

    /// Whether the process has ended, and has only not been waited for.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal or a debugger has stopped the process.
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
    use std::io::BufRead;

    fn own() -> ProcessId {
        ProcessId::of(Pid::this()).unwrap().unwrap()
    }

    #[test]
    fn a_process_is_its_number_its_start_and_its_boot() {
        assert!(own().runs().unwrap() && own().age().unwrap() < Duration::from_secs(3600));
        assert!(!ProcessId { start_ticks: own().start_ticks + 1, ..own() }.runs().unwrap());
        assert!(!ProcessId { boot: "another".into(), ..own() }.runs().unwrap());
        assert!(ProcessId::of(Pid::from_raw(i32::MAX)).unwrap().is_none());
    }

    /// A pid of another namespace is another process's here.
    #[test]
    fn a_process_of_another_pid_namespace_runs_where_it_can_be_seen_or_not_be_ruled_out() {
        let is_first = own_namespace().unwrap() == FIRST_NAMESPACE;
        let other = ProcessId { namespace: Some(1), ..own() };
        assert_eq!((other.find_here().unwrap(), other.runs().unwrap()), (None, !is_first));
        assert!(!ProcessId { boot: "another".into(), ..other }.runs().unwrap());
        let script = "cat /proc/self/stat; readlink /proc/self/ns/pid; exec sleep 1000";
        let mut inside = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(inside.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (stat, namespace) = (Stat::parse(&lines.next().unwrap()).unwrap(), lines.next().unwrap());
        let namespace = namespace.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        let shell = ProcessId { pid: Pid::from_raw(1), namespace: Some(namespace), ..own() };
        // `cat` may have started in the next tick.
        let at = |start_ticks| ProcessId { start_ticks, ..shell.clone() };
        let found = (0..99).find_map(|late| at(stat.start_ticks - late).find_here().unwrap()).unwrap();
        assert!(found.pid != shell.pid && found.runs().unwrap(), "{found:?}");
        inside.kill().and_then(|()| inside.wait()).unwrap();
        // The kernel ends the namespace's processes after the one outside.
        while at(found.start_ticks).find_here().unwrap().is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_text_is_read_back_and_has_one_length() {
        let most =
            ProcessId { pid: Pid::from_raw(i32::MAX), start_ticks: u64::MAX, namespace: Some(u64::MAX), ..own() };
        for id in [own(), most, own().beside(None)] {
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
