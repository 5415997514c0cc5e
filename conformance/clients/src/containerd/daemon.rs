//! A containerd with all its files in a node.

use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};

use crate::{DEADLINE, Image, RuntimeNode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testns::{Output, run};

/// The image of the tests' containers, busybox.
pub const IMAGE: &str = "localhost/busybox:1";

/// The image of the process that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "localhost/pause:1";

/// The folder of networks that our `config.toml` sets for the CRI plugin; `ctr` always uses `/etc/cni/net.d`.
pub const NETWORKS_OF_CRI: &str = "/etc/cni/pods.d";

/// A running containerd. It ends with this value.
#[derive(Debug)]
pub struct Daemon {
    process: Child,
    node: RuntimeNode,
}

impl Daemon {
    /// Starts it on a node with our plugins; says `SKIP` and why where that cannot be.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let node = RuntimeNode::with(&["containerd", "containerd-shim-runc-v2", "ctr", "runc"])?;
        let process = spawn(&node);
        Some(Self { process, node })
    }

    pub fn socket(&self) -> PathBuf {
        self.node.work_dir().join("containerd.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(log_path(&self.node)).unwrap_or_default()
    }

    pub fn ctr(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.socket()).args(arguments);
        command
    }

    #[track_caller]
    pub fn run_ctr(&self, arguments: &[&str]) -> Output {
        run(self.ctr(arguments), b"", DEADLINE)
    }

    pub fn import_images(&self, namespace: &str) {
        for (name, command) in [(IMAGE, ["sh"].as_slice()), (PAUSE, &["sleep", "1000000"])] {
            self.import(namespace, &Image::busybox(&self.node, name, command));
        }
    }

    pub fn import(&self, namespace: &str, image: &Image) {
        let archive = image.archive.display().to_string();
        let output = self.run_ctr(&["--namespace", namespace, "image", "import", &archive]);
        assert_eq!(output.code(), 0, "{}{}", output.stdout, output.stderr);
    }
}

impl Deref for Daemon {
    type Target = RuntimeNode;

    fn deref(&self) -> &RuntimeNode {
        &self.node
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            testns::note(&format!("containerd's log:\n{}", self.log()));
        }
        let containerd = Pid::from_raw(self.process.id().cast_signed());
        if kill(containerd, Signal::SIGTERM).is_ok() {
            self.process.wait().ok(); // whatever it ended with
        }
    }
}

fn log_path(node: &RuntimeNode) -> PathBuf {
    node.work_dir().join("containerd.log")
}

/// Starts the process and waits for its notification to systemd.
fn spawn(node: &RuntimeNode) -> Child {
    let work = node.work_dir();
    let config = work.join("config.toml");
    fs::write(&config, config_toml(node)).unwrap();
    let notify_socket = work.join("notify.sock");
    fs::remove_file(&notify_socket).ok(); // there is one after a crash
    let notified = UnixDatagram::bind(&notify_socket).unwrap();
    notified.set_read_timeout(Some(DEADLINE)).unwrap();
    let log = File::options().create(true).append(true).open(log_path(node)).unwrap();
    let mut command = Command::new("containerd");
    command.arg("--config").arg(config).env("NOTIFY_SOCKET", notify_socket);
    let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let mut message = [0; 256];
    let length = match notified.recv(&mut message) {
        Ok(length) => length,
        Err(error) => panic!("containerd does not start: {error}\n{}", fs::read_to_string(log_path(node)).unwrap()),
    };
    assert!(message[..length].starts_with(b"READY=1"), "{}", message[..length].escape_ascii());
    process
}

fn config_toml(node: &RuntimeNode) -> String {
    let work = node.work_dir().display();
    let plugins = node.plugin_dir().display();
    format!(
        r#"
version = 2
root = "{work}/root"
state = "{work}/state"
disabled_plugins = [
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.opt",
]

[grpc]
address = "{work}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Some machines' root may not do that.
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{NETWORKS_OF_CRI}"
bin_dir = "{plugins}"
"#
    )
}
