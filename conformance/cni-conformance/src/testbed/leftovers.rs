//! Finds what is left of an attachment: on the node, in containers, in files, as processes.

use super::Testbed;
use crate::profile::Stage;
use crate::{node_setup, write_protection};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::PidfdFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testns::{Container, Snapshot};

/// The usual time that a namespace which lost its path takes to go, and its links with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest time that the kernel may take for it, where other work makes it slow.
const TEARDOWN_DEADLINE: Duration = Duration::from_secs(60);

/// The longest time that a process may outlive the call that started it: some wait for the kernel to be through with a
/// link, whose removal is announced long before.
const PROCESS_PATIENCE: Duration = Duration::from_secs(2);

/// The state that [`Testbed::remember`] saw.
#[derive(Debug)]
pub(super) struct Baseline {
    node: Snapshot,
    pods: Vec<(Container, Snapshot)>,
    processes: BTreeSet<i32>,
    /// JSON files, in which a plugin may have an entry for each attachment.
    registries: BTreeMap<PathBuf, String>,
}

/// Returns whether a plain file has an empty list, or a folder has such files alone. A pipe is not opened, which would have no end.
fn lists_nothing(path: &Path) -> bool {
    let Ok(kind) = fs::symlink_metadata(path).map(|about| about.file_type()) else { return false };
    if kind.is_dir() {
        let mut entries = fs::read_dir(path).into_iter().flatten().flatten().peekable();
        return entries.peek().is_some() && entries.all(|entry| lists_nothing(&entry.path()));
    }
    let is_empty = |text: String| ["{}", "[]", "null"].contains(&text.trim());
    kind.is_file() && fs::read_to_string(path).is_ok_and(is_empty)
}

/// Folders of a node in which plugins have files.
const FOLDERS: [&str; 3] = ["/run", "/var/lib/cni", "/etc/cni"];

impl Testbed {
    /// Makes what is now the state that [`Testbed::left_behind`] compares with: the node, each container that is there,
    /// and the processes. Make the pods first: a profile may lay something for them.
    pub fn remember(&self) {
        *self.baseline.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(self.look());
    }

    /// The same without the containers, of which there are too many to look at each.
    pub fn remember_node(&self) {
        let (node, processes, registries) = (self.snapshot(), self.process_ids(), self.registries());
        let baseline = Baseline { node, pods: Vec::new(), processes, registries };
        *self.baseline.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(baseline);
    }

    fn look(&self) -> Baseline {
        let mut seen = BTreeSet::new();
        let mut pods = self.pods();
        pods.retain(|pod| is_namespace(pod.namespace().path()) && seen.insert(pod.id().to_owned()));
        Baseline {
            node: self.snapshot(),
            pods: pods.iter().map(|pod| (pod.clone(), pod.namespace().snapshot())).collect(),
            processes: self.process_ids(),
            registries: self.registries(),
        }
    }

    /// The node, and the folders that the profile says the plugin writes to.
    fn snapshot(&self) -> Snapshot {
        let scratch = write_protection::SCRATCH.map(Path::new);
        self.node
            .snapshot()
            .with_files(self.own_folders().chain(scratch.into_iter().filter(|_| self.has_own_scratch())))
    }

    /// Whether folders for temporary files are the trial's own, and so empty but for what a plugin writes there.
    fn has_own_scratch(&self) -> bool {
        write_protection::mounts(&fs::read("/proc/self/mountinfo").unwrap_or_default())
            .iter()
            .any(|(place, _)| place == write_protection::SCRATCH[0])
    }

    fn own_folders(&self) -> impl Iterator<Item = &Path> {
        self.profile.stage.iter().filter_map(|stage| match stage {
            Stage::Folder { path } if !FOLDERS.iter().any(|folder| path.starts_with(folder)) => Some(path.as_path()),
            _ => None,
        })
    }

    fn folders(&self) -> impl Iterator<Item = &Path> {
        FOLDERS.iter().map(Path::new).chain(self.own_folders())
    }

    fn registries(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        self.folders().for_each(|folder| registries(folder, &mut found));
        found
    }

