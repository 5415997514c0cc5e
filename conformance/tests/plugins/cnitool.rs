//! `cnitool` with the suite's own executables: installed as on a node, then called as its README's tour does.

mod add;
mod explain;
mod gc;
mod plan;
mod readme_tour;
mod show;

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

use crate::subjects::ours;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use testns::{Node, Subject};

/// An installation of one file with many names. Copies of unoptimised executables take a second.
const LINKED: &[&str] = &["--link", "hard"];

/// A node with a network in its configuration folder and nothing installed.
struct Tour {
    node: Node,
    bin_dir: PathBuf,
    /// The network's subnet, without its last byte. No other test has it: GC looks for addresses in the namespaces of all
    /// processes, so also in those of tests that run beside this one.
    subnet: String,
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
        Self { node, bin_dir, subnet }
    }

    /// An address of the network.
    fn address(&self, last: u8) -> String {
        format!("{}.{last}", self.subnet)
    }

    /// Runs it in a PID namespace of its own: what has no link on the node is looked for in the namespaces of all processes,
    /// so also of tests that run beside this one, whose links come and go all the time.
    fn run(&self, executable: &Path, words: &[&str]) -> Output {
        let mut unshare = Command::new(UNSHARE);
        // The emulated machine of the full kernel lacks it, and runs nothing else meanwhile.
        if !Path::new(UNSHARE).exists() {
            return self.run_among_processes(executable, words);
        }
        unshare.args(["--pid", "--fork", "--mount-proc"]).arg(executable).args(words);
        unshare.env_clear().env("CNI_PATH", &self.bin_dir).output().unwrap()
    }

    /// Runs it where it sees the processes of all tests.
    fn run_among_processes(&self, executable: &Path, words: &[&str]) -> Output {
        Command::new(executable).args(words).env_clear().env("CNI_PATH", &self.bin_dir).output().unwrap()
    }

    /// Runs the installed `cnitool`, which has to succeed; returns its stdout.
    fn cnitool(&self, words: &[&str]) -> String {
        let output = self.run(&self.bin_dir.join("cnitool"), words);
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

    fn installed(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.bin_dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}

const UNSHARE: &str = "/usr/bin/unshare";

/// The installation has a file for each plugin except noop, and cnitool. A second installation over it works, also over
/// one whose names are hard links of one file.
#[test]
fn install_puts_every_plugin_and_cnitool_there() {
    use std::os::unix::fs::MetadataExt;
    let tour = Tour::new();
    // All but noop, which is for tests.
    let mut names: Vec<&str> =
        cni_plugins::ENTRIES.iter().map(|entry| entry.name).filter(|name| *name != "noop").collect();
    let plugins = u64::try_from(names.len()).unwrap();
    names.push("cnitool");
    names.sort_unstable();
    for (more, links) in [(&["--link", "hard"][..], plugins), (&[], 1), (&[], 1)] {
        let output = tour.install(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The executable `cluster` is another one, and installed where it was built.
        let mut installed = tour.installed();
        installed.retain(|name| name != "cluster");
        assert_eq!(installed, names);
        assert_eq!(tour.bin_dir.join("bridge").metadata().unwrap().nlink(), links);
    }
}

/// Third-party installers write their own loopback over the existing file.
#[test]
fn a_plugin_that_is_overwritten_changes_no_other() {
    let tour = Tour::new();
    assert!(tour.install(&[]).status.success());
    testns::unshared(|| std::fs::copy("/bin/true", tour.bin_dir.join("loopback"))).unwrap();
    let pod = tour.node.container();
    tour.cnitool(&["add", "office", &pod.namespace().path().display().to_string()]);
    assert_eq!(pod.namespace().global_addresses("eth0"), [tour.address(2) + "/24"]);
}

/// A foreign file is replaced only on request, and then a copy is kept.
#[test]
fn install_leaves_foreign_files_alone() {
    let tour = Tour::new();
    let foreign = tour.bin_dir.join("bridge");
    std::fs::write(&foreign, "a foreign file").unwrap();
    let refused = tour.install(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bridge"), "{refused:?}");
    assert_eq!(
        (std::fs::read_to_string(&foreign).unwrap().as_str(), tour.installed()),
        ("a foreign file", vec!["bridge".into()])
    );
    let replaced = tour.install(&["--replace-foreign"]);
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    assert_eq!(std::fs::read_to_string(tour.bin_dir.join(".replaced/bridge")).unwrap(), "a foreign file");
    assert!(tour.cnitool(&["version"]).contains("bridge"));
}

/// The tour: add, check, attachments, del; only what the network keeps is left.
#[test]
fn the_tour_works_on_the_installed_set() {
    let tour = Tour::new();
    assert!(tour.install(&[]).status.success());
    let pod = tour.node.container();
    let netns = pod.namespace().path().display().to_string();
    tour.cnitool(&["validate", "office"]);
    tour.cnitool(&["status", "office"]);
    let result: Value = serde_json::from_str(&tour.cnitool(&["add", "office", &netns])).unwrap();
    assert_eq!(result["ips"][0]["address"], tour.address(2) + "/24");
    assert_eq!(pod.namespace().global_addresses("eth0"), [tour.address(2) + "/24"]);
    tour.cnitool(&["check", "office", &netns]);
    let attachments: Value = serde_json::from_str(&tour.cnitool(&["attachments", "--json"])).unwrap();
    assert_eq!(attachments.as_array().map(Vec::len), Some(1), "{attachments}");
    tour.cnitool(&["del", "office", &netns]);
    assert!(!Path::new("/var/lib/cni/networks/office").join(tour.address(2)).exists());
    assert_eq!(tour.cnitool(&["attachments", "--json"]).trim(), "[]");
}

/// GC removes the attachments whose namespace is gone; `--dry-run` lists them first.
#[test]
fn gc_removes_what_has_no_namespace_any_more() {
    let tour = Tour::new();
    assert!(tour.install(LINKED).status.success());
    let (gone, stays) = (tour.node.container(), tour.node.container());
    for pod in [&gone, &stays] {
        tour.cnitool(&["add", "office", &pod.namespace().path().display().to_string()]);
    }
    gone.end();
    tour.node.settle(Duration::from_secs(60));
    let reservation = |last: u8| Path::new("/var/lib/cni/networks/office").join(tour.address(last)).exists();
    assert!(tour.cnitool(&["gc", "office", "--dry-run"]).contains("would be deleted"));
    assert!(reservation(2) && reservation(3));
    tour.cnitool(&["gc", "office"]);
    assert!(!reservation(2) && reservation(3));
    tour.cnitool(&["check", "office", &stays.namespace().path().display().to_string()]);
}

/// README: `CNI_LOG=debug` has a line for each step.
#[test]
fn the_debug_log_has_a_line_for_each_step() {
    let tour = Tour::new();
    assert!(tour.install(LINKED).status.success());
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
fn the_helps_example_of_an_address_works_as_printed() {
    let tour = Tour::new();
    assert!(tour.install(LINKED).status.success());
    let list = r#"{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge","bridge":"pods0",
        "ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}]}"#;
    std::fs::write("/etc/cni/net.d/20-pods.conflist", list).unwrap();
    let pod = tour.node.container_named("c1");
    let help = tour.cnitool(&["add", "--help"]);
    let example = help.lines().map(str::trim).find(|line| line.contains(" --args ")).unwrap();
    let path = format!("{}:/usr/bin:/bin", tour.bin_dir.display());
    let mut shell = Command::new("sh");
    let output =
        shell.args(["-c", example]).env_clear().env("PATH", path).env("CNI_PATH", &tour.bin_dir).output().unwrap();
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(pod.namespace().global_addresses("eth1"), ["10.1.0.7/24"]);
}

/// A rollback's DEL would remove it: a veth of the reference's has no mark that says whose it is.
#[test]
fn an_add_whose_interface_is_there_already_leaves_it() {
    let tour = Tour::new();
    assert!(tour.install(LINKED).status.success());
    let pod = tour.node.container();
    pod.namespace().add_veth("eth0", tour.node.host(), "theirs");
    let netns = pod.namespace().path().display().to_string();
    let words = ["--json", "add", "office", &netns];
    let refused = tour.run(&tour.bin_dir.join("cnitool"), &words);
    assert_eq!(refused.status.code(), Some(1));
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    let msg = format!("cannot add network office: interface eth0 is in {netns} already, a veth");
    assert_eq!((&error["code"], &error["msg"]), (&json!(103), &json!(msg)));
    assert!(pod.namespace().find_link("eth0").is_some() && tour.node.host().find_link("theirs").is_some());
    pod.namespace().delete_link("eth0");
    // Once it is attached, a second ADD is the plugin's to refuse.
    tour.cnitool(&["add", "office", &netns]);
    assert_eq!(tour.run(&tour.bin_dir.join("cnitool"), &words).status.code(), Some(1));
    tour.cnitool(&["check", "office", &netns]);
}
