//! A machine: its name, boot, network card and data folder; and calls of the plugin on it, each a process.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use cluster::protocol::{Key, Records};
use cluster::store::{Folder, Store};
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};

pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_cluster");

/// A folder that all machines of a test share, and the folders of the machines.
pub(crate) struct TestCluster {
    pub(crate) folder: tempfile::TempDir,
    /// The keys of `ipam` that all machines have.
    pub(crate) keys: Value,
}

impl TestCluster {
    pub(crate) fn new(keys: Value) -> Self {
        static OWN_RUN: Once = Once::new();
        OWN_RUN.call_once(|| {
            mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        });
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        let cluster = Self { folder, keys };
        cluster.machine("x").operator(&["init"]);
        cluster
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn machine(&self, name: &str) -> Machine<'_> {
        let (boot, card) =
            (format!("boot-of-{name}-1-0000-0000-000000000000"), format!("0a:00:00:00:00:{:02x}", name.as_bytes()[0]));
        let home = self.folder.path().join(name);
        fs::create_dir_all(&home).unwrap();
        Machine { cluster: self, name: name.to_owned(), boot, card, more_cards: Vec::new(), home, later_seconds: 0 }
    }

    /// The records, which must be without fault.
    pub(crate) fn state(&self) -> Records {
        let records = self.records();
        assert_eq!(records.faults(), [] as [String; 0]);
        records
    }

    pub(crate) fn records(&self) -> Records {
        let store = Folder::new(&self.store(), "net");
        let mut all = Vec::new();
        for prefix in ["nodes/", "runs/", "claims/", "wants/"] {
            all.extend(now(store.list(prefix)).unwrap().into_iter().map(|(key, _, record)| (key, record)));
        }
        let network = now(store.read(&[Key::Network])).unwrap().remove(0).1;
        Records::of(all.into_iter().chain(network.map(|network| (Key::Network, network))))
    }

    /// Writes a record of the store by hand.
    pub(crate) fn overwrite(&self, key: &str, change: impl FnOnce(&mut Value)) {
        let (folder, number) = self.newest(key);
        let mut value = serde_json::from_slice(&fs::read(folder.join(number.to_string())).unwrap()).unwrap();
        change(&mut value);
        fs::write(folder.join((number + 1).to_string()), value.to_string()).unwrap();
    }

    /// The folder of a key, and its highest number.
    pub(crate) fn newest(&self, key: &str) -> (PathBuf, u64) {
        let folder = self.store().join("net").join(key);
        let numbers =
            fs::read_dir(&folder).unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let newest = numbers.max().unwrap();
        (folder, newest)
    }
}

/// The answer of a store that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) struct Machine<'a> {
    cluster: &'a TestCluster,
    /// The key `node`.
    pub(crate) name: String,
    pub(crate) boot: String,
    /// The Ethernet addresses of its cards, of which the first one may be empty.
    pub(crate) card: String,
    pub(crate) more_cards: Vec<String>,
    pub(crate) home: PathBuf,
    /// How far its clock of the time since the start is ahead.
    pub(crate) later_seconds: u64,
}

/// An address, or code and text of an error.
pub(crate) type Answer = Result<String, (u64, String)>;

impl Machine<'_> {
    /// Where the reservations are.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.join("net")
    }

    pub(crate) fn config(&self) -> Value {
        let mut ipam = json!({
            "type": "cluster", "dataDir": self.home, "node": self.name, "store": { "path": self.cluster.store() },
        });
        ipam.as_object_mut().unwrap().extend(self.cluster.keys.as_object().unwrap().clone());
        json!({ "cniVersion": "1.1.0", "name": "net", "type": "cluster", "ipam": ipam })
    }

    /// Runs the plugin's executable where boot and card are this machine's.
    pub(crate) fn run(&self, words: &[&str], variables: &[(&str, &str)], stdin: &str) -> Output {
        let links = self.home.join("links");
        for (at, card) in std::iter::once(&self.card).chain(&self.more_cards).enumerate() {
            fs::create_dir_all(links.join(format!("eth{at}/device"))).unwrap();
            fs::write(links.join(format!("eth{at}/address")), card).unwrap();
        }
        fs::write(self.home.join("boot"), &self.boot).unwrap();
        let script = "mount --bind \"$0/boot\" /proc/sys/kernel/random/boot_id && mount --bind \"$0/links\" /sys/class/net && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if self.later_seconds > 0 {
            command.args(["--time", "--fork", &format!("--boottime={}", self.later_seconds)]);
        }
        command.args(["sh", "-c", script]).arg(&self.home).arg(PLUGIN).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn call(&self, verb: &str, container: &str, args: &str, config: &Value) -> Answer {
        let variables = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", container),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/var/run/netns/none"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", args),
        ];
        let output = self.run(&[], &variables, &config.to_string());
        let text = String::from_utf8(output.stdout).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        if output.status.success() {
            return Ok(json["ips"][0]["address"].as_str().unwrap_or_default().to_owned());
        }
        let log = String::from_utf8_lossy(&output.stderr);
        let part = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Err((
            json["code"].as_u64().unwrap_or_else(|| panic!("{text}{log}")),
            format!("{}; {}", part("msg"), part("details")),
        ))
    }

    pub(crate) fn add(&self, container: &str) -> Answer {
        self.call("ADD", container, "", &self.config())
    }

    pub(crate) fn del(&self, container: &str) {
        self.call("DEL", container, "", &self.config()).unwrap();
    }

    pub(crate) fn status(&self) -> Answer {
        self.call("STATUS", "", "", &self.config())
    }

    /// Adds containers until there is no address; the addresses and the last answer.
    pub(crate) fn fill(&self) -> (Vec<String>, (u64, String)) {
        self.fill_as(&self.name)
    }

    /// An ADD that is to be tried again (code 11), because others call at once, is tried again, as a runtime does.
    pub(crate) fn fill_as(&self, prefix: &str) -> (Vec<String>, (u64, String)) {
        let (mut given, mut retries) = (Vec::new(), 0);
        loop {
            match self.add(&format!("{prefix}-{}", given.len())) {
                Ok(address) => given.push(address),
                Err((11, _)) if retries < 8 => retries += 1,
                Err(error) => return (given, error),
            }
        }
    }

    /// The node's view.
    pub(crate) fn view(&self) -> Value {
        serde_json::from_slice(&fs::read(self.data().join("cluster/view")).unwrap()).unwrap()
    }

    /// Does what is due after calls, once what they have started has ended.
    pub(crate) fn upkeep(&self) {
        self.operator(&["upkeep"]);
    }

    /// An operator's command; its output.
    pub(crate) fn operator(&self, words: &[&str]) -> String {
        let output = self.operate(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// An operator's command that fails; its error.
    pub(crate) fn operator_fails(&self, words: &[&str]) -> String {
        let output = self.operate(words);
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    fn operate(&self, words: &[&str]) -> Output {
        let path = self.home.join("net.conf");
        fs::write(&path, self.config().to_string()).unwrap();
        let (first, rest) = words.split_first().unwrap();
        let words = [&[*first, path.to_str().unwrap()], rest].concat();
        self.run(&words, &[], "")
    }
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[track_caller]
pub(crate) fn assert_distinct<'a>(addresses: impl Iterator<Item = &'a String>) {
    let all: Vec<_> = addresses.collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
}

#[track_caller]
pub(crate) fn assert_refused(answer: &Answer, code: u64, words: &[&str]) {
    let (found, text) = answer.as_ref().unwrap_err();
    assert!(*found == code && words.iter().all(|word| text.contains(word)), "{found}: {text}");
}