    /// Entries for containers that came into files that were there before.
    fn entries_since(&self, baseline: &Baseline) -> Vec<String> {
        let pods = self.pods();
        let now = self.registries();
        let kept = now.iter().filter_map(|(path, text)| Some((path, text, baseline.registries.get(path)?)));
        let came = |(path, new, old): (&PathBuf, &String, &String)| {
            let is_new = |pod: &&Container| names(new, pod.id()) && !names(old, pod.id());
            let line = |pod: &Container| format!("+ entry of {} in {}", pod.id(), path.display());
            pods.iter().filter(is_new).map(line).collect::<Vec<_>>()
        };
        kept.flat_map(came).collect()
    }

    /// Returns what is left of all that happened since [`Testbed::remember`], a line each: changes of the node and of
    /// containers that still exist, and processes. Empty if nothing is.
    ///
    /// Not changes of files that were there before and still are: bookkeeping is not a leak, but for an entry that names a
    /// container in a JSON file. Nor what the kernel does
    /// by itself: link-local addresses and the routes that come with them, 127.0.0.1 on `lo`. Waits a while for namespaces to go.
    pub fn left_behind(&self) -> String {
        let baseline = self.baseline.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let baseline = baseline.as_ref().unwrap_or_else(|| panic!("the case has not remembered the testbed"));
        self.wait_for_processes(baseline);
        let mut left = String::new();
        let is_known = self.node.host().wait_within(PATIENCE, |_| {
            left = self.left_since(baseline);
            left.is_empty() || !self.is_pending(baseline)
        });
        if !is_known {
            self.node.settle(TEARDOWN_DEADLINE);
            left = self.left_since(baseline);
        }
        left
    }

