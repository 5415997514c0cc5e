//! The subjects that are compared: builds of ours, the reference, the floor, and what a bare exec costs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testns::{Attachment, Node, Verb};

use crate::call::{Call, Expect};
use crate::scene::{self, BRIDGE, IFNAME, Kind, MASTER, NETWORK, NOOPS, Scene};

/// Everything that the scenes call by name.
const PLUGINS: [&str; 10] =
    ["bridge", "bandwidth", "firewall", "host-local", "loopback", "macvlan", "noop", "portmap", "ptp", "tuning"];
const CNITOOL: &str = "cnitool";

/// Where the executables that `cargo bench` has built are.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) plugins: PathBuf,
    pub(crate) cnitool: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) empty: PathBuf,
}

/// A subject of the comparison: a set of executables that the scenes call.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) who: Who,
    /// Bytes of all of its executables, each file once.
    pub(crate) bytes: u64,
    /// How many plugins that is.
    pub(crate) plugins: usize,
}

/// How a subject is called.
#[derive(Debug, Clone)]
pub(crate) enum Who {
    /// As a runtime calls plugins; chains by its `cnitool`.
    Plugins { bin_dir: PathBuf },
    /// The five executables of a chain one after the other, without a library.
    BareExecs { bin_dir: PathBuf },
    /// The least netlink; its DEL may wait until the kernel has freed everything.
    Floor { executable: PathBuf, waits: bool },
    /// Starts and ends.
    Empty { executable: PathBuf },
}

/// An attachment, and what its ADD has answered.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    attachment: Attachment,
    /// From 0; no two of a node are the same.
    pub(crate) number: u32,
    pub(crate) result: Value,
}

/// Copies of all executables in one folder, so that all are on one file system and no build replaces them meanwhile.
#[derive(Debug)]
pub(crate) struct Staging(TempDir);

impl Built {
    /// Of an unoptimised benchmark, beside its own executable; otherwise what is handed out, as `plugins/packages/build-executables` builds
    /// it, and floor and `empty` linked in the same way.
    pub(crate) fn find() -> Result<Self, String> {
        let here =
            std::env::current_exe().map_err(|error| format!("cannot find the benchmark's own executable: {error}"))?;
        if cfg!(debug_assertions) {
            let beside = |name| find(name, here.ancestors().skip(1).take(2));
            let [plugins, cnitool] = [testns::plugins(), testns::cnitool()].map(Path::to_owned);
            return Ok(Self { plugins, cnitool, floor: beside("bench-floor")?, empty: beside("bench-empty")? });
        }
        // A folder of one target has such a file, too.
        let target = here.ancestors().filter(|folder| folder.join("CACHEDIR.TAG").is_file()).last();
        let target = target.ok_or_else(|| format!("{} is in no folder of cargo's", here.display()))?;
        build(target)?;
        let [ours, yardsticks] = ["releases", "yardsticks"].map(|folder| target.join(folder).join(ARCH));
        let [ours, yardsticks] = [ours.as_path(), yardsticks.as_path()];
        Ok(Self {
            plugins: find("cni-plugins", [ours])?,
            cnitool: find(CNITOOL, [ours])?,
            floor: find("bench-floor", [yardsticks])?,
            empty: find("bench-empty", [yardsticks])?,
        })
    }
}

/// The name of this machine's processors in the folders of releases.
const ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

fn find<'a>(name: &str, folders: impl IntoIterator<Item = &'a Path>) -> Result<PathBuf, String> {
    let mut paths = folders.into_iter().map(|folder| folder.join(name));
    let found = paths.find(|path| path.is_file());
    found.ok_or_else(|| format!("there is no {name}: start this by `cargo bench`"))
}

