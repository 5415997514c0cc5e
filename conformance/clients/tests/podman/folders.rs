//! The folders of podman's own on a node, so that nothing of the machine's is read but its configuration defaults, and
//! nothing is written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use testns::run;

/// Where podman, its helpers and tar are.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs that the tests need, each with its package of Debian 12.
const PROGRAMS: [(&str, &str); 5] = [
    ("/usr/bin/podman", "podman"),
    ("/usr/bin/crun", "crun"),
    ("/usr/bin/conmon", "conmon"),
    ("/usr/sbin/iptables", "iptables"),
    ("/bin/busybox", "busybox-static"),
];

/// Names that the image has for busybox.
const APPLETS: [&str; 3] = ["sh", "ping", "httpd"];

/// A container needs no cgroup here; the limits podman asks for by itself are above what an ordinary user may set.
const CONTAINERS_CONF: &str = r#"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[network]
network_backend = "cni"
cni_plugin_dirs = ["/run/testns/opt-cni-bin"]
network_config_dir = "/etc/cni/net.d"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"#;

pub(crate) fn missing() -> Option<String> {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(path, _)| !Path::new(path).exists()).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Some(format!("not installed: {}", packages.join(", ")));
    }
    let no_reference = "no reference plugins: conformance/fetch-reference fetches them";
    testns::find_reference().is_none().then(|| no_reference.to_owned())
}

/// Makes the calling thread's node one that podman can run on, below `work`.
pub(crate) fn prepare(work: &Path) {
    // podman keeps a cache in /var/lib/containers and its locks in /dev/shm, whatever its config says.
    for folder in ["/var/lib", "/dev/shm"] {
        tmpfs(folder);
    }
    fs::create_dir_all("/var/lib/cni").unwrap();
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    // crun looks for a cgroup file system or the folder of several, even if it is to use none.
    if Path::new("/sys/fs/cgroup").is_dir() {
        tmpfs("/sys/fs/cgroup");
    }
    for folder in ["home", "tmp", "opt-cni-bin"] {
        fs::create_dir_all(work.join(folder)).unwrap();
    }
    fs::write(work.join("containers.conf"), CONTAINERS_CONF).unwrap();
}

fn tmpfs(path: &str) {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some("mode=0755")).unwrap();
}

/// Packs an image: busybox under the names of [`APPLETS`], and a page for httpd.
pub(crate) fn pack_image(work: &Path) -> String {
    let root = work.join("image");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::create_dir_all(root.join("www")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::write(root.join("www/index.html"), crate::ports::PAGE).unwrap();
    let archive = work.join("image.tar");
    let mut tar = Command::new("/bin/tar");
    tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
    assert!(run(tar, b"", Duration::from_secs(20)).status.success());
    archive.display().to_string()
}
