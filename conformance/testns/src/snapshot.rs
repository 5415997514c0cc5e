//! A node or namespace as lines of text, so that two of them can be compared.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use crate::{Namespace, address, link, nft, route, sysctls, tc};

/// Everything a plugin could have left: one line for each object, sorted.
///
/// Links: name, kind, MTU, MAC, flags, master, alias, bridge and port flags, VLANs, queueing.
/// Addresses, routes of all tables, rules, neighbours that a process set, nftables objects, names of
/// iptables' own tables, all of `/proc/sys/net` that can be changed. Of a node, files as well.
/// State that changes by itself (indexes, counters, carrier, learned neighbours) is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(Vec<String>);

impl Namespace {
    #[track_caller]
    pub fn snapshot(&self) -> Snapshot {
        self.enter(|| Snapshot(network()))
    }
}

impl Snapshot {
    /// The thread's network namespace and folders.
    pub(crate) fn of_node() -> Self {
        let mut lines = network();
        for folder in ["/run", "/var/lib/cni", "/etc/cni"] {
            files(Path::new(folder), &mut lines);
        }
        Self(lines)
    }

    /// The same with the files of more folders.
    pub fn with_files<'a>(mut self, folders: impl Iterator<Item = &'a Path>) -> Self {
        folders.for_each(|folder| files(folder, &mut self.0));
        self.0.sort();
        self
    }

    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Lines that are in one snapshot only: `- gone`, then `+ new`.
///
/// A sysctl counts where its value changed. A sysctl that came or went did so with its link, which has
/// a line of its own, or with a kernel module, which any test beside this one may have loaded.
pub fn changes(before: &Snapshot, after: &Snapshot) -> String {
    let (gone, new) = differences(&before.0, &after.0);
    let keys = |lines: &[&str]| lines.iter().filter_map(|line| sysctl_key(line)).map(str::to_owned).collect();
    let (keys_gone, keys_new): (BTreeSet<String>, BTreeSet<String>) = (keys(&gone), keys(&new));
    let lasting = |line: &str| sysctl_key(line).is_none_or(|key| keys_gone.contains(key) && keys_new.contains(key));
    let signed = [("-", gone), ("+", new)];
    let lines = signed.iter().flat_map(|(sign, lines)| lines.iter().map(move |line| (sign, line)));
    lines.filter(|(_, line)| lasting(line)).map(|(sign, line)| format!("{sign} {line}\n")).collect()
}

/// Lines that are only in the first text, and only in the second one, sorted; one that is there more often counts as often
/// as it is more.
fn differences<'a>(before: &'a [String], after: &'a [String]) -> (Vec<&'a str>, Vec<&'a str>) {
    let sorted = |lines: &'a [String]| {
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.sort_unstable();
        lines
    };
    let (before, after) = (sorted(before), sorted(after));
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (Some(old), Some(now)) => old.cmp(now),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return (gone, new),
        };
        match order {
            Ordering::Less => gone.extend(before.next()),
            Ordering::Greater => new.extend(after.next()),
            Ordering::Equal => {
                before.next();
                after.next();
            }
        }
    }
}

fn sysctl_key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("sysctl ")?.split_once(" = ")?;
    Some(key)
}

fn network() -> Vec<String> {
    let mut lines = Vec::new();
    let links = link::messages();
    let names = link::Names::of(&links);
    lines.extend(link::links_of(&links, &names).iter().map(ToString::to_string));
    lines.extend(link::port_vlans(&names).iter().map(ToString::to_string));
    lines.extend(tc::qdiscs(&names));
    lines.extend(address::addresses(&names).iter().map(ToString::to_string));
    lines.extend(address::neighbours(&names).iter().map(ToString::to_string));
    lines.extend(route::routes(&names).iter().map(ToString::to_string));
    lines.extend(route::rules());
    lines.extend(nft::ruleset());
    for family in ["ip", "ip6"] {
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{family}_tables_names"));
        let tables = tables.unwrap_or_default();
        lines.extend(tables.lines().map(|name| format!("{family}tables {name}")));
    }
    lines.extend(sysctls::sysctls(&links, &names));
    lines.sort();
    lines
}

/// Files below a folder, without the bound namespaces and the test's own.
fn files(folder: &Path, lines: &mut Vec<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path == Path::new("/run/netns") || path == Path::new("/run/testns") {
            continue;
        }
        let Ok(about) = fs::symlink_metadata(&path) else {
            continue;
        };
        let mode = about.permissions().mode() & 0o7777;
        let name = path.display();
        if about.is_dir() {
            lines.push(format!("folder {name} {mode:04o}"));
            files(&path, lines);
        } else if about.is_file() {
            lines.push(format!("file {name} {mode:04o} {}", content(&path)));
        } else if about.is_symlink() {
            let target = fs::read_link(&path).unwrap_or_default();
            lines.push(format!("symlink {name} to {}", target.display()));
        } else {
            let socket = if about.file_type().is_socket() { "socket" } else { "special" };
            lines.push(format!("{socket} {name} {mode:04o}"));
        }
    }
}

fn content(path: &Path) -> String {
    const SHOWN: usize = 256;
    match fs::read(path) {
        Ok(bytes) if bytes.len() > SHOWN => {
            let mut digest = DefaultHasher::new();
            bytes.hash(&mut digest);
            format!("{} bytes with digest {:016x}", bytes.len(), digest.finish())
        }
        Ok(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Err(error) => format!("unreadable: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Snapshot, changes};

    #[test]
    fn changes_are_lines_that_one_snapshot_has_more_often() {
        let of = |lines: &[&str]| Snapshot(lines.iter().map(|line| (*line).to_owned()).collect());
        let before = of(&["route b", "link a", "route b", "file /run/x", "sysctl net/gone = 1", "sysctl net/kept = 1"]);
        let after = of(&["link a", "link a", "route b", "file /run/y", "sysctl net/kept = 2", "sysctl net/new = 1"]);
        let expected = "- file /run/x\n- route b\n- sysctl net/kept = 1\n\
                        + file /run/y\n+ link a\n+ sysctl net/kept = 2\n";
        assert_eq!(changes(&before, &after), expected);
        assert_eq!(changes(&after, &after), "");
    }
}
