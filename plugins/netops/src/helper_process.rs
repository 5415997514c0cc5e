//! Starts helper processes, as many as PID 1 waits for.
//!
//! A helper makes a slow system call for a plugin and may outlive it; it then becomes a child of PID 1 (or of the
//! nearest subreaper). Some PID 1 never wait for children that they did not start. Without a limit every helper would
//! stay there as a zombie until the node runs out of pids. So the helpers are recorded in a file, each by its pid and
//! start time, and the record also says whether PID 1 has reaped one. Until then there is one helper, afterwards there
//! may be `HELPERS`, which end by themselves. A plugin that may start none makes the call itself and waits.
//!
//! A record is of one PID namespace and of one PID 1, which its start time identifies. Where a subreaper does not wait,
//! a zombie that is `LATE` ends the trust in PID 1.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid, getpid};
use processes::Stat;

use crate::all_namespaces::RECORD;
use crate::boot::uptime;
use crate::file;
use crate::lock::{FOLDER, Lock};

/// The most helpers at a time where PID 1 waits for them. A helper usually ends within a quarter of a second.
const HELPERS: usize = 64;

/// The age from which a zombie counts as one whose parent does not wait for it. A helper ends within a second even on a busy node.
const LATE: Duration = Duration::from_secs(10);

/// The longest wait for the record, which a call has for less than a millisecond.
const RECORD_DEADLINE: Duration = Duration::from_millis(100);

/// The unit of start times: `USER_HZ`, of every architecture that Rust has with Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The right to start a helper. No other process has it until this value is dropped.
pub(crate) struct Turn {
    lock: Lock,
    record: Helpers,
    /// The length of the file.
    bytes: usize,
}

impl Turn {
    /// Takes the turn. `None`: as many helpers exist as there can be, in whatever state, or that cannot be determined.
    pub(crate) fn find() -> Option<Self> {
        Self::find_in(Path::new(FOLDER), create)
    }

    /// The same while other helpers exist, otherwise `None`. Makes no file.
    pub(crate) fn find_beside_others() -> Option<Self> {
        let turn = Self::find_in(Path::new(FOLDER), |path| file::open(path, HOW, 0))?;
        (!turn.record.helpers.is_empty()).then_some(turn)
    }

    fn find_in(folder: &Path, open: impl FnOnce(&Path) -> std::io::Result<File>) -> Option<Self> {
        // The pids in the /proc of another PID namespace belong to other processes.
        if std::fs::read_link("/proc/self").ok()?.as_os_str() != OsStr::new(&getpid().to_string()) {
            return None;
        }
        let path = path(folder).ok()?;
        let file = open(&path).ok()?;
        if !is_private(&file).ok()? {
            return None;
        }
        let lock = Lock::take_opened(file, &path, RECORD_DEADLINE).ok()?;
        let mut text = [0; Helpers::TEXT_BYTES_MAX];
        let bytes = lock.file().read_at(&mut text, 0).ok()?;
        let mut record = Helpers::parse(text.get(..bytes)?, Stat::of(INIT).ok()??.start_ticks);
        record.has_room().then_some(Self { lock, record, bytes })
    }

    /// Whether other helpers exist, and so few that this one may stay longer than it has to.
    pub(crate) fn is_beside_few(&self) -> bool {
        (1..HELPERS / 2).contains(&self.record.helpers.len())
    }

    /// Starts a helper and records it.
    pub(crate) fn start<T>(self, start: impl FnOnce() -> Result<(Pid, T), Errno>) -> Result<T, Errno> {
        let before = uptime();
        let (pid, started) = start()?;
        let tick = before.ok().zip(uptime().ok()).and_then(|(before, after)| one_tick(before, after));
        // Without a start time, any process with the same pid counts as the helper.
        let tick = tick.or_else(|| Some(Stat::of(pid).ok()??.start_ticks)).unwrap_or(UNKNOWN);
        self.note(pid, tick);
        Ok(started)
    }

    fn note(mut self, pid: Pid, started: u64) {
        self.record.helpers.push(Helper { pid, started });
        // A single write also covers the rest of a longer record: a killed writer leaves the old record or the new one.
        let text = format!("{:\n<bytes$}", self.record.to_string(), bytes = self.bytes);
        if let Err(error) = self.lock.file().write_all_at(text.as_bytes(), 0) {
            tracing::warn!(%error, "cannot note a helper process");
        }
    }
}

