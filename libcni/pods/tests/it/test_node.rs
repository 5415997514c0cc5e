//! A node with plugins, a folder of networks and a cache: what a runtime works on.

use pods::{Loopback, Pod, PodId, Pods};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testns::{Container, Node, Subject};

/// Logs verb and interface, keeps its input and arguments, and prints a result on ADD that gives the pod 10.7.0.5.
pub(crate) const GOOD: &str = r#"
echo "$CNI_COMMAND $name $CNI_IFNAME" >> "$dir/log"
cat > "$dir/stdin.$name.$CNI_IFNAME.$CNI_COMMAND"
echo "$CNI_ARGS" > "$dir/args.$name.$CNI_IFNAME.$CNI_COMMAND"
if [ "$CNI_COMMAND" = VERSION ]; then
    echo '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}'
fi
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}'
"#;

/// As [`GOOD`], but does `script` first in one verb.
pub(crate) fn but(verb: &str, script: &str) -> String {
    format!("if [ \"$CNI_COMMAND\" = {verb} ]; then\n{script}\nfi\n{GOOD}")
}

pub(crate) fn failing(code: u32, msg: &str) -> String {
    format!(r#"echo "$CNI_COMMAND $name $CNI_IFNAME" >> "$dir/log"; echo '{{"code":{code},"msg":"{msg}"}}'; exit 1"#)
}

/// A test may wait this long for an event before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestNode {
    pub(crate) node: Node,
}

pub(crate) fn on_node(test: impl AsyncFnOnce(&TestNode)) {
    let test_node = TestNode::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE * 3, test(&test_node)).await.expect("the test hangs") });
}

impl TestNode {
    pub(crate) fn new() -> Self {
        let subject = Subject::ours();
        let test_node = Self { node: Node::with(&subject) };
        std::fs::create_dir_all(test_node.conf_dir()).unwrap();
        test_node.node.remember();
        test_node
    }

    pub(crate) fn dir(&self) -> &Path {
        self.node.work_dir()
    }

    pub(crate) fn conf_dir(&self) -> PathBuf {
        self.dir().join("net.d")
    }

    pub(crate) fn cache_dir(&self) -> PathBuf {
        self.dir().join("cache")
    }

    pub(crate) fn builder(&self) -> pods::Builder {
        Pods::builder()
            .conf_dir(self.conf_dir())
            .cache_dir(self.cache_dir())
            .plugin_dirs([self.node.bin_dir()])
            .loopback(Loopback::None)
            .stderr(|_, _| {})
    }

    pub(crate) fn pods(&self) -> Pods {
        self.builder().build().unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.dir().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // In place at once: a file that is cut counts as unfinished.
        let unfinished = self.dir().join("unfinished");
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(&unfinished, &path).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// Puts a shell script there as a plugin; `$dir` is the node's work folder and `$name` its own name.
    pub(crate) fn plugin(&self, name: &str, script: &str) {
        let text = format!("#!/bin/sh\ndir={}; name=${{0##*/}}\n{script}\n", self.dir().display());
        let unfinished = self.dir().join("unfinished");
        testns::write_executable(&unfinished, text).unwrap();
        std::fs::rename(&unfinished, self.node.bin_dir().join(name)).unwrap();
    }

    /// A list of plugins that have no keys but `type`.
    pub(crate) fn network(&self, file: &str, name: &str, plugins: &[&str]) {
        let plugins: Vec<_> = plugins.iter().map(|plugin| format!(r#"{{"type":"{plugin}"}}"#)).collect();
        let list = format!(r#"{{"cniVersion":"1.1.0","name":"{name}","plugins":[{}]}}"#, plugins.join(","));
        self.write(&format!("net.d/{file}.conflist"), &list);
    }

    /// A bridge with two families.
    pub(crate) fn bridge(&self, file: &str, name: &str, third: u8) {
        let list = format!(
            r#"{{"cniVersion":"1.1.0","name":"{name}","plugins":[{{"type":"bridge","bridge":"{name}","isGateway":true,
            "ipam":{{"type":"host-local","dataDir":"{}/leases","ranges":[[{{"subnet":"fd00:{third}::/64"}}],[{{"subnet":"10.{third}.0.0/24"}}]]}}}}]}}"#,
            self.dir().display()
        );
        self.write(&format!("net.d/{file}.conflist"), &list);
    }

    pub(crate) fn pod(&self, name: &str) -> (Pod, Container) {
        let container = self.node.container_named(&format!("sandbox-{name}"));
        let id = PodId::new("default", name, "", container.id()).unwrap();
        (Pod::new(id, container.namespace().path().display().to_string()), container)
    }

    /// The commands that ran, in order; VERSION and STATUS aside.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir().join("log")).unwrap_or_default();
        let lines = log.lines().filter(|line| !line.starts_with("VERSION") && !line.starts_with("STATUS"));
        lines.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn cache_files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.cache_dir().join("results")) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn leases(&self, network: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.dir().join("leases").join(network)) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut addresses: Vec<_> = names.filter(|name| name.starts_with(|c: char| c.is_ascii_hexdigit())).collect();
        addresses.retain(|name| name.contains(['.', ':']) || name.contains('_'));
        addresses.sort();
        addresses
    }

    /// Nothing of any pod is left on the node: the bridges stay, without ports.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.cache_files(), [""; 0]);
        let host = self.node.host();
        let veths: Vec<_> = host.links().into_iter().filter(|link| link.kind == "veth").collect();
        assert!(veths.is_empty(), "{veths:?}");
        for entry in std::fs::read_dir(self.dir().join("leases")).into_iter().flatten().flatten() {
            let network = entry.file_name().into_string().unwrap();
            assert_eq!(self.leases(&network), [""; 0], "leases of {network}");
        }
    }
}