    /// Gives new processes the time to end.
    fn wait_for_processes(&self, baseline: &Baseline) {
        let start = Instant::now();
        for id in self.process_ids().difference(&baseline.processes) {
            let pid = rustix::process::Pid::from_raw(*id);
            // The process has ended if it cannot be opened.
            let Some(Ok(fd)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) else {
                continue;
            };
            let left = PROCESS_PATIENCE.saturating_sub(start.elapsed());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout).ok(); // what is left is reported anyway
        }
    }

    /// Whether a container has gone since, so that the kernel may still be at work.
    fn is_pending(&self, baseline: &Baseline) -> bool {
        let has_gone = |pod: &Container| !is_namespace(pod.namespace().path());
        baseline.pods.iter().any(|(pod, _)| has_gone(pod)) || self.pods().iter().any(has_gone)
    }

    fn left_since(&self, baseline: &Baseline) -> String {
        let mut lines = lasting(&testns::changes(&baseline.node, &self.snapshot()));
        for (pod, before) in baseline.pods.iter().filter(|(pod, _)| is_namespace(pod.namespace().path())) {
            let changes = lasting(&testns::changes(before, &pod.namespace().snapshot()));
            lines.extend(changes.iter().map(|line| format!("{line} (in {})", pod.id())));
        }
        lines.retain(|line| !self.is_of_gone_stage(line) && !self.is_of_empty_list(line));
        let came = self.process_ids().into_iter().filter(|id| !baseline.processes.contains(id));
        lines.extend(came.map(|id| format!("+ process {id} {}", command_of(id))));
        lines.extend(self.entries_since(baseline));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Whether a line says that what the kit itself had laid on the node for a container went with its namespace.
    fn is_of_gone_stage(&self, line: &str) -> bool {
        let gone = self.pods().into_iter().enumerate().filter(|(_, pod)| !is_namespace(pod.namespace().path()));
        let mut links = gone.map(|(index, _)| node_setup::host_veth(index + 1));
        line.starts_with("- ") && links.any(|link| line.split_whitespace().any(|word| word == link))
    }

    /// Returns whether a line is of a new file or folder that lists nothing, and whose name is no container's.
    fn is_of_empty_list(&self, line: &str) -> bool {
        let new = line.strip_prefix("+ file ").or_else(|| line.strip_prefix("+ folder "));
        let path = new.and_then(|new| new.split(' ').next()).unwrap_or_default();
        lists_nothing(Path::new(path)) && !self.pods().iter().any(|pod| names(path, pod.id()))
    }

    /// Processes of the testbed: everything in its process namespace but the kit itself. None where the testbed has no
    /// process namespace of its own.
    ///
    /// The kit is the first process there, and so the parent of what killed plugins leave behind: those that have ended
    /// are seen off, or a long case would have thousands of them. No call may be under way.
    fn process_ids(&self) -> BTreeSet<i32> {
        if !self.machine.own_processes {
            return BTreeSet::new();
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let (ended, alive): (BTreeSet<i32>, BTreeSet<i32>) = ids.filter(|id| *id != 1).partition(|id| is_zombie(*id));
        for id in ended {
            waitpid(Pid::from_raw(id), Some(WaitPidFlag::WNOHANG)).ok(); // ECHILD: it has a parent that will
        }
        alive
    }

    /// Files below `/run`, `/var/lib/cni`, `/etc/cni` and the profile's folders that still name a container, in their path or content.
    ///
    /// Files of the testbed itself are left out.
    pub fn files_naming(&self, pod: &Container) -> Vec<PathBuf> {
        let mut found = Vec::new();
        self.folders().for_each(|folder| files_naming(folder, pod.id(), &mut found));
        found
    }
}

/// Lines of changes that a plugin has to answer for.
fn lasting(changes: &str) -> Vec<String> {
    let by_kernel = |line: &str| {
        let is_address = line.contains(" address ") && line.contains(" fe80:");
        let is_route = ["route fe80:", "route ff00::/8"].iter().any(|start| line[2..].starts_with(start));
        // The local and anycast routes of an address come and go with it and with the carrier, a moment later.
        let is_local = line.contains(" table 255 ") && line.contains(" proto 2 ");
        // Comes with the first time that lo is up, and stays.
        let is_lo = line[2..].starts_with("address 127.0.0.1/8 on lo ");
        // A link without a qdisc of its own has `noqueue`, once it was up.
        is_address || is_route || is_local || is_lo || line[2..].starts_with("qdisc noqueue 0 ")
    };
    let file = |line: &str, sign: char| {
        let (path, _content) = line.strip_prefix(sign)?.strip_prefix(" file ")?.split_once(' ')?;
        Some(path.to_owned())
    };
    let files = |sign| changes.lines().filter_map(move |line| file(line, sign)).collect::<BTreeSet<_>>();
    let (gone, new) = (files('-'), files('+'));
    let is_kept = |line: &str| {
        file(line, '-').is_some_and(|path| new.contains(&path))
            || file(line, '+').is_some_and(|path| gone.contains(&path))
    };
    changes.lines().filter(|line| !by_kernel(line) && !is_kept(line)).map(str::to_owned).collect()
}

/// Whether a container's path still is a namespace, not a plain file or nothing.
fn is_namespace(path: &Path) -> bool {
    const NSFS_MAGIC: nix::sys::statfs::FsType = nix::sys::statfs::NSFS_MAGIC;
    nix::sys::statfs::statfs(path).is_ok_and(|about| about.filesystem_type() == NSFS_MAGIC)
}

/// JSON files below a folder, but for the testbed's own.
fn registries(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_link =
            path.is_symlink() || [Path::new("/run/netns"), Path::new("/run/testns")].contains(&path.as_path());
        if path.is_dir() && !is_link {
            registries(&path, found);
        }
        let text =
            if path.is_file() && !is_link { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        if text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() {
            found.insert(path, text);
        }
    }
}

/// Whether a text has a name that is no part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let is_more = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + name.len()..).unwrap_or_default());
        !before.ends_with(is_more) && !after.starts_with(is_more)
    })
}

fn files_naming(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if [Path::new("/run/netns"), Path::new("/run/testns")].contains(&path.as_path()) {
            continue;
        }
        let Ok(about) = fs::symlink_metadata(&path) else {
            continue;
        };
        let in_name = entry.file_name().to_string_lossy().contains(name);
        let in_content = || {
            let content = if about.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            content.windows(name.len()).any(|window| window == name.as_bytes())
        };
        if in_name || in_content() {
            found.push(path.clone());
        }
        if about.is_dir() {
            files_naming(&path, name, found);
        }
    }
}

/// Third field of `/proc/PID/stat` (proc_pid_stat(5)), after the name in brackets.
fn is_zombie(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn command_of(process: i32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::lists_nothing;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_empty_list_is_nothing_and_whatever_else_is_left_is_something() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text, is_nothing) in [("a", "{}\n", true), ("b", " []", true), ("c", "", false), ("d", "{1}", false)]
        {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), text).unwrap();
            assert_eq!([lists_nothing(&at(name)), lists_nothing(&at(name).join("file"))], [is_nothing; 2], "{text}");
        }
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        symlink(at("a"), at("link")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for other in ["pipe", "link", "empty", "nowhere"] {
            assert!(!lists_nothing(&at(other)), "{other}");
        }
    }
}