/// Removes the records of PID namespaces that have ended. Where not all namespaces can be seen, the helpers of one count as such a day after
/// they were written: a record that is missed costs one helper more.
pub fn remove_ended_records() {
    if let Err(error) = remove_ended_in(Path::new(FOLDER)) {
        tracing::warn!(%error, "cannot remove the records of PID namespaces that have ended");
    }
}

fn remove_ended_in(folder: &Path) -> std::io::Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let own = std::fs::metadata("/proc/self/ns/pid")?.ino();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let record = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let of_helpers = name.strip_prefix("helper.");
        let inode = of_helpers.or_else(|| name.strip_prefix(RECORD))?.parse().ok().filter(|inode| *inode != own)?;
        Some((of_helpers.is_some(), inode, path))
    };
    let others: Vec<(bool, u64, PathBuf)> = entries.filter_map(record).collect();
    if others.is_empty() {
        return Ok(());
    }
    let living = processes::find_pid_namespaces()?;
    for (is_of_helpers, inode, path) in others {
        let is_old = || path.symlink_metadata()?.modified()?.elapsed().map_or(Ok(false), |age| Ok(age > DAY));
        let has_ended: std::io::Result<bool> = match &living {
            Some(living) => Ok(!living.contains(&inode)),
            None if is_of_helpers => is_old(),
            None => Ok(false),
        };
        if has_ended.unwrap_or_default() {
            tracing::info!(path = %path.display(), "removing the record of a PID namespace that has ended");
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

const INIT: Pid = Pid::from_raw(1);

/// The tick of the clock in which both times are, and with them the start of a process between them: its `stat` has the
/// same clock's time (`task_struct.start_boottime`), and costs the kernel an entry in `/proc`. `None` near the next tick.
fn one_tick(before: Duration, after: Duration) -> Option<u64> {
    /// More than what two readings of one time may differ by.
    const MARGIN: Duration = Duration::from_micros(50);
    let tick = |time: Duration| time.as_nanos() * u128::from(TICKS_PER_SECOND) / 1_000_000_000;
    let (first, last) = (tick(before.saturating_sub(MARGIN)), tick(after + MARGIN));
    u64::try_from(first).ok().filter(|_| first == last)
}

/// The record of a PID namespace, as a helper is a process of one.
fn path(folder: &Path) -> std::io::Result<PathBuf> {
    Ok(folder.join(format!("helper.{}", std::fs::metadata("/proc/self/ns/pid")?.ino())))
}

fn create(path: &Path) -> std::io::Result<File> {
    let open = || file::open(path, HOW | OFlag::O_CREAT, 0o600);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            file::make_folders(path.parent().unwrap_or(path))?;
            open()
        }
        opened => opened,
    }
}

/// A record is opened so.
const HOW: OFlag = OFlag::O_RDWR.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK);

/// Whether no other user has made the file, can lock it or can change it: a plain file of this user's, with one name.
fn is_private(file: &File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    Ok(about.is_file() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 && about.nlink() == 1)
}

/// The helpers of a PID namespace.
#[derive(Debug, PartialEq, Eq)]
struct Helpers {
    /// The start time of PID 1, in clock ticks since the boot.
    init: u64,
    /// Whether PID 1 has reaped a helper.
    is_reaping: bool,
    /// The oldest first. Some may be gone.
    helpers: Vec<Helper>,
}

impl Helpers {
    /// A line for PID 1, and a line for each helper.
    const TEXT_BYTES_MAX: usize = 5 + 20 + 1 + REAPS.len() + 1 + HELPERS * Helper::TEXT_BYTES_MAX;

    /// A record of another PID 1 counts as empty: the kernel has given the number of its namespace to this one. In a record
    /// without a line for PID 1, which earlier versions wrote, PID 1 has not reaped a helper.
    fn parse(text: &[u8], init: u64) -> Self {
        let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).peekable();
        let head = lines.next_if(|line| line.starts_with(b"init "));
        let (of, is_reaping) = match head.map(parse_head) {
            Some(Some(head)) => head,
            Some(None) => return Self { init, is_reaping: false, helpers: vec![Helper::damaged()] },
            None => (init, false),
        };
        match of == init {
            true => Self { init, is_reaping, helpers: lines.map(Helper::parse).collect() },
            false => Self { init, is_reaping: false, helpers: Vec::new() },
        }
    }

    /// Whether one more helper may be started. Forgets helpers that are gone: all of them if PID 1 has reaped none or the
    /// record is full, otherwise those before the first that exists.
    fn has_room(&mut self) -> bool {
        let checks_all = !self.is_reaping || self.helpers.len() >= HELPERS;
        let (mut is_searching, mut is_late) = (true, false);
        self.helpers.retain(|helper| {
            let state = if is_searching { helper.state() } else { State::Exists };
            // Without a start time, the end of the helper is no evidence: another process may have ended.
            self.is_reaping |= state == State::Gone && helper.started != UNKNOWN;
            is_late |= state == State::Zombie && helper.is_late();
            is_searching = checks_all || state == State::Gone;
            state != State::Gone
        });
        self.helpers.len() < if self.is_reaping && !is_late { HELPERS } else { 1 }
    }
}

