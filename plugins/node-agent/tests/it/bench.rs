//! The agent on a throwaway node, and what tests see of it.

use kube_api::Api;
use nix::sys::signal::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testns::{Background, Node};

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_cni-node-agent");
/// The network's file.
pub(crate) const FILE: &str = "/etc/cni/net.d/10-pods.conflist";
/// The bound of every wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// The template of the image, which has containerd's own words for ranges and routes.
pub(crate) const TEMPLATE: &str = include_str!("../../templates/two-families.conflist");

/// A node with the files that agents use. One at a time: the folders are of this thread's mount namespace.
pub(crate) struct Bench {
    pub(crate) node: Node,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let node = Node::new();
        let bench = Self { node };
        bench.write("template", TEMPLATE);
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.node.work_dir().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes credentials for an API, and returns their path.
    pub(crate) fn kubeconfig(&self, address: SocketAddr, token: &str) -> PathBuf {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
        );
        self.write("kubeconfig", &text);
        self.path("kubeconfig")
    }

    /// The command of an agent with the usual template.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(AGENT);
        command.arg("--template").arg(self.path("template")).args(["--interval", "1"]).args(words);
        command.env_remove("KUBECONFIG");
        command
    }

    pub(crate) fn start(&self, words: &[&str]) -> Agent {
        Agent(Background::with_stderr(self.command(words)))
    }

    /// Starts an agent for node `a` of this API.
    pub(crate) fn start_for(&self, api: &Api, words: &[&str]) -> Agent {
        self.start_at(api.address, "a", words)
    }

    pub(crate) fn start_at(&self, address: SocketAddr, node: &str, words: &[&str]) -> Agent {
        let kubeconfig = self.kubeconfig(address, "first").display().to_string();
        let usual = ["--node", node, "--watch-seconds", "2", "--kubeconfig", &kubeconfig];
        self.start(&[&usual, words].concat())
    }

    /// Reserves an address of network `pods`, as host-local does.
    pub(crate) fn reserve(&self, ip: &str) -> PathBuf {
        let path = Path::new("/var/lib/cni/networks/pods").join(ip);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "web\r\neth0").unwrap();
        path
    }
}

/// A running agent.
pub(crate) struct Agent(pub(crate) Background);

impl Agent {
    /// Ends it as a supervisor does; it ends in time and without an error.
    pub(crate) fn end(mut self) {
        let start = Instant::now();
        self.0.signal(Signal::SIGTERM);
        assert_eq!(self.0.exit_code(), Some(0), "{}", self.0.rest());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    /// Waits for the announced address of the pages.
    pub(crate) fn pages(&mut self) -> String {
        let line = self.0.wait_for("/healthz");
        line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned()
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits until the network's file has a range.
#[track_caller]
pub(crate) fn wait_for_range(range: &str) {
    let has = || fs::read_to_string(FILE).is_ok_and(|text| text.contains(&format!("\"{range}\"")));
    wait_until(&format!("{FILE} has {range}"), has);
}

/// A page: its status line, and all of its text.
pub(crate) fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.lines().next().unwrap().to_owned(), text)
}
