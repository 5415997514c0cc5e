//! The subjects that are compared: builds of ours, the reference, the floor, and what a bare exec costs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testns::{Attachment, Node};

use crate::call::{Call, Expect};
use crate::scene::{self, BRIDGE, IFNAME, Kind, MASTER, NETWORK, NOOPS, Scene, Verb};

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
pub(crate) struct Pod {
    attachment: Attachment,
    /// From 0; no two of a node are the same.
    pub(crate) number: u32,
    pub(crate) result: Value,
}

/// Copies of all executables in one folder, so that all are on one file system and no build replaces them meanwhile.
#[derive(Debug)]
pub(crate) struct Staging(TempDir);

impl Built {
    /// Beside the running executable or in the folder above, where cargo puts them. An optimised benchmark has the
    /// plugins built as users get them: a profile of its own would give their functions other names, and the linker
    /// another order.
    ///
    /// # Errors
    /// An executable is missing or cannot be built.
    pub(crate) fn find() -> Result<Self, String> {
        let here =
            std::env::current_exe().map_err(|error| format!("cannot find the benchmark's own executable: {error}"))?;
        let folders: Vec<_> = here.ancestors().skip(1).take(2).collect();
        let find = |name: &str| {
            let mut paths = folders.iter().map(|folder| folder.join(name));
            paths
                .find(|path| path.is_file())
                .ok_or_else(|| format!("no {name} near {}: start this by `cargo bench`", here.display()))
        };
        let [plugins, cnitool] = match cfg!(debug_assertions) {
            true => [testns::plugins().to_owned(), testns::cnitool().to_owned()],
            false => {
                build()?;
                [find("cni-plugins")?, find(CNITOOL)?]
            }
        };
        Ok(Self { plugins, cnitool, floor: find("bench-floor")?, empty: find("bench-empty")? })
    }
}

/// `cargo build --release` of what is measured, for the target of this program, so that all are linked with the same libc.
/// Offline: cargo has just built this program, with the same dependencies.
#[expect(clippy::disallowed_methods, reason = "cargo sets a variable when it starts this program")]
fn build() -> Result<(), String> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let target = format!("{}-unknown-linux-{libc}", std::env::consts::ARCH);
    for package in ["cni-plugins", CNITOOL] {
        let mut build = Command::new(&cargo);
        build.args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--release",
            "--package",
            package,
            "--target",
            &target,
        ]);
        match build.status() {
            Ok(status) if status.success() => (),
            Ok(status) => return Err(format!("cannot build {package}: cargo ended with {status}")),
            Err(error) => return Err(format!("cannot start cargo to build {package}: {error}")),
        }
    }
    Ok(())
}

impl Staging {
    /// # Errors
    /// There is no room for temporary files.
    pub(crate) fn new() -> Result<Self, String> {
        let folder = TempDir::with_prefix("bench-");
        folder.map(Self).map_err(|error| format!("cannot make a folder for executables: {error}"))
    }

    /// The executables that `cargo bench` has built, with the names that an installation gives it.
    ///
    /// # Errors
    /// A file cannot be copied.
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
    ///
    /// # Errors
    /// There is no plugin in it, or it cannot be copied.
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
    ///
    /// # Errors
    /// A file cannot be written.
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
    pub(crate) fn call(&self, scene: &Scene, verb: Verb, pod: &Pod, index: usize, before: &Value) -> Option<Call> {
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

fn plugin(bin_dir: &Path, name: &str, verb: Verb, pod: &Pod, stdin: String, addresses: usize) -> Call {
    let expect = match verb {
        Verb::Add => Expect::Result { addresses },
        Verb::Version => Expect::Versions,
        Verb::Check | Verb::Del => Expect::Nothing,
    };
    let call = Call::new(bin_dir.join(name), expect).stdin(stdin).variable("CNI_COMMAND", verb.name());
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
fn bare_exec(bin_dir: &Path, scene: &Scene, verb: Verb, pod: &Pod, index: usize, before: &Value) -> Call {
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

fn cnitool(bin_dir: &Path, scene: &Scene, verb: Verb, pod: &Pod) -> Call {
    let expect = if verb == Verb::Add { Expect::Object } else { Expect::Nothing };
    let call = Call::new(bin_dir.join(CNITOOL), expect)
        .argument(verb.name().to_lowercase())
        .argument(NETWORK)
        .argument(&pod.attachment.netns)
        .variable("CNI_PATH", bin_dir.display().to_string())
        .variable("CNI_IFNAME", IFNAME);
    match scene.capabilities(pod.number) {
        Some(capabilities) => call.variable("CAP_ARGS", capabilities.to_string()),
        None => call,
    }
}

fn floor(executable: &Path, waits: bool, scene: &Scene, verb: Verb, pod: &Pod) -> Call {
    let call = Call::new(executable.to_owned(), Expect::Nothing);
    let netns = format!("netns={}", pod.attachment.netns);
    if scene.kind == Kind::Plugin("loopback") {
        return call.argument("loopback").argument(verb.name().to_lowercase()).argument(netns);
    }
    let [_, _, high, low] = (pod.number + 2).to_be_bytes();
    let families = [
        (format!("10.88.{high}.{low}/16"), "gateway=10.88.0.1/16", "route=0.0.0.0/0,10.88.0.1"),
        (format!("fd00:88::{:x}/64", pod.number + 2), "gateway=fd00:88::1/64", "route=::/0,fd00:88::1"),
    ];
    let families = families.iter().take(scene.addresses);
    let (Kind::Plugin(name), action) = (scene.kind, verb.name().to_lowercase()) else { return call };
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

impl Pod {
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