const REAPS: &str = "reaps";

fn parse_head(line: &[u8]) -> Option<(u64, bool)> {
    let (started, reaps) = std::str::from_utf8(line).ok()?.strip_prefix("init ")?.split_once(' ')?;
    let is_reaping = match reaps {
        REAPS => true,
        "-" => false,
        _ => return None,
    };
    Some((started.parse().ok()?, is_reaping))
}

impl std::fmt::Display for Helpers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "init {} {}", self.init, if self.is_reaping { REAPS } else { "-" })?;
        self.helpers.iter().try_for_each(|Helper { pid, started }| writeln!(f, "{pid} {started}"))
    }
}

const UNKNOWN: u64 = 0;

/// A helper as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Helper {
    pid: Pid,
    /// In clock ticks since the boot.
    started: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Reaped.
    Gone,
    /// Ended, and not reaped.
    Zombie,
    /// Running, or that cannot be determined.
    Exists,
}

impl Helper {
    /// Two numbers in decimal, a space and a newline.
    const TEXT_BYTES_MAX: usize = 11 + 1 + 20 + 1;

    /// A damaged line stands for a helper that may exist.
    fn parse(line: &[u8]) -> Self {
        let parts = std::str::from_utf8(line).ok().and_then(|text| text.trim_end().split_once(' '));
        let parsed = parts.and_then(|(pid, started)| Some((pid.parse().ok()?, started.parse().ok()?)));
        let helper = parsed.filter(|(pid, _)| *pid > 0).map(|(pid, started)| Self { pid: Pid::from_raw(pid), started });
        helper.unwrap_or_else(Self::damaged)
    }

    fn damaged() -> Self {
        Self { pid: getpid(), started: UNKNOWN }
    }

    fn state(self) -> State {
        if kill(self.pid, None) == Err(Errno::ESRCH) {
            return State::Gone;
        }
        match Stat::of(self.pid) {
            // Another process has the same pid.
            Ok(Some(stat)) if self.started != UNKNOWN && stat.start_ticks != self.started => State::Gone,
            Ok(Some(stat)) if stat.has_ended() => State::Zombie,
            Ok(_) | Err(_) => State::Exists,
        }
    }

