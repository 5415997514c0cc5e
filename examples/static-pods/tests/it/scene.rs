//! A node with folders for manifests and networks, and what is looked at there.

use crate::program::Program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use testns::{Namespace, Node, Subject};

/// The node, with folders in its own `/run` and `/var`.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) node: Node,
}

/// The default network: a bridge with IPv4 addresses.
const PODS: &str = r#"{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
    "isDefaultGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}]}"#;

const MANIFESTS: &str = "/run/manifests";
const NETWORKS: &str = "/etc/cni/net.d";
const CACHE: &str = "/var/lib/cni/cache";
const STATE: &str = "/run/static-pods";

impl Scene {
    /// A node with the default network and no manifests.
    pub(crate) fn new() -> Self {
        let scene = Self::without_networks();
        scene.write_network("10-pods.conflist", PODS);
        scene
    }

    /// A node whose folder of networks does not exist.
    pub(crate) fn without_networks() -> Self {
        let node = Node::with(&Subject::Multicall(env!("CARGO_BIN_EXE_static-pods").into()));
        fs::create_dir_all(MANIFESTS).unwrap();
        Self { node }
    }

    /// The program on it, with more arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_static-pods"));
        command.args(["--manifests", MANIFESTS, "--conf-dir", NETWORKS, "--cache-dir", CACHE, "--state-dir", STATE]);
        command.args(["--retry", "0.05", "--plugin-dir"]).arg(self.node.bin_dir()).args(arguments);
        command
    }

    pub(crate) fn start(&self) -> Program {
        Program::start(self.command(&[]))
    }

    pub(crate) fn write_network(&self, file: &str, text: &str) {
        fs::create_dir_all(NETWORKS).unwrap();
        place(&Path::new(NETWORKS).join(file), text);
    }

    pub(crate) fn write_manifest(&self, file: &str, text: &str) {
        fs::create_dir_all(MANIFESTS).unwrap();
        place(&Path::new(MANIFESTS).join(file), text);
    }

    /// A manifest `NAME.yaml` of a pod of that name, with a spec.
    pub(crate) fn write_pod(&self, name: &str, spec: &str) {
        self.write_manifest(&format!("{name}.yaml"), &pod(name, spec));
    }

    pub(crate) fn remove_manifest(&self, file: &str) {
        fs::remove_file(Path::new(MANIFESTS).join(file)).unwrap();
    }

    pub(crate) fn remove_manifests(&self) {
        fs::remove_dir_all(MANIFESTS).unwrap();
    }

    /// A plugin that is a shell script: what it does at ADD, and at DEL.
    pub(crate) fn write_plugin(&self, name: &str, add: &str, del: &str) {
        let versions = r#"{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}"#;
        let text = format!(
            "#!/bin/sh\ncase $CNI_COMMAND in\nVERSION) echo '{versions}' ;;\nADD) {add} ;;\nDEL) {del} ;;\nesac\n"
        );
        let path = self.node.bin_dir().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.write_network(
            &format!("50-{name}.conflist"),
            &format!(r#"{{"cniVersion": "1.1.0", "name": "{name}", "plugins": [{{"type": "{name}"}}]}}"#),
        );
    }

    /// Manifest of a pod that is on a network besides the default one.
    pub(crate) fn write_pod_on(&self, name: &str, network: &str) {
        self.write_manifest(&format!("{name}.yaml"), &pod_on(name, network));
    }

    /// The network namespace that a process holds.
    pub(crate) fn namespace(&self, pid: u32) -> Namespace {
        Namespace::at(format!("/proc/{pid}/ns/net"))
    }

    /// The traces of pods on the node.
    pub(crate) fn traces(&self) -> Traces {
        let links = self.node.host().links();
        Traces {
            pauses: pauses().len(),
            ports: links.iter().filter(|link| link.master.as_deref() == Some("cni0")).count(),
            veths: links.iter().filter(|link| link.kind == "veth").count(),
            leases: names("/var/lib/cni/networks/pods").iter().filter(|name| name.starts_with("10.")).count(),
            cached: names(&format!("{CACHE}/results")).len(),
            records: names(&format!("{STATE}/sandboxes")).len(),
        }
    }

    /// Checks that there is nothing of any pod.
    #[track_caller]
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.traces(), Traces::of(0));
    }

    /// Path in the folder of records.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        names(&format!("{STATE}/sandboxes")).iter().map(|name| Path::new(STATE).join("sandboxes").join(name)).collect()
    }
}

/// How many there are of everything a pod has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    pub(crate) pauses: usize,
    ports: usize,
    veths: usize,
    leases: usize,
    cached: usize,
    records: usize,
}

impl Traces {
    /// Of so many pods on the default network alone, one each.
    pub(crate) fn of(pods: usize) -> Self {
        Self { pauses: pods, ports: pods, veths: pods, leases: pods, cached: pods, records: pods }
    }
}

/// A manifest.
pub(crate) fn pod(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

/// A manifest of a pod that is on a network besides the default one.
pub(crate) fn pod_on(name: &str, network: &str) -> String {
    let annotations = format!("annotations: {{k8s.v1.cni.cncf.io/networks: {network}}}");
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, {annotations}}}\n")
}

/// Spec of a pod with a port of the node.
pub(crate) fn host_port(port: u16) -> String {
    format!("containers: [{{ports: [{{containerPort: 80, hostPort: {port}}}]}}]")
}

/// As an editor does that cares for its readers: written beside, then renamed.
fn place(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Pods outlive the program that made them, but not the test: nothing else is in the node's mount namespace.
impl Drop for Scene {
    fn drop(&mut self) {
        for pid in processes() {
            // The process may have ended by itself.
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).ok();
        }
    }
}

/// Pause processes of this node.
pub(crate) fn pauses() -> Vec<u32> {
    let is_pause =
        |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"pause\0pause\0"));
    processes().into_iter().filter(is_pause).collect()
}

/// Processes of this node, which are those in the mount namespace that this thread alone of the test's is in.
fn processes() -> Vec<u32> {
    let mount_namespace = |process: &Path| fs::metadata(process.join("ns/mnt")).ok().map(|meta| meta.ino());
    let own = mount_namespace(Path::new("/proc/thread-self"));
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let pids = all.filter_map(|process| Some((process.file_name()?.to_str()?.parse().ok()?, process)));
    pids.filter(|(_, process)| own.is_some() && mount_namespace(process) == own).map(|(pid, _)| pid).collect()
}