/// Builds what is measured, if cargo has started this program.
#[expect(clippy::disallowed_methods, reason = "cargo sets a variable when it starts this program")]
fn build(target: &Path) -> Result<(), String> {
    if std::env::var_os("CARGO").is_none() {
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("release");
    for task in ["build", "floor"] {
        let built = Command::new(&script).arg(task).env("CARGO_TARGET_DIR", target).stdout(std::io::stderr()).status();
        match built {
            Ok(status) if status.success() => (),
            Ok(status) => return Err(format!("{} {task} ended with {status}", script.display())),
            Err(error) => return Err(format!("cannot start {}: {error}", script.display())),
        }
    }
    Ok(())
}

impl Staging {
    pub(crate) fn new() -> Result<Self, String> {
        let folder = TempDir::with_prefix("bench-");
        folder.map(Self).map_err(|error| format!("cannot make a folder for executables: {error}"))
    }

    /// The executables that `cargo bench` has built, with the names that an installation gives it.
    pub(crate) fn built(&self, built: &Built) -> Result<Vec<Subject>, String> {
        let ours = self.multicall("ours", &built.plugins, Some(&built.cnitool))?;
        let Who::Plugins { bin_dir } = &ours.who else {
            return Ok(vec![ours]);
        };
        let bare =
            Subject { name: "five execs".to_owned(), who: Who::BareExecs { bin_dir: bin_dir.clone() }, ..ours.clone() };
        let floor = self.copy(&built.floor, "floor")?;
        let empty = self.copy(&built.empty, "empty")?;
        let yardstick = |name: &str, executable: &Path, who| {
            size(executable).map(|bytes| Subject { name: name.to_owned(), who, bytes, plugins: 1 })
        };
        let waits = |waits| Who::Floor { executable: floor.clone(), waits };
        Ok(vec![
            yardstick("floor", &floor, waits(false))?,
            yardstick("floor, waits", &floor, waits(true))?,
            yardstick("empty", &empty, Who::Empty { executable: empty.clone() })?,
            bare,
            ours,
        ])
    }

    /// A folder of executables: a multicall `cni-plugins` (and `cnitool`), or an executable for each plugin.
    pub(crate) fn folder(&self, name: &str, folder: &Path) -> Result<Subject, String> {
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        // The reference has none that is installed; what a chain of plugins costs is asked by the same one then.
        let ours = Some(self.0.path().join("ours").join(CNITOOL)).filter(|path| path.is_file());
        let cnitool = file(CNITOOL).or(ours);
        if let Some(multicall) = file("cni-plugins") {
            return self.multicall(name, &multicall, cnitool.as_deref());
        }
        let there: Vec<_> = PLUGINS.iter().filter_map(|plugin| Some((*plugin, file(plugin)?))).collect();
        if there.is_empty() {
            return Err(format!("{} has none of cni-plugins, {}", folder.display(), PLUGINS.join(", ")));
        }
        let bin_dir = self.bin_dir(name)?;
        let mut first_of = BTreeMap::<_, PathBuf>::new(); // hard links stay hard links: a comparison of inodes sees the same
        for (plugin, path) in there {
            let about = path.metadata().map_err(|error| format!("cannot look at {}: {error}", path.display()))?;
            let to = bin_dir.join(plugin);
            match first_of.get(&(about.dev(), about.ino())) {
                Some(first) => link(first, &to)?,
                None => copy(&path, &to)?,
            }
            first_of.entry((about.dev(), about.ino())).or_insert(to);
        }
        if let Some(cnitool) = cnitool {
            copy(&cnitool, &bin_dir.join(CNITOOL))?;
        }
        let (bytes, plugins) = all_of(folder);
        Ok(Subject { name: name.to_owned(), who: Who::Plugins { bin_dir }, bytes, plugins })
    }

    fn multicall(&self, name: &str, executable: &Path, cnitool: Option<&Path>) -> Result<Subject, String> {
        let bin_dir = self.bin_dir(name)?;
        let [first, others @ ..] = PLUGINS;
        copy(executable, &bin_dir.join(first))?;
        for other in others {
            link(&bin_dir.join(first), &bin_dir.join(other))?;
        }
        if let Some(cnitool) = cnitool {
            copy(cnitool, &bin_dir.join(CNITOOL))?;
        }
        let bytes = size(executable)?;
        Ok(Subject { name: name.to_owned(), who: Who::Plugins { bin_dir }, bytes, plugins: PLUGINS.len() })
    }

    fn bin_dir(&self, name: &str) -> Result<PathBuf, String> {
        let bin_dir = self.0.path().join(name);
        fs::create_dir(&bin_dir)
            .map_err(|error| format!("cannot make a folder for {name} (is it named twice?): {error}"))?;
        Ok(bin_dir)
    }

    fn copy(&self, from: &Path, name: &str) -> Result<PathBuf, String> {
        let to = self.0.path().join(name);
        copy(from, &to).map(|()| to)
    }
}

impl Subject {
    /// Returns whether the subject can be asked this.
    pub(crate) fn takes_part(&self, scene: &Scene, verb: Verb) -> bool {
        match (&self.who, scene.kind) {
            (Who::Plugins { bin_dir }, Kind::Plugin(name)) => bin_dir.join(name).is_file(),
            (Who::Plugins { bin_dir }, Kind::Chain) => {
                scene.executables().chain([CNITOOL]).all(|name| bin_dir.join(name).is_file())
            }
            (Who::BareExecs { .. }, _) => scene.name == scene::CHAIN,
            (Who::Floor { .. }, Kind::Plugin("bridge" | "loopback" | "macvlan" | "ptp")) => {
                matches!(verb, Verb::Add | Verb::Del)
            }
            (Who::Empty { .. }, Kind::Plugin(_)) => {
                verb == Verb::Version || (verb, scene.name) == (Verb::Add, "loopback")
            }
            (Who::Floor { .. } | Who::Empty { .. }, _) => false,
        }
    }

    /// Whether its calls of the verb are a row of the report: a subject that differs in DEL alone has a row for DEL
    /// alone.
    pub(crate) fn is_reported(&self, scene: &Scene, verb: Verb) -> bool {
        let differs =
            !matches!(self.who, Who::Floor { waits: true, .. }) || (verb == Verb::Del && scene.name != "loopback");
        differs && self.takes_part(scene, verb)
    }

    /// Objects that the subject's calls find on the node: files that are not the network's own, a master.
    pub(crate) fn prepare(node: &Node, scene: &Scene) -> Result<(), String> {
        if scene.kind == Kind::Plugin("macvlan") {
            node.host().add_veth(MASTER, &node.remote("outside"), "outside");
        }
        if scene.kind != Kind::Chain {
            return Ok(());
        }
        let folder = Path::new("/etc/cni/net.d");
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join("10-pods.conflist"), scene.conflist().to_string()));
        written.map_err(|error| format!("cannot write the network's config: {error}"))
    }

    /// The `index`th call of what it does for a verb, given what the call before it has answered.
    pub(crate) fn call(&self, scene: &Scene, verb: Verb, pod: &Attached, index: usize, before: &Value) -> Option<Call> {
        match &self.who {
            Who::BareExecs { bin_dir } if index <= NOOPS => Some(bare_exec(bin_dir, scene, verb, pod, index, before)),
            Who::Plugins { bin_dir } if index == 0 => Some(match scene.kind {
                Kind::Plugin(name) => {
                    plugin(bin_dir, name, verb, pod, scene.stdin(verb, pod.number, &pod.result), scene.addresses)
                }
                Kind::Chain => cnitool(bin_dir, scene, verb, pod),
            }),
            Who::Floor { executable, waits } if index == 0 => Some(floor(executable, *waits, scene, verb, pod)),
            Who::Empty { executable } if index == 0 => Some(Call::new(executable.clone(), Expect::Nothing)),
            _ => None,
        }
    }
}

