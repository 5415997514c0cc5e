//! A running container of podman.

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::Value;
use testns::Namespace;

use crate::engine::Podman;

/// A container, as podman itself describes it.
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

    /// Returns the container's network namespace.
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

    /// Returns the container's IPv4 address in a network, according to podman.
    pub(crate) fn address(&self, network: &str) -> String {
        self.network(network)["IPAddress"].as_str().unwrap().to_owned()
    }

    /// The result that podman's CNI library keeps for the attachment.
    pub(crate) fn result(&self, network: &str, ifname: &str) -> Value {
        let path = format!("/var/lib/cni/results/{network}-{}-{ifname}", self.id);
        let entry: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        entry["result"].clone()
    }

    /// Runs a command in it; its stdout.
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
