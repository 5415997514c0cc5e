//! A node: a machine as a CNI plugin sees it, for the duration of one test.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{Call, Reply, Verb};
use crate::must::Must;
use crate::snapshot::{Snapshot, changes};
use crate::{Attachment, Container, Namespace, Subject, mounts, namespace, topology};

const WORK: &str = "/run/testns";

thread_local! {
    static NODES: Cell<u32> = const { Cell::new(0) };
}

/// A throwaway node: the test thread's own network and mount namespaces.
///
/// The thread that makes it, threads that it starts later and all their children see an empty network (`lo` is up,
/// forwarding is off, IPv6 works) and empty folders `/run`, `/var/lib/cni` and `/etc/cni`. The kernel removes
/// everything when they have ended. A node is for one test; the next one on the same thread can only be made after the
/// first is dropped.
#[derive(Debug)]
pub struct Node {
    host: Namespace,
    search_path: Mutex<Option<&'static str>>,
    before: Mutex<Option<Snapshot>>,
    containers: AtomicU32,
}

impl Node {
    #[track_caller]
    pub fn new() -> Self {
        Self::bare()
    }

    #[track_caller]
    pub fn with(subject: &Subject) -> Self {
        let node = Self::bare();
        node.install(subject);
        node
    }

    /// A node with every executable of some folders as plugins; of equal names the first folder's.
    ///
    /// The node's state is not recorded until [`Node::remember`]: a snapshot of a node takes as long as a call of a plugin,
    /// and thousands of these nodes are made.
    #[track_caller]
    pub fn with_folders<'a>(folders: impl DoubleEndedIterator<Item = &'a Path>) -> Self {
        let node = Self::unseen();
        for folder in folders.rev() {
            node.install(&Subject::Folder(folder.to_owned()));
        }
        node
    }

    #[track_caller]
    fn bare() -> Self {
        let node = Self::unseen();
        *node.before.lock().must("lock the snapshot") = Some(Snapshot::of_node());
        node
    }

    #[track_caller]
    fn unseen() -> Self {
        if let Some(why) = mounts::refusal() {
            panic!("{why}");
        }
        assert!(NODES.get() == 0, "this thread has a node already");
        mounts::leave();
        for folder in ["/run", "/var/lib/cni", "/etc/cni"] {
            mounts::empty_folder(Path::new(folder));
        }
        mounts::fresh_sysfs();
        for folder in ["/run/netns", "/run/testns/bin"] {
            fs::create_dir_all(folder).must(format_args!("create {folder}"));
        }
        fresh_network();
        NODES.set(1);
        Self {
            host: Namespace::of_this_thread(),
            search_path: Mutex::new(None),
            before: Mutex::new(None),
            containers: AtomicU32::new(0),
        }
    }

    pub fn host(&self) -> &Namespace {
        &self.host
    }

    /// A folder for the test's own files, removed with the node; [`Node::snapshot`] leaves it out.
    pub fn work_dir(&self) -> &Path {
        Path::new(WORK)
    }

    /// The folder of the plugins, and the `CNI_PATH` of each call.
    pub fn bin_dir(&self) -> PathBuf {
        self.work_dir().join("bin")
    }

    #[track_caller]
    pub fn container(&self) -> Container {
        self.container_named(&self.next_id())
    }

    #[track_caller]
    pub fn container_named(&self, id: &str) -> Container {
        Container::create(id, self.host(), &[])
    }

    /// As [`Node::container`], but its kernel does not look for duplicates of IPv6 addresses, which takes 1 to 2 s: for calls
    /// that are not what is tested.
    #[track_caller]
    pub fn container_without_probes(&self) -> Container {
        // Duplicate address detection sends no probe, and ends at once.
        let keys = ["dad_transmits", "router_solicitation_delay"].map(|key| format!("net/ipv6/conf/default/{key}"));
        Container::create(&self.next_id(), self.host(), &keys.each_ref().map(|key| (key.as_str(), "0")))
    }

    fn next_id(&self) -> String {
        format!("pod{}", self.containers.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes a namespace that is no container: another machine, which the test connects.
    #[track_caller]
    pub fn remote(&self, name: &str) -> Namespace {
        Namespace::create(&Path::new("/run/netns").join(name), &[])
    }

    /// Puts all plugins of a subject into [`Node::bin_dir`], in place of those of the same name.
    #[track_caller]
    pub fn install(&self, subject: &Subject) {
        for (name, executable) in subject.executables() {
            self.link(&name, &executable);
        }
        self.allow(subject);
    }

    /// Puts one plugin of a subject into [`Node::bin_dir`]: their bridge beside our host-local, say.
    #[track_caller]
    pub fn install_one(&self, subject: &Subject, name: &str) {
        let executable = subject.executable(name).must(format_args!("find the plugin {name} in {subject:?}"));
        self.link(name, &executable);
        self.allow(subject);
    }

    #[track_caller]
    fn link(&self, name: &str, executable: &Path) {
        let path = self.bin_dir().join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("cannot replace {name}: {error}"),
            _ => symlink(executable, &path).must(format_args!("link {}", path.display())),
        }
    }

    fn allow(&self, subject: &Subject) {
        if let Some(path) = subject.search_path() {
            *self.search_path.lock().must("lock the search path") = Some(path);
        }
    }

    pub(crate) fn search_path(&self) -> Option<&'static str> {
        *self.search_path.lock().must("lock the search path")
    }

    /// Calls the plugin that the config names in `type`; [`Call`] has more parameters.
    #[track_caller]
    pub fn call(&self, verb: Verb, config: impl fmt::Display, attachment: impl Into<Attachment>) -> Reply {
        Call::new(verb, config, attachment).run(self)
    }

    /// The state of the node: network, nft rules, sysctls and the files of `/run`, `/var/lib/cni` and `/etc/cni`, a
    /// line each.
    pub fn snapshot(&self) -> Snapshot {
        self.host.enter(Snapshot::of_node)
    }

    /// Records the node's state for [`Node::assert_as_before`].
    pub fn remember(&self) {
        *self.before.lock().must("lock the snapshot") = Some(self.snapshot());
    }

    /// Lines that disappeared (`-`) and appeared (`+`) since the node was made or last recorded.
    #[track_caller]
    pub fn changes(&self) -> String {
        let before = self.before.lock().must("lock the snapshot");
        changes(before.as_ref().must("find what the node was before"), &self.snapshot())
    }

    /// Checks that nothing has changed since the node was made or last recorded.
    #[track_caller]
    pub fn assert_as_before(&self) {
        let changes = self.changes();
        assert!(changes.is_empty(), "the node is not as before:\n{changes}");
    }

    /// As [`Node::assert_as_before`], without lines for which `expected` is true.
    #[track_caller]
    pub fn assert_as_before_except(&self, expected: impl Fn(&str) -> bool) {
        let changes = self.changes();
        let rest: Vec<_> = changes.lines().filter(|line| !expected(line)).collect();
        assert!(rest.is_empty(), "the node is not as before:\n{}", rest.join("\n"));
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The namespaces end with the thread; only now may it make the next node.
        NODES.set(0);
    }
}

/// Sets the new network namespace to a node's defaults, whatever the machine's own settings are.
fn fresh_network() {
    namespace::inherit();
    topology::set_lo_up();
    let settings = [
        // The kernel copies these from the machine.
        ("ipv4/ip_forward", "0"),
        ("ipv4/conf/all/route_localnet", "0"),
        ("ipv4/conf/default/route_localnet", "0"),
        ("ipv6/conf/all/forwarding", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
    ];
    for (key, value) in settings {
        let path = Path::new("/proc/sys/net").join(key);
        // A write spins as long as any process of the machine changes a link.
        if fs::read_to_string(&path).is_ok_and(|now| now.trim_end() != value) {
            fs::write(&path, value).must(format_args!("write {}", path.display()));
        }
    }
}
