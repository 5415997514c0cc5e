//! `cnitool` with the suite's own executables: installed as on a node, then called as its README's tour does.

mod add;
mod explain;
mod gc;
mod plan;
mod readme_tour;
mod show;

use crate::prelude::*;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};
use testns::{PidNamespace, Subject};

// What takes long, for `cargo test --workspace`: sick nodes (each is installed, damaged, examined and mended), installation killed
// anywhere, and examples one after the other.
cfg_if::cfg_if! {
    if #[cfg(feature = "every-test")] {
        mod command_line_errors;
        mod doctor;
        mod examples_of_help_and_man;
        mod install_cut_off;
        mod networks_without_file;
        mod repair;
    }
}

/// An installation of one file with many names. Copies of unoptimised executables take a second.
const LINKED: &[&str] = &["--link", "hard"];

/// The value of `--cap-args` for port 8080 of the node, which leads to port 80 of the container.
const PORT: &str = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#;

/// A node with a network in its configuration folder and nothing installed.
struct Tour {
    node: Node,
    bin_dir: PathBuf,
    /// The network's subnet, without its last byte. No other test has it: GC looks for addresses in the namespaces of all
    /// processes, so also in those of tests that run beside this one.
    subnet: String,
    processes: Option<PidNamespace>,
}

impl Tour {
    fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(0);
        let subnet = format!("10.207.{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let node = Node::with(&ours());
        let bin_dir = node.work_dir().join("opt-cni-bin");
        std::fs::create_dir_all(&bin_dir).unwrap();
        std::fs::create_dir_all("/etc/cni/net.d").unwrap();
        let network = json!({"cniVersion": "1.1.0", "name": "office", "plugins": [
            {"type": "bridge", "isDefaultGateway": true, "ipMasq": true,
             "ipam": {"type": "host-local", "subnet": format!("{subnet}.0/24")}}]});
        std::fs::write("/etc/cni/net.d/10-office.conflist", network.to_string()).unwrap();
        Self { node, bin_dir, subnet, processes: PidNamespace::new() }
    }

    /// The node with the suite installed.
    fn with_plugins() -> Self {
        let tour = Self::new();
        assert!(tour.install(LINKED).status.success());
        tour
    }

    fn host_local(&self) -> Value {
        json!({"type": "host-local", "subnet": format!("{}.0/24", self.subnet)})
    }

    /// The container ends without DEL, and its links with it.
    fn lose(&self, pod: &Container) {
        pod.end();
        self.node.settle(Duration::from_secs(60));
    }

    fn address(&self, last: u8) -> String {
        format!("{}.{last}", self.subnet)
    }

    /// Runs it in a PID namespace of the tour's own: what has no link on the node is looked for in the namespaces of all processes,
    /// so also of tests that run beside this one, whose links come and go all the time.
    fn run(&self, executable: &Path, words: &[&str]) -> Output {
        match &self.processes {
            Some(processes) => {
                let mut command = processes.command();
                command.arg(executable).args(words).env_clear().env("CNI_PATH", &self.bin_dir).output().unwrap()
            }
            None => self.run_among_processes(executable, words),
        }
    }

    /// Runs it where it sees the processes of all tests.
    fn run_among_processes(&self, executable: &Path, words: &[&str]) -> Output {
        Command::new(executable).args(words).env_clear().env("CNI_PATH", &self.bin_dir).output().unwrap()
    }

    fn call(&self, words: &[&str]) -> Output {
        self.run(&self.bin_dir.join("cnitool"), words)
    }

    /// Runs the installed `cnitool`, which has to succeed; returns its stdout.
    fn cnitool(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "cnitool {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn install(&self, more: &[&str]) -> Output {
        let Subject::Multicall(plugins) = ours() else { panic!("ours is one executable") };
        let bin_dir = self.bin_dir.display().to_string();
        let plugins = plugins.display().to_string();
        let words = [&["install", "--bin-dir", &bin_dir, "--from", &plugins], more].concat();
        self.run(testns::cnitool(), &words)
    }
}

/// Makes a file older than any ADD that may be under way.
fn make_old(path: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
}

fn netns(pod: &Container) -> String {
    pod.namespace().path().display().to_string()
}

/// README's commands from the installation to DEL, verbatim; only the build has been done before, and the folder of
/// plugins is the node's.
#[test]
fn the_readmes_commands_work_as_written() {
    let tour = Tour::new();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let (_, from_network) = readme.split_once("## A first network").unwrap();
    let mut blocks = from_network.split("```").skip(1).step_by(2);
    let mut block = |kind: &str| blocks.next().and_then(|text| text.strip_prefix(kind)).expect("a block of this kind");
    let (network, by_hand, install) = (block("json\n"), block("sh\n"), block("sh\n"));
    std::fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    std::fs::write("/etc/cni/net.d/10-pods.conflist", network).unwrap();
    let (build, install) = install.split_once('\n').unwrap();
    assert!(build.starts_with("cargo build --release "), "{build}");
    let Subject::Multicall(plugins) = ours() else { panic!("ours is one executable") };
    let built = format!("{} install --from {}", testns::cnitool().display(), plugins.display());
    let install = install.replace("target/*/release/cnitool install", &built);
    let script = format!("set -ex\n{install}{by_hand}").replace("/opt/cni/bin", tour.bin_dir.to_str().unwrap());
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new("sh")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", path)
        .env("CNI_PATH", &tour.bin_dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_debug_log_has_a_line_for_each_step() {
    let tour = Tour::with_plugins();
    let netns = tour.node.container().namespace().path().display().to_string();
    let log = |verb: &str| {
        let mut command = Command::new(tour.bin_dir.join("cnitool"));
        command.args([verb, "office", &netns]).env_clear().env("CNI_PATH", &tour.bin_dir).env("CNI_LOG", "debug");
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let steps = |verb: &str, steps: &[&str]| {
        let log = log(verb);
        let missing: Vec<_> = steps.iter().filter(|step| !log.lines().any(|line| line.contains(**step))).collect();
        assert!(missing.is_empty(), "{missing:?} is not in\n{log}");
    };
    let (gateway, first) = (tour.address(1), tour.address(2));
    steps(
        "add",
        &[
            "create bridge cni0",
            "create veth",
            &format!("reserved address={first}"),
            &format!("add address {first}/24 on eth0"),
            "write sysctl",
            &format!("add address {gateway}/24 on cni0"),
            "create nft rule",
        ],
    );
    steps("del", &[&format!("released address={first}"), "delete nft", "delete link veth"]);
}
