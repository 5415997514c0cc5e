//! The calls that are counted: scenes, each on a node of its own, warm, pod after pod.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;
use testns::{Container, Node, Output, Subject, Verb};

use super::invocation::Invocation;
use crate::scene::{self, MASTER, Scene};

use super::metric::{Counts, Metric};
use super::{callgrind, trace};

/// Where cnitool finds the network.
pub(crate) const NET_D: &str = "/etc/cni/net.d";
/// Traced calls of each kind, at least and at most. What disturbs one (a link that is not up yet, an answer in two
/// parts) adds to its counts: the least counts, and on a busy machine it may take a while to come.
const TRACED: [u32; 2] = [5, 40];
/// Calls of each kind under valgrind: seeds of hash maps and addresses differ from one to the next.
const PROFILED: u32 = 2;

/// The executables that are looked at.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The one that is all plugins.
    pub plugins: PathBuf,
    /// cnitool.
    pub cnitool: PathBuf,
}

/// The observations of a call: `bridge ADD`.
#[derive(Debug, Clone)]
pub struct CountedCall {
    /// Scene and verb.
    pub call: String,
    /// The counts.
    pub counts: Counts,
    /// The number of times each system call was made, the last time it was traced.
    pub names: BTreeMap<String, u64>,
    /// The functions it executed, as the linker calls them, if it was profiled.
    pub functions: Vec<String>,
}

/// All scenes, in the order of the table.
#[must_use]
pub fn scenes() -> Vec<Scene> {
    scene::counted()
}

/// Counts the calls of the scenes whose names contain `only`, again and again until `is_enough`, 25 times at most.
/// Without valgrind, or if not `profiled`, there are no instructions.
///
/// # Errors
/// The call that failed, and its error.
pub fn count_all(
    folder: &Folder,
    only: &str,
    profiled: bool,
    is_enough: &(dyn Fn(&[CountedCall]) -> bool + Sync),
) -> Result<Vec<CountedCall>, String> {
    testns::orphans::adopt()?;
    let mut all = Vec::new();
    for scene in scenes().into_iter().filter(|scene| scene.name.contains(only)) {
        // A node is its thread's.
        let done = std::thread::scope(|scope| {
            scope.spawn(|| Counting::start(&scene, folder)?.count(profiled, is_enough)).join()
        });
        match done {
            Ok(seen) => all.extend(seen?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(all)
}

/// A scene at work.
struct Counting<'a> {
    scene: &'a Scene,
    node: Node,
    seen: Vec<CountedCall>,
}

/// How a call is made.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Traced,
    Profiled,
}

impl<'a> Counting<'a> {
    fn start(scene: &'a Scene, folder: &Folder) -> Result<Self, String> {
        let io = |error: std::io::Error| error.to_string();
        let node = Node::with(&Subject::Multicall(folder.plugins.clone()));
        // Into the node's memory: how many pages a fault maps hangs on how a file system happens to hold the file.
        let copy = |from: &Path, name: &str| {
            let to = node.work_dir().join(name);
            fs::copy(from, &to).map(|_| to).map_err(io)
        };
        node.install(&Subject::Multicall(copy(&folder.plugins, "cni-plugins")?));
        symlink(copy(&folder.cnitool, "cnitool")?, node.bin_dir().join("cnitool")).map_err(io)?;
        fs::create_dir_all(NET_D).map_err(io)?;
        fs::write(Path::new(NET_D).join("pods.conflist"), scene.conflist().to_string()).map_err(io)?;
        if scene.config["master"] == MASTER {
            node.host().add_veth(MASTER, &node.remote("outside"), "outside");
        }
        let seen = |verb: &Verb| CountedCall {
            call: format!("{} {verb}", scene.name),
            counts: Counts::default(),
            names: BTreeMap::new(),
            functions: Vec::new(),
        };
        Ok(Self { scene, node, seen: scene.verbs.iter().map(seen).collect() })
    }

    fn count(mut self, profiled: bool, is_enough: &dyn Fn(&[CountedCall]) -> bool) -> Result<Vec<CountedCall>, String> {
        // The pod that stays: bridge, rules and reservations are there when others come.
        let first = self.pod(0);
        if self.scene.verbs.contains(&Verb::Add) {
            ok(&self.call(Verb::Add, &first, &Value::Null).run(&[]), "the first ADD")?;
        }
        let [least, most] = TRACED;
        for number in 1..=most {
            if number > least && is_enough(&self.seen) {
                break;
            }
            self.live(&self.pod(number), Way::Plain)?;
            self.live(&self.pod(most + number), Way::Traced)?;
        }
        if profiled && callgrind::is_installed() {
            for number in 1..=PROFILED {
                self.live(&self.pod(2 * most + number), Way::Profiled)?;
            }
        }
        Ok(self.seen)
    }

    /// IDs of one length: a longer one has more bytes to hash and to copy.
    fn pod(&self, number: u32) -> Container {
        self.node.container_named(&format!("pod-{number:02}"))
    }

    /// Takes a pod from ADD to DEL.
    fn live(&mut self, pod: &Container, way: Way) -> Result<(), String> {
        let mut result = Value::Null;
        for (place, verb) in self.scene.verbs.iter().enumerate() {
            let call = self.call(*verb, pod, &result);
            let what = self.seen[place].call.clone();
            let output = self.make(&call, place, way).map_err(|error| format!("{what}: {error}"))?;
            ok(&output, &what)?;
            if *verb == Verb::Add && !self.scene.is_chain() {
                result = serde_json::from_str(&output.stdout).map_err(|error| format!("{what}: {error}"))?;
            }
        }
        Ok(())
    }

    fn make(&mut self, call: &Invocation, place: usize, way: Way) -> Result<Output, String> {
        let CountedCall { counts, names, functions, .. } = &mut self.seen[place];
        match way {
            Way::Plain => {
                let before = faults()?;
                let output = call.run(&[]);
                counts.note(Metric::Faults, faults()?.saturating_sub(before));
                Ok(output)
            }
            Way::Traced => {
                let output;
                (output, *names) = trace::count(call, &self.node, counts)?;
                Ok(output)
            }
            Way::Profiled => {
                let (output, profile) = callgrind::profile(call, &self.node)?;
                counts.note(Metric::Instructions, profile.instructions);
                functions.extend(profile.functions);
                Ok(output)
            }
        }
    }

    fn call(&self, verb: Verb, pod: &Container, result: &Value) -> Invocation {
        if self.scene.is_chain() {
            return Invocation::of_cnitool(&self.node, &verb.to_string(), pod.namespace().path());
        }
        let call = testns::Call::new(verb, &self.scene.config, pod);
        Invocation::of_plugin(&if result.is_null() { call } else { call.prev_result(result) }, &self.node)
    }
}

fn ok(output: &Output, what: &str) -> Result<(), String> {
    match output.code() {
        0 => Ok(()),
        code => Err(format!("{what} ended with {code}: {} {}", output.stdout, output.stderr)),
    }
}

/// Page faults of all child processes that were waited for.
fn faults() -> Result<u64, String> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|errno| format!("cannot count page faults: {errno}"))?;
    Ok(usage.minor_page_faults().unsigned_abs() + usage.major_page_faults().unsigned_abs())
}
