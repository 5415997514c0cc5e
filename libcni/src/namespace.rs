//! What became of a container's network namespace. Looked at, never entered.

use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, statfs};
use std::path::Path;

/// linux/magic.h `NSFS_MAGIC`: nsfs, on which a namespace lies when it is mounted somewhere.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// What lies at the path of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// A namespace.
    Present,
    /// None: nothing is there, or a plain file, as `ip netns` leaves one when its mount is gone.
    Gone,
    /// Nobody can tell: there is no path, or it cannot be looked at.
    Unknown,
}

impl Namespace {
    /// Looks at `path`.
    #[must_use]
    pub fn of(path: &str) -> Self {
        if path.is_empty() {
            return Namespace::Unknown;
        }
        match (Path::new(path).try_exists(), statfs(path)) {
            (Ok(false), _) => Namespace::Gone,
            (Ok(true), Ok(fs)) if [NSFS_MAGIC, PROC_SUPER_MAGIC].contains(&fs.filesystem_type()) => Namespace::Present,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_told_from_a_plain_file() {
        assert_eq!(Namespace::of("/proc/self/ns/net"), Namespace::Present);
        assert_eq!(Namespace::of("/run/netns/no such"), Namespace::Gone);
        assert_eq!(Namespace::of("/etc/passwd"), Namespace::Gone);
        assert_eq!(Namespace::of(""), Namespace::Unknown);
    }
}
