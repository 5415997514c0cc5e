//! The cgroup file systems as a runtime expects them, in the test's own cgroup namespace.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};

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
