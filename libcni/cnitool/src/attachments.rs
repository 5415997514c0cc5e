//! What is attached, as far as the cache knows.

use crate::output::{Output, Table};
use crate::settings::Settings;
use libcni::cni_spec::SpecVersion;
use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, statfs};
use serde_json::json;
use std::path::Path;

/// What this program is called where plugins are.
pub(crate) const OWN_NAME: &str = "cnitool";
/// linux/magic.h `NSFS_MAGIC`: nsfs, on which a namespace lies when it is mounted somewhere.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// What became of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// It exists.
    Present,
    /// It does not: there is nothing at its path, or a plain file.
    Gone,
    /// Nobody can tell: there is no path, or it cannot be looked at.
    Unknown,
}

impl Namespace {
    /// What lies at `path`.
    pub(crate) fn of(path: &str) -> Self {
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

    fn as_str(self) -> &'static str {
        match self {
            Namespace::Present => "present",
            Namespace::Gone => "gone",
            Namespace::Unknown => "unknown",
        }
    }
}

/// Prints the attachments, of one network or container if so asked.
pub(crate) fn print(settings: &Settings, network: Option<&str>, output: Output) -> anyhow::Result<()> {
    let listing = settings.runtime.cache().list(settings.container()?.as_ref())?;
    for file in &listing.passed_over {
        tracing::warn!("{file}");
    }
    let mut table = Table::new(&["network", "container", "ifname", "netns", "state", "addresses"]);
    for cached in listing.cached.iter().filter(|cached| network.is_none_or(|name| cached.network.as_str() == name)) {
        // An unreadable result still is an attachment.
        let result = cached.result(SpecVersion::V0_1_0).ok().flatten().unwrap_or_default();
        let addresses: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
        let attachment = &cached.attachment;
        table.row([
            json!(cached.network.as_str()),
            json!(attachment.id.container_id.as_str()),
            json!(attachment.id.ifname.as_str()),
            json!(attachment.netns),
            json!(Namespace::of(&attachment.netns).as_str()),
            json!(addresses),
        ]);
    }
    output.table(&table)
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
