//! The state of a container's network namespace. Its path is examined; the namespace is never entered.

use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, statfs};
use std::path::Path;

/// linux/magic.h `NSFS_MAGIC`: the file system of namespaces that are mounted at a path.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// What is at the path of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// A namespace.
    Present,
    /// No namespace: the path does not exist, or is a plain file, as `ip netns` leaves one when its mount is gone.
    Gone,
    /// It cannot be determined: there is no path, or it cannot be examined.
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
    fn a_namespace_is_distinguished_from_a_plain_file() {
        assert_eq!(Namespace::of("/proc/self/ns/net"), Namespace::Present);
        assert_eq!(Namespace::of("/run/netns/no such"), Namespace::Gone);
        assert_eq!(Namespace::of("/etc/passwd"), Namespace::Gone);
        assert_eq!(Namespace::of(""), Namespace::Unknown);
    }
}
