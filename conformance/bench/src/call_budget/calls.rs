//! The calls that are counted: scenes, each on a node of its own, warm, pod after pod.

use super::metric::{Counts, Metric};
use super::{is_installed, profile};
use crate::scene::{self, Scene};
use crate::scene::{DEADLINE, Invocation};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use testns::trace::Program;
use testns::{Container, Node, Output, Subject, Verb, orphans};

/// Traced calls of each kind, at least and at most. What disturbs one (a link that is not up yet, an answer in two
/// parts) adds to its counts: the least counts, and on a busy machine it may take a while to come.
const TRACED: [u32; 2] = [5, 40];
/// Calls of each kind under valgrind: seeds of hash maps and addresses differ from one to the next.
const PROFILED: u32 = 2;

#[derive(Debug, Clone)]
pub struct Folder {
    pub plugins: PathBuf,
    pub cnitool: PathBuf,
}

/// The observations of a call: `bridge ADD`.
#[derive(Debug, Clone)]
pub struct CountedCall {
    /// Scene and verb.
    pub call: String,
    pub counts: Counts,
    /// The number of times each system call was made, the last time it was traced.
    pub names: BTreeMap<String, u64>,
    /// The functions it executed, as the linker calls them, if it was profiled.
    pub functions: Vec<String>,
}

pub fn scenes() -> Vec<Scene> {
    scene::counted()
}

/// Counts the calls of the scenes whose names contain `only`, again and again until `is_enough`, 25 times at most.
/// Without valgrind, or if not `profiled`, there are no instructions.
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

struct Counting<'a> {
    scene: &'a Scene,
    node: Node,
    seen: Vec<CountedCall>,
}

#[derive(Clone, Copy)]
enum Way {
    Plain,
    Traced,
    Profiled,
}

impl<'a> Counting<'a> {
    fn start(scene: &'a Scene, folder: &Folder) -> Result<Self, String> {
        let node = scene.start_node(&Subject::Multicall(folder.plugins.clone()), Some(&folder.cnitool))?;
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
            ok(&self.scene.call(Verb::Add, &self.node, &first, &Value::Null).run(&[]), "the first ADD")?;
        }
        let [least, most] = TRACED;
        for number in 1..=most {
            if number > least && is_enough(&self.seen) {
                break;
            }
            self.live(&self.pod(number), Way::Plain)?;
            self.live(&self.pod(most + number), Way::Traced)?;
        }
        if profiled && is_installed() {
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

    fn live(&mut self, pod: &Container, way: Way) -> Result<(), String> {
        let mut result = Value::Null;
        for (place, verb) in self.scene.verbs.iter().enumerate() {
            let call = self.scene.call(*verb, &self.node, pod, &result);
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
                (output, *names) = count(call, &self.node, counts)?;
                Ok(output)
            }
            Way::Profiled => {
                let (output, profile) = profile(call, &self.node)?;
                counts.note(Metric::Instructions, profile.instructions);
                functions.extend(profile.functions);
                Ok(output)
            }
        }
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

/// Makes a call and counts what it does; says how often it made each system call.
pub(crate) fn count(
    call: &Invocation,
    node: &Node,
    counts: &mut Counts,
) -> Result<(Output, BTreeMap<String, u64>), String> {
    // Of helpers that exist, in whatever state, plugins start no more than a few; then they wait for the kernel themselves.
    orphans::wait(DEADLINE)?;
    let program = Program {
        executable: &call.executable,
        arguments: &call.arguments,
        environment: &call.environment,
        stdin: &call.stdin,
        deadline: DEADLINE,
    };
    let seen = program.trace(node).ok_or_else(|| format!("it takes longer than {DEADLINE:?}"))?;
    let mut names = BTreeMap::<String, u64>::new();
    for call in &seen.calls {
        *names.entry(call.name()).or_default() += 1;
    }
    let of = |wanted: &[&str]| wanted.iter().filter_map(|name| names.get(*name)).sum::<u64>();
    let sum = |number: fn(&testns::trace::Process) -> usize| {
        seen.processes.iter().map(|process| u64::try_from(number(process)).unwrap_or(u64::MAX)).sum::<u64>()
    };
    let children = seen.processes.get(1..).unwrap_or_default();
    let forked = children.iter().filter(|child| child.execs == 0).count();
    counts.note(Metric::Syscalls, names.values().sum());
    counts.note(Metric::Sends, of(&["sendto", "sendmsg", "sendmmsg"]));
    counts.note(Metric::Receives, of(&["recvfrom", "recvmsg", "recvmmsg"]));
    counts.note(Metric::Execs, sum(|process| process.execs));
    counts.note(Metric::Forks, u64::try_from(forked).unwrap_or(u64::MAX));
    counts.note(Metric::Threads, sum(|process| process.threads));
    counts.note(Metric::Opens, of(&["open", "openat", "openat2", "creat"]));
    counts.note(Metric::Fsyncs, of(&["fsync", "fdatasync", "sync", "syncfs", "sync_file_range"]));
    if let Some(peak) = seen.processes.iter().map(|process| process.peak_kib).max() {
        counts.note(Metric::PeakKib, peak);
    }
    Ok((seen.output, names))
}
