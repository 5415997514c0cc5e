//! A node for a container runtime, one that also has cgroups, `/opt/cni/bin` and programs.

use nix::mount::{MsFlags, mount};
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testns::{Node, Subject, skip};

/// Where Debian has the runtimes and what they call.
const PROGRAM_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// A [`Node`] that a container runtime can be installed on.
///
/// The runtime's own files belong into [`Node::work_dir`].
#[derive(Debug)]
pub struct RuntimeNode {
    node: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cached {
    pub path: PathBuf,
    pub entry: Value,
}

impl RuntimeNode {
    /// A node with plugins, if these programs are installed and containers can be started; else says `SKIP` and why.
    #[track_caller]
    pub fn with(programs: &[&str]) -> Option<Self> {
        if let Some(why) = obstacle(programs) {
            let test = std::thread::current();
            skip(test.name().unwrap_or("test"), &why);
            return None;
        }
        let node = Node::new();
        mount_hierarchies();
        cover("/opt");
        let runtime_node = Self { node };
        runtime_node.install();
        runtime_node.node.remember();
        Some(runtime_node)
    }

    /// [`Node::remember`], once the kernel is through with what it does later for links that came up.
    #[track_caller]
    pub fn remember_settled(&self) {
        let links = self.host().links().into_iter();
        for link in links.filter(|link| link.up && ["bridge", "veth"].contains(&link.kind.as_str())) {
            self.host().wait_until_settled(&link.name);
        }
        self.remember();
    }

    /// Where runtimes look for plugins.
    pub fn plugin_dir(&self) -> &'static Path {
        Path::new("/opt/cni/bin")
    }

    /// Copies the executable once, and links each plugin's name to it, as `cnitool install --link hard` does.
    fn install(&self) {
        fs::create_dir_all(self.plugin_dir()).unwrap();
        let copy = self.plugin_dir().join("loopback");
        fs::copy(testns::plugins(), &copy).unwrap();
        let names = Subject::ours().executables().into_iter().map(|(name, _)| name);
        for name in names.filter(|name| name != "loopback") {
            fs::hard_link(&copy, self.plugin_dir().join(name)).unwrap();
        }
    }

    /// Writes a network list into a configuration folder, which is made if need be.
    pub fn configure(&self, folder: impl AsRef<Path>, file: &str, list: &Value) {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).unwrap();
        // A runtime that watches the folder must never see half a file.
        let unfinished = folder.join(format!(".{file}"));
        fs::write(&unfinished, list.to_string()).unwrap();
        fs::rename(unfinished, folder.join(file)).unwrap();
    }

    /// The cache entries of a container on a network, as the runtime's own library wrote them.
    pub fn cached(&self, container_id: &str) -> Vec<Cached> {
        let entries = fs::read_dir("/var/lib/cni/results").into_iter().flatten().flatten();
        let entries = entries.map(|entry| {
            let path = entry.path();
            let entry = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            Cached { path, entry }
        });
        entries.filter(|cached| cached.entry["containerId"] == container_id).collect()
    }

    /// Files of host-local for a network: one for each address, named by it.
    pub fn reservations(&self, network: &str) -> Vec<String> {
        let folder = Path::new("/var/lib/cni/networks").join(network);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.parse::<IpAddr>().is_ok());
        names.sort();
        names
    }
}

impl Cached {
    pub fn addresses(&self) -> Vec<String> {
        let ips = self.entry["result"]["ips"].as_array().into_iter().flatten();
        ips.filter_map(|ip| ip["address"].as_str()).map(str::to_owned).collect()
    }
}

impl Deref for RuntimeNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Why no runtime can run here, if none can.
fn obstacle(programs: &[&str]) -> Option<String> {
    let uids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if uids.split_whitespace().ne(["0", "0", "4294967295"]) || !nix::unistd::geteuid().is_root() {
        return Some("needs the machine's root: conformance/clients/run, as root".to_owned());
    }
    let programs = programs.iter().chain(&["busybox", "tar"]);
    let mut missing = programs.filter(|program| find_program(program).is_none());
    missing.next().map(|program| format!("{program} is not installed"))
}

fn find_program(name: &str) -> Option<PathBuf> {
    let mut paths = PROGRAM_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    paths.find(|path| path.exists())
}

fn cover(folder: &str) {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some("mode=0755")).unwrap();
}

pub const DEADLINE: Duration = Duration::from_secs(20);

const AGAIN: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer: for states of a runtime that it has no event for.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain for {what}");
        std::thread::park_timeout(AGAIN);
    }
}

const ROOT: &str = "/sys/fs/cgroup";

/// Mounts the hierarchies that the process is in where runtimes look for them.
///
/// A node's fresh sysfs hides those of the machine. What is mounted from a cgroup namespace shows nothing but the cgroup it was made in.
pub(crate) fn mount_hierarchies() {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let controllers: Vec<_> = own.lines().filter_map(|line| line.split(':').nth(1)).collect();
    if controllers == [""] {
        return mount_at(Path::new(ROOT), "cgroup2", None);
    }
    mount_at(Path::new(ROOT), "tmpfs", Some("mode=0755"));
    for names in controllers {
        match names.strip_prefix("name=") {
            Some(name) => mount_below_root(name, "cgroup", Some(&format!("none,name={name}"))),
            None if names.is_empty() => mount_below_root("unified", "cgroup2", None),
            None => mount_below_root(names, "cgroup", Some(names)),
        }
    }
}

fn mount_below_root(name: &str, kind: &str, options: Option<&str>) {
    let path = Path::new(ROOT).join(name);
    fs::create_dir(&path).unwrap();
    mount_at(&path, kind, options);
}

fn mount_at(path: &Path, kind: &str, options: Option<&str>) {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = mount(Some(kind), path, Some(kind), flags, options) {
        panic!("cannot mount {kind} ({options:?}) on {}: {error}", path.display());
    }
}
