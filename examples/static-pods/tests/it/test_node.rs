//! A node with folders for manifests and networks, the program on it, and what pods leave on the node.

use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use testns::{Background, Node, Subject};

/// The default network: a bridge with IPv4 addresses.
pub(crate) const PODS: &str = r#"{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
    "isDefaultGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}]}"#;

const NETWORKS: &str = "/etc/cni/net.d";

#[derive(Debug)]
pub(crate) struct TestNode {
    pub(crate) node: Node,
}

impl TestNode {
    /// A node with the default network and no manifests.
    pub(crate) fn new() -> Self {
        let test_node = Self { node: Node::with(&Subject::ours()) };
        test_node.write_network("10-pods.conflist", PODS);
        test_node
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_static-pods"));
        command.args(["--manifests", "/run/manifests", "--conf-dir", NETWORKS, "--cache-dir", "/var/lib/cni/cache"]);
        command.args(["--retry", "0.05", "--read-again", "0.2", "--plugin-dir"]).arg(self.node.bin_dir());
        command
    }

    pub(crate) fn start(&self) -> Background {
        Background::with_stdout(self.command())
    }

    pub(crate) fn write_network(&self, file: &str, text: &str) {
        place(&Path::new(NETWORKS).join(file), text);
    }

    /// A manifest `NAME.yaml` of a pod of that name, with a spec.
    pub(crate) fn write_pod(&self, name: &str, spec: &str) {
        self.write_manifest(&format!("{name}.yaml"), &pod(name, "", spec));
    }

    /// A pod that is on a network besides the default one.
    pub(crate) fn write_pod_on(&self, name: &str, network: &str) {
        let annotations = format!("annotations: {{k8s.v1.cni.cncf.io/networks: {network}}}");
        self.write_manifest(&format!("{name}.yaml"), &pod(name, &annotations, ""));
    }

    pub(crate) fn write_manifest(&self, file: &str, text: &str) {
        place(&Path::new("/run/manifests").join(file), text);
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(format!("/run/manifests/{name}.yaml")).unwrap();
    }

    /// A network by a plugin that is a shell script: what it does at ADD, and at DEL.
    pub(crate) fn write_plugin(&self, name: &str, add: &str, del: &str) {
        let versions = r#"{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}"#;
        let text = format!(
            "#!/bin/sh\ncase $CNI_COMMAND in\nVERSION) echo '{versions}' ;;\nADD) {add} ;;\nDEL) {del} ;;\nesac\n"
        );
        testns::write_executable(self.node.bin_dir().join(name), text).unwrap();
        let list = format!(r#"{{"cniVersion": "1.1.0", "name": "{name}", "plugins": [{{"type": "{name}"}}]}}"#);
        self.write_network(&format!("50-{name}.conflist"), &list);
    }

    /// Checks that there is exactly what so many pods on the default network have: ports of the bridge, veths, addresses, cache
    /// entries, namespaces.
    #[track_caller]
    pub(crate) fn assert_pods(&self, pods: usize) {
        let links = self.node.host().links();
        let found = [
            links.iter().filter(|link| link.master.as_deref() == Some("cni0")).count(),
            links.iter().filter(|link| link.kind == "veth").count(),
            names("/var/lib/cni/networks/pods").iter().filter(|name| name.starts_with("10.")).count(),
            names("/var/lib/cni/cache/results").iter().filter(|name| name.starts_with("pods-")).count(),
            names("/run/static-pods/netns").len(),
        ];
        assert_eq!(found, [pods; 5]);
    }
}

pub(crate) fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, {metadata}}}\nspec: {{{spec}}}\n")
}

pub(crate) fn host_port(port: u16) -> String {
    format!("containers: [{{ports: [{{containerPort: 80, hostPort: {port}}}]}}]")
}

/// Writes beside the file, then renames, so a reader sees the old file or the new one.
fn place(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn names(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// SIGTERM, and the exit code once the program has taken all down.
#[track_caller]
pub(crate) fn terminate(program: &mut Background) -> Option<i32> {
    program.signal(Signal::SIGTERM);
    program.exit_code()
}

/// Checks that the program has printed no line with this text so far.
#[track_caller]
pub(crate) fn assert_never(program: &Background, text: &str) {
    let lines = program.seen();
    assert!(!lines.iter().any(|line| line.contains(text)), "{text}:\n{}", lines.join("\n"));
}

/// The value of `KEY=` in the last line of a running pod.
#[track_caller]
pub(crate) fn value(program: &Background, pod: &str, key: &str) -> String {
    let start = format!("pod default/{pod}: Running");
    let line = program.seen().iter().rev().find(|line| line.starts_with(&start)).expect("the pod runs");
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    // A warning may follow.
    value.unwrap_or_else(|| panic!("no {key} in {line}")).trim_end_matches(':').to_owned()
}