    fn is_late(self) -> bool {
        let started = Duration::from_secs(self.started / TICKS_PER_SECOND);
        uptime().is_ok_and(|now| now.saturating_sub(started) > LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    fn helper(child: &Child) -> Helper {
        helper_of(Pid::from_raw(child.id().cast_signed()))
    }

    fn helper_of(pid: Pid) -> Helper {
        Helper { pid, started: Stat::of(pid).unwrap().unwrap().start_ticks }
    }

    /// A process that runs until it is killed.
    fn running() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    /// A child that has ended and that no process has waited for.
    fn zombie() -> Child {
        let mut child = running();
        child.kill().unwrap();
        let helper = helper(&child);
        while helper.state() != State::Zombie {
            std::thread::yield_now();
        }
        child
    }

    /// A folder for records.
    fn turn(folder: &Path) -> Option<Turn> {
        Turn::find_in(folder, create)
    }

    fn note(folder: &Path, child: &Child) {
        let helper = helper(child);
        turn(folder).unwrap().note(helper.pid, helper.started);
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_helper_is_gone_when_its_pid_is_free_or_belongs_to_another_process() {
        let me = helper_of(getpid());
        assert_eq!(me.state(), State::Exists);
        assert_eq!(Helper { started: me.started + 1, ..me }.state(), State::Gone);
        let child = zombie();
        let ended = helper(&child);
        assert_eq!(ended.state(), State::Zombie);
        assert!(!ended.is_late());
        assert!(Helper { started: 1, ..ended }.is_late());
        end(child);
        assert_eq!(ended.state(), State::Gone);
    }

    /// Many processes, as some are started near the end of a tick.
    #[test]
    fn a_helpers_start_is_the_tick_that_its_stat_has() {
        let mut known = 0;
        for _ in 0..1000 {
            let before = uptime().unwrap();
            let child = running();
            let tick = one_tick(before, uptime().unwrap());
            known += u32::from(tick.is_some());
            assert!(tick.is_none_or(|tick| tick == helper(&child).started), "{tick:?}");
            end(child);
            if known > 5 {
                break;
            }
        }
        assert!(known > 0);
        let at = |millis| Duration::from_millis(millis);
        assert_eq!(one_tick(at(71), at(79)), Some(7));
        assert_eq!((one_tick(at(79), at(81)), one_tick(at(75), at(80)), one_tick(at(80), at(85))), (None, None, None));
    }

    #[test]
    fn a_damaged_record_stands_for_a_running_helper() {
        let helper = Helper { pid: Pid::from_raw(12), started: 345 };
        assert_eq!(Helper::parse(b"12 345"), helper);
        for damaged in
            [&b"12"[..], b"-1 5", b"0 5", b"\0\0\0\0", b"12 345 6", b"99999999999 1", b"init 7 perhaps", b"init"]
        {
            let record = Helpers::parse(damaged, 7);
            assert!(!record.is_reaping && record.helpers == [Helper::damaged()], "{damaged:?}: {record:?}");
            assert_eq!(record.helpers.first().map(|helper| helper.state()), Some(State::Exists));
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_only_for_the_same_init() {
        let helpers =
            vec![Helper { pid: Pid::from_raw(12), started: 345 }, Helper { pid: Pid::from_raw(13), started: 346 }];
        for is_reaping in [true, false] {
            let record = Helpers { init: 7, is_reaping, helpers: helpers.clone() };
            let text = format!("{:\n<200}", record.to_string());
            assert_eq!(Helpers::parse(text.as_bytes(), 7), record);
            let other = Helpers { init: 8, is_reaping: false, helpers: Vec::new() };
            assert_eq!(Helpers::parse(text.as_bytes(), 8), other);
        }
        // A record of an earlier version.
        assert_eq!(Helpers::parse(b"12 345\n13 346\n", 7), Helpers { init: 7, is_reaping: false, helpers });
    }

    #[test]
    fn until_a_helper_was_reaped_there_is_one_and_then_as_many_as_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let first = zombie();
        note(folder, &first);
        assert!(turn(folder).is_none());
        end(first);
        let children: Vec<Child> = (0..HELPERS)
            .map(|_| {
                let child = running();
                note(folder, &child);
                child
            })
            .collect();
        assert!(turn(folder).is_none());
        // A helper that is not the oldest.
        let mut children = children.into_iter();
        let oldest = children.next();
        children.next().map(end).unwrap();
        drop(turn(folder).unwrap());
        oldest.into_iter().chain(children).for_each(end);
        assert_eq!(turn(folder).unwrap().record.helpers, []);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The parent does not wait, as a subreaper may.
    #[test]
    fn a_zombie_that_no_process_waits_for_ends_the_trust_in_init() {
        let child = zombie();
        let fresh = helper(&child);
        let mut record = Helpers { init: 7, is_reaping: true, helpers: vec![fresh] };
        assert!(record.has_room());
        // A start time of another second: the pid is another process's then, so only the rule is shown.
        let late = Helper { started: UNKNOWN, ..fresh };
        record.helpers = vec![late];
        assert!(!record.has_room());
        end(child);
        assert!(record.has_room());
    }

    #[test]
    fn the_records_of_ended_pid_namespaces_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        drop(turn(dir.path()).unwrap());
        let own = path(dir.path()).unwrap();
        for name in ["helper.1", "attached-from.1", "helper.x", "other.1"] {
            let record = File::create(dir.path().join(name)).unwrap();
            record.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        remove_ended_in(dir.path()).unwrap();
        assert!(own.exists() && dir.path().join("helper.x").exists() && dir.path().join("other.1").exists());
        assert!(!dir.path().join("helper.1").exists());
        let is_seen = processes::is_first_namespace().unwrap();
        assert_eq!(dir.path().join("attached-from.1").exists(), !is_seen, "its containers may live where it is hidden");
    }

    /// Another user could otherwise stop the helpers, or have a plugin take any process for one.
    #[test]
    fn a_record_that_is_not_private_or_no_plain_file_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let path = path(folder).unwrap();
        drop(turn(folder).unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o604)).unwrap();
        assert!(turn(folder).is_none());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::hard_link(&path, folder.join("other")).unwrap();
        assert!(turn(folder).is_none());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.join("other"), &path).unwrap();
        assert!(turn(folder).is_none());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(turn(folder).is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
