//! podman on a node.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::prctl::set_child_subreaper;
use serde_json::Value;
use testns::{Node, Output, Subject, run};

use crate::container::Container;
use crate::executables::{self, Maker};
use crate::folders;

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
        executables::install_reference();
        executables::install(Maker::Ours);
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

    /// Runs a command of podman.
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

    /// Runs a command that succeeds; its stdout without the final newline.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "podman {arguments:?}: {}", output.stderr);
        output.stdout.trim_end().to_owned()
    }

    /// Runs a command that fails; its stderr.
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

    /// The output of `podman inspect` for a container.
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
