//! The identity of a process: its pid alone may be in use again.

use nix::unistd::Pid;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::OnceLock;

/// The plugin that runs ADD of an attachment, and the runtime that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) plugin: ProcessId,
    /// `None`: an earlier version of this library has recorded the plugin.
    pub(crate) runtime: Option<ProcessId>,
}

impl Running {
    /// The length of the text: two processes and a separator.
    pub(crate) const TEXT_BYTES: usize = 2 * ProcessId::TEXT_BYTES + 1;

    /// The plugin with this pid, if there is one, of this runtime.
    pub(crate) fn of(plugin: Pid) -> io::Result<Option<Self>> {
        let Some(plugin) = ProcessId::of(plugin)? else { return Ok(None) };
        Ok(Some(Self { plugin, runtime: ProcessId::of(Pid::this())? }))
    }

    /// The runtime, if it runs and is another process than this one.
    pub(crate) fn living_runtime(&self) -> io::Result<Option<&ProcessId>> {
        let Some(runtime) = self.runtime.as_ref().filter(|runtime| runtime.pid != Pid::this()) else { return Ok(None) };
        Ok(runtime.runs()?.then_some(runtime))
    }
}

/// Always of the same length.
impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.as_ref().map(ProcessId::to_string).unwrap_or_default();
        write!(f, "{} {runtime:width$}", self.plugin, width = ProcessId::TEXT_BYTES)
    }
}

impl FromStr for Running {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_ascii_whitespace();
        let plugin = ProcessId::parse(&mut words).ok_or(())?;
        Ok(Self { plugin, runtime: ProcessId::parse(&mut words) })
    }
}

/// The unique identity of a process on a node: pid, start time, and the boot in which both are valid.
///
/// The executable is not included: a plugin that is a wrapper executes another program in the middle of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: Pid,
    /// In clock ticks since the boot (proc(5), field 22 of `stat`).
    start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`, a UUID.
    boot: String,
}

/// The state of a process, as far as it matters here.
pub(crate) struct Stat {
    /// `Z` and `X`: it has ended.
    pub(crate) state: char,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    start_ticks: u64,
}

impl ProcessId {
    /// The length of the text: the digits of two numbers, the UUID, and the separators.
    pub(crate) const TEXT_BYTES: usize = 10 + 1 + 20 + 1 + 36;

    /// The identity of the process with this pid, if there is one.
    pub(crate) fn of(pid: Pid) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        Ok(Some(Self { pid, start_ticks: stat.start_ticks, boot: boot()?.to_owned() }))
    }

    /// Whether the process runs. Only the holder of its pidfd can be sure that the pid is still its own when this
    /// returns.
    pub(crate) fn runs(&self) -> io::Result<bool> {
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
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0).map(Pid::from_raw)?;
        Some(Self { pid, start_ticks: words.next()?.parse().ok()?, boot: words.next()?.to_owned() })
    }
}

/// The identity of this boot of the node.
pub(crate) fn boot() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot);
    }
    let boot = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    Ok(BOOT.get_or_init(|| boot))
}

impl Stat {
    /// The state of the process with this pid, if there is one.
    pub(crate) fn of(pid: Pid) -> io::Result<Option<Self>> {
        match read(&format!("/proc/{pid}/stat")) {
            // The process ended before the file was opened or while it was read (ESRCH).
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_gone(&error) => Ok(None),
            text => Ok(Self::parse(&text?)),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
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
    let count = File::open(path)?.read(&mut bytes)?;
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
    fn the_text_of_a_running_plugin_is_read_back_and_has_one_length() {
        let plugin = ProcessId::of(Pid::this()).unwrap().unwrap();
        assert_eq!(plugin.to_string().len(), ProcessId::TEXT_BYTES);
        let most = ProcessId { pid: Pid::from_raw(i32::MAX), start_ticks: u64::MAX, ..plugin.clone() };
        for runtime in [None, Some(plugin.clone()), Some(most.clone())] {
            let running = Running { plugin: most.clone(), runtime };
            assert_eq!(running.to_string().len(), Running::TEXT_BYTES);
            assert_eq!(running.to_string().parse(), Ok(running));
        }
        // As earlier versions wrote it.
        assert_eq!(plugin.to_string().parse(), Ok(Running { plugin, runtime: None }));
        for bad in ["", "   ", "1", "1 2", "0 2 b", "-1 2 b", "x 2 b", "1 x b"] {
            assert!(bad.parse::<Running>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_may_have_anything_in_it() {
        let stat = Stat::parse("7 (a) R b) S 1 5 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 3 4").unwrap();
        assert_eq!((stat.state, stat.parent.as_raw(), stat.group.as_raw(), stat.start_ticks), ('S', 1, 5, 4242));
        assert!(Stat::parse("7 (a").is_none() && Stat::parse("").is_none());
    }
}
