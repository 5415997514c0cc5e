//! podman on a node.

use crate::folders;
use crate::upgrade::{self, Maker};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use testns::{Namespace, Node, Output, Subject, run};

/// Time for one command of podman: many run at once on small machines.
const DEADLINE: Duration = Duration::from_secs(60);

/// Options of each container: no registry is asked, and there is no devpts, whose group an ordinary user cannot map.
const OPTIONS: [&str; 5] =
    ["-d", "--pull=never", "--mount", "type=tmpfs,destination=/dev/pts,tmpfs-mode=0755", "--stop-timeout=0"];

/// podman with storage, configuration and plugins of its own on a throwaway node.
pub(crate) struct Podman {
    pub(crate) node: Node,
}

impl Podman {
    /// podman with the suite's plugins and no others; where it cannot run, says that the test is skipped.
    pub(crate) fn or_skip() -> Option<Self> {
        static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
        let obstacle = OBSTACLE.get_or_init(|| folders::missing().or_else(obstacle_to_containers));
        if let Some(why) = obstacle {
            testns::skip(std::thread::current().name().unwrap_or("podman"), why);
            return None;
        }
        let podman = Self::new();
        upgrade::install_reference();
        upgrade::install(Maker::Ours);
        podman.node.remember();
        Some(podman)
    }

    fn new() -> Self {
        set_child_subreaper(true).unwrap(); // each conmon becomes a child, whose end can be waited for
        let node = Node::with(&Subject::Folder(testns::find_reference().unwrap().into()));
        folders::prepare(node.work_dir());
        let podman = Self { node };
        let image = folders::pack_image(podman.node.work_dir());
        podman.ok(&["import", &image, "localhost/box"]);
        podman
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let work = self.node.work_dir();
        let mut command = Command::new("/usr/bin/podman");
        command.env_clear().env("PATH", folders::PATH).env("HOME", work.join("home"));
        command.env("TMPDIR", work.join("tmp")).env("CONTAINERS_CONF", work.join("containers.conf"));
        for (option, folder) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(work.join(folder));
        }
        command.args(["--storage-driver", "vfs"]).args(arguments).current_dir(work);
        run(command, b"", DEADLINE)
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "podman {arguments:?}: {}", output.stderr);
        output.stdout.trim_end().to_owned()
    }

    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "podman {arguments:?} succeeds: {}", output.stdout);
        output.stderr
    }

    /// Starts a container that stays until it is removed.
    #[track_caller]
    pub(crate) fn start(&self, options: &[&str]) -> Container<'_> {
        let id = self.ok(&Self::start_command(options));
        Container::of(self, id)
    }

    /// The arguments that start a container.
    pub(crate) fn start_command<'a>(options: &[&'a str]) -> Vec<&'a str> {
        [&["run"], &OPTIONS[..], options, &["localhost/box", "busybox", "sleep", "600"]].concat()
    }

    #[track_caller]
    pub(crate) fn inspect(&self, container: &str) -> Value {
        let text = self.ok(&["inspect", "--type", "container", container]);
        serde_json::from_str::<Value>(&text).unwrap()[0].take()
    }
}

impl Drop for Podman {
    /// Containers would outlive a test that failed: conmon is no child of the test.
    fn drop(&mut self) {
        self.run(&["rm", "--all", "--force", "--time", "0"]);
    }
}

/// Why no container starts here even without a network, if so: a kernel or a machine that forbids it.
fn obstacle_to_containers() -> Option<String> {
    let attempt = std::thread::spawn(|| {
        let podman = Podman::new();
        let output = podman.run(&Podman::start_command(&["--network=none"]));
        (!output.status.success()).then(|| output.stderr.trim().to_owned())
    });
    match attempt.join() {
        Ok(refusal) => refusal.map(|error| format!("podman cannot start a container here: {error}")),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map_or("see above", String::as_str);
            Some(format!("podman cannot be set up here: {message}"))
        }
    }
}

pub(crate) struct Container<'p> {
    podman: &'p Podman,
    pub(crate) id: String,
    state: Value,
}

impl<'p> Container<'p> {
    pub(crate) fn of(podman: &'p Podman, id: String) -> Self {
        let state = podman.inspect(&id);
        Self { podman, id, state }
    }

    pub(crate) fn namespace(&self) -> Namespace {
        let pid = self.state["State"]["Pid"].as_i64().unwrap();
        Namespace::at(format!("/proc/{pid}/ns/net"))
    }

    /// Where podman has bound its namespace.
    pub(crate) fn sandbox(&self) -> &Path {
        Path::new(self.state["NetworkSettings"]["SandboxKey"].as_str().unwrap())
    }

    /// What podman says of its place in a network, as it was when the container was started.
    pub(crate) fn network(&self, name: &str) -> &Value {
        &self.state["NetworkSettings"]["Networks"][name]
    }

    pub(crate) fn address(&self, network: &str) -> String {
        self.network(network)["IPAddress"].as_str().unwrap().to_owned()
    }

    pub(crate) fn result(&self, network: &str, ifname: &str) -> Value {
        let path = format!("/var/lib/cni/results/{network}-{}-{ifname}", self.id);
        let entry: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        entry["result"].clone()
    }

    #[track_caller]
    pub(crate) fn exec(&self, arguments: &[&str]) -> String {
        self.podman.ok(&[&["exec", &self.id], arguments].concat())
    }

    /// Ends and removes it, and waits for the last that podman does about it; podman's stderr.
    #[track_caller]
    pub(crate) fn remove(&self) -> String {
        let monitor = self.monitor();
        let output = self.podman.run(&["rm", "--force", "--time", "0", &self.id]);
        assert!(output.status.success(), "podman rm: {}", output.stderr);
        wait_for_the_end_of(monitor);
        output.stderr
    }

    /// conmon, which cleans up after its container on its own account, beside `podman rm`.
    fn monitor(&self) -> Pid {
        let pid = self.state["State"]["ConmonPid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap())
    }
}

/// Adopted by this process when its parent ended, so its end can be waited for.
#[track_caller]
fn wait_for_the_end_of(monitor: Pid) {
    let (ended, end) = channel();
    thread::spawn(move || ended.send(waitpid(monitor, None)));
    let end = end.recv_timeout(Duration::from_secs(30)).expect("conmon ends with its container");
    end.expect("conmon is a child of the test");
}