fn plugin(bin_dir: &Path, name: &str, verb: Verb, pod: &Attached, stdin: String, addresses: usize) -> Call {
    let expect = match verb {
        Verb::Add => Expect::Result { addresses },
        Verb::Version => Expect::Versions,
        _ => Expect::Nothing,
    };
    let call = Call::new(bin_dir.join(name), expect).stdin(stdin).variable("CNI_COMMAND", verb.to_string());
    if verb == Verb::Version {
        return call;
    }
    let Attachment { container_id, netns, ifname } = &pod.attachment;
    call.variable("CNI_CONTAINERID", container_id)
        .variable("CNI_NETNS", netns)
        .variable("CNI_IFNAME", if name == "loopback" { "lo" } else { ifname })
        .variable("CNI_PATH", bin_dir.display().to_string())
}

/// Of a chain; the first is the bridge, and DEL goes backward.
fn bare_exec(bin_dir: &Path, scene: &Scene, verb: Verb, pod: &Attached, index: usize, before: &Value) -> Call {
    let place = if verb == Verb::Del { NOOPS - index } else { index };
    if place == 0 {
        return plugin(bin_dir, "bridge", verb, pod, scene.stdin(verb, pod.number, &pod.result), scene.addresses);
    }
    let mut config = scene::noop_config();
    if verb == Verb::Add {
        config["prevResult"] = before.clone();
    }
    let call = plugin(bin_dir, "noop", verb, pod, config.to_string(), 0);
    Call { expect: Expect::Object, ..call }
}

