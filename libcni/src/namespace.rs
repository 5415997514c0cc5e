//! The state of a container's network namespace. Its path is examined; the namespace is never entered.

use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, statfs};
use nix::time::{ClockId, clock_gettime};
use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags, statx};
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// linux/magic.h `NSFS_MAGIC`: the file system of namespaces that are mounted at a path.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// The state of a path that should lead to a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// A namespace.
    Present,
    /// No namespace: the path does not exist, or leads to something else.
    Gone,
    /// The state cannot be determined: there is no path, or it cannot be examined, or an empty file is there. A namespace is
    /// mounted on such a file, which stays empty where that mount is not seen: after it was unmounted, or in another mount
    /// namespace than the one that it was mounted in.
    Unknown,
}

impl Namespace {
    /// Examines `path`.
    #[must_use]
    pub fn of(path: &str) -> Self {
        if path.is_empty() {
            return Namespace::Unknown;
        }
        match (Path::new(path).try_exists(), statfs(path)) {
            (Ok(false), _) => Namespace::Gone,
            (Ok(true), Ok(fs)) if [NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&fs.filesystem_type()) => Namespace::Present,
            (Ok(true), Ok(_)) if is_bare(path) => Namespace::Unknown,
            (Ok(true), Ok(_)) => Namespace::Gone,
            (Err(_), _) | (_, Err(_)) => Namespace::Unknown,
        }
    }

    /// "present", "gone" or "unknown".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Namespace::Present => "present",
            Namespace::Gone => "gone",
            Namespace::Unknown => "unknown",
        }
    }
}

/// Whether a namespace can be mounted at the path, and none is as far as this process sees: an empty file is there.
pub(crate) fn is_bare(path: &str) -> bool {
    // Files of these are without a length.
    let may_be_one = || statfs(path).is_ok_and(|fs| [NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&fs.filesystem_type()));
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) && !may_be_one()
}

/// The identity of the namespace behind a path: the boot, the device and inode of the namespace and, where the path is a
/// mount of it, the inode's time. The kernel gives a number again as soon as its namespace has ended; the inode of a
/// mounted namespace is made once, any other may be made anew for each use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// The mark of the namespace that is at `path`; `None` if it cannot be determined.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let found = stat(path)?;
        let is_mount = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        Some(if is_mount { Self::with_time(&found)? } else { Self(number(&found)?) })
    }

    fn with_time(found: &Statx) -> Option<Self> {
        Some(Self(format!("{} {}.{:09}", number(found)?, found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec)))
    }

    pub(crate) fn recorded(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn find(&self, path: &str) -> Namespace {
        match Self::of(path) {
            None => Namespace::Unknown,
            Some(found) if found == *self => Namespace::Present,
            // The time also differs where the namespace was mounted again after only its processes had kept it.
            Some(found) if found.number() == self.number() && self.a_process(|_| true).is_some() => Namespace::Present,
            Some(_) => Namespace::Gone,
        }
    }

    /// Whether the namespace was of another boot, and has ended with it.
    pub(crate) fn is_of_earlier_boot(&self) -> bool {
        let boot = self.0.split(' ').next();
        processes::boot().is_ok_and(|now| boot != Some(now))
    }

    /// Boot, device and inode.
    fn number(&self) -> &str {
        let end = self.0.match_indices(' ').nth(1).map_or(self.0.len(), |(end, _)| end);
        &self.0[..end]
    }

    /// A process in the namespace. The path may have been unmounted, or given to another namespace, while processes stay in the
    /// marked one. The kernel gives numbers again: it is another container's process if that one's namespace is mounted, which
    /// keeps the inode's time, and the time is another one.
    pub(crate) fn process(&self) -> Option<u32> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        self.a_process(|found| {
            let has_its_time = || Self::with_time(found).is_some_and(|mark| mark == *self);
            self.has_no_time() || has_its_time() || !mounts.contains(&format!(" net:[{}] ", found.stx_ino))
        })
    }

    fn has_no_time(&self) -> bool {
        self.0 == self.number()
    }

    fn a_process(&self, is_its: impl Fn(&Statx) -> bool) -> Option<u32> {
        let is_in = |process: &u32| {
            let found = stat(&format!("/proc/{process}/ns/net"));
            found.is_some_and(|found| number(&found).is_some_and(|number| number == self.number()) && is_its(&found))
        };
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(is_in)
    }
}

fn stat(path: &str) -> Option<Statx> {
    statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()
}

/// Boot, device and inode.
fn number(found: &Statx) -> Option<String> {
    let boot = processes::boot().ok()?;
    Some(format!("{boot} {:x}:{:x}:{}", found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the node has been started since then. A clock that was set right after the start is taken into account only as
/// far as it is right now.
pub(crate) fn is_of_earlier_boot(then: SystemTime) -> bool {
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    let boot = since_boot.ok().and_then(|since| SystemTime::now().checked_sub(since));
    boot.is_some_and(|boot| then < boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_namespace_in_one_boot() {
        let own = Mark::of("/proc/self/ns/net").unwrap();
        assert_eq!(own.find("/proc/self/ns/net"), Namespace::Present);
        assert_eq!(own.find("/proc/self/ns/mnt"), Namespace::Gone);
        assert_eq!(own.find("/no such"), Namespace::Unknown);
        let boot = processes::boot().unwrap();
        assert_eq!(Mark::recorded(own.to_string().replace(boot, "earlier")).find("/proc/self/ns/net"), Namespace::Gone);
    }

    #[test]
    fn what_was_written_before_the_node_started_is_of_an_earlier_boot() {
        assert!(is_of_earlier_boot(SystemTime::UNIX_EPOCH));
        assert!(!is_of_earlier_boot(SystemTime::now()));
    }

    #[test]
    fn a_namespace_is_distinguished_from_a_plain_file() {
        assert_eq!(Namespace::of("/proc/self/ns/net"), Namespace::Present);
        assert_eq!(Namespace::of("/run/netns/no such"), Namespace::Gone);
        assert_eq!(Namespace::of("/etc/passwd"), Namespace::Gone);
        assert_eq!(Namespace::of(""), Namespace::Unknown);
    }

    /// The namespace may be mounted there in another mount namespace.
    #[test]
    fn an_empty_file_says_nothing_of_the_namespace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!((Namespace::of(path), is_bare(path)), (Namespace::Unknown, true));
        std::fs::write(path, "x").unwrap();
        assert_eq!((Namespace::of(path), is_bare(path)), (Namespace::Gone, false));
        assert!(!is_bare("/proc/self/ns/net") && !is_bare("/run/netns/no such"));
    }
}