fn cnitool(bin_dir: &Path, scene: &Scene, verb: Verb, pod: &Attached) -> Call {
    let expect = if verb == Verb::Add { Expect::Object } else { Expect::Nothing };
    let call = Call::new(bin_dir.join(CNITOOL), expect)
        .argument(verb.to_string().to_lowercase())
        .argument(NETWORK)
        .argument(&pod.attachment.netns)
        .variable("CNI_PATH", bin_dir.display().to_string())
        .variable("CNI_IFNAME", IFNAME);
    match scene.capabilities(pod.number) {
        Some(capabilities) => call.variable("CAP_ARGS", capabilities.to_string()),
        None => call,
    }
}

fn floor(executable: &Path, waits: bool, scene: &Scene, verb: Verb, pod: &Attached) -> Call {
    let call = Call::new(executable.to_owned(), Expect::Nothing);
    let netns = format!("netns={}", pod.attachment.netns);
    if scene.kind == Kind::Plugin("loopback") {
        return call.argument("loopback").argument(verb.to_string().to_lowercase()).argument(netns);
    }
    let [_, _, high, low] = (pod.number + 2).to_be_bytes();
    let families = [
        (format!("10.88.{high}.{low}/16"), "gateway=10.88.0.1/16", "route=0.0.0.0/0,10.88.0.1"),
        (format!("fd00:88::{:x}/64", pod.number + 2), "gateway=fd00:88::1/64", "route=::/0,fd00:88::1"),
    ];
    let families = families.iter().take(scene.addresses);
    let (Kind::Plugin(name), action) = (scene.kind, verb.to_string().to_lowercase()) else { return call };
    if name == "macvlan" && verb == Verb::Del {
        let call = call.argument(name).argument(action).argument(netns).argument(format!("ifname={IFNAME}"));
        return call.argument(returns(waits));
    }
    let chain = (scene.config["ipMasq"] == true).then(|| format!("masquerade=CNI-{:024x}", pod.number));
    let veth = format!("veth=veth{:08x}", pod.number);
    let id = &pod.attachment.container_id;
    let mut call = call.argument(name).argument(action).argument(veth);
    if verb == Verb::Add {
        call = call.argument(netns).argument(format!("ifname={IFNAME}"));
        call = call.argument(format!("bridge={BRIDGE}")).argument(format!("master={MASTER}"));
        call = call.argument(format!("alias=cni:{NETWORK}/{id}/{IFNAME}"));
        for (address, gateway, route) in families {
            call = call.argument(format!("address={address}")).argument(*gateway).argument(*route);
        }
        let Some(chain) = chain else { return call };
        // As long as ours are.
        let note = format!("note={:016x}-{:016x}, net: {NETWORK}, if: {IFNAME}, id: {id}", 0, pod.number);
        return call.argument(chain).argument(format!("comment=name: \"{NETWORK}\" id: \"{id}\"")).argument(note);
    }
    if let Some(chain) = chain {
        call = families.fold(call.argument(chain), |call, (address, ..)| call.argument(format!("address={address}")));
    }
    call.argument(returns(waits))
}

/// When the floor's DEL returns.
fn returns(waits: bool) -> &'static str {
    if waits { "return=freed" } else { "return=announced" }
}

impl Attached {
    /// Makes a namespace for it.
    pub(crate) fn create(node: &Node, number: u32) -> Self {
        let attachment = node.container_named(&format!("pod{number}")).attachment_as(IFNAME);
        Self { attachment, number, result: Value::Null }
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to);
    copied.map(drop).map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn link(from: &Path, to: &Path) -> Result<(), String> {
    fs::hard_link(from, to).map_err(|error| format!("cannot link {}: {error}", to.display()))
}

fn size(path: &Path) -> Result<u64, String> {
    path.metadata().map(|about| about.len()).map_err(|error| format!("cannot look at {}: {error}", path.display()))
}

/// Bytes and number of all executables of a folder but `cnitool`; a file with several names is one file.
fn all_of(folder: &Path) -> (u64, usize) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let plugins = entries.filter(|entry| entry.file_name() != CNITOOL);
    let files: Vec<_> =
        plugins.filter_map(|entry| entry.path().metadata().ok().filter(|about| about.is_file())).collect();
    let sizes: BTreeMap<_, _> = files.iter().map(|about| ((about.dev(), about.ino()), about.len())).collect();
    (sizes.values().sum(), files.len())
}
