//! The times of a call, of several folders of plugins side by side: back to back, as a runtime fills and drains a node.
//!
//! Each subject has a node of its own for each round, in turn, so that a slow minute of the machine slows all alike. The calls are
//! made in a PID namespace whose PID 1 waits for orphans, as an init does: it takes the helpers that DEL leaves, and knows
//! their CPU time.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::Value;
use testns::{Container, Node, Subject, Verb};

use crate::scene::DEADLINE;
use crate::scene::{self, Scene};

/// Nodes that each subject has for a row, one after the other.
const ROUNDS: u32 = 4;
/// Ports of each other bridge.
const PORTS: usize = 250;
/// The number of the first pod on another bridge.
const FIRST_OTHER: usize = 20_000;
/// The unit of the kernel's CPU times: `USER_HZ`.
const TICKS_PER_SECOND: u64 = 100;
/// Where the programs that the reference needs are.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The times of CNI calls of several folders of plugins, side by side
#[derive(Debug, Parser)]
#[command(name = "side-by-side")]
pub struct Options {
    /// Only this row, such as bridge-masq; may be repeated
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Pods of each row
    #[arg(long, value_name = "N", default_value_t = 100)]
    pods: u32,
    /// So many callers at a time, 1, 8 and 64 otherwise; may be repeated
    #[arg(long, value_name = "N")]
    at_once: Vec<NonZeroUsize>,
    /// Has this on the node beforehand: pods=N, others=N (pods on bridges of their own), links=N, or rules=N of other software;
    /// may be repeated: each subject is then timed beside each, in turn
    #[arg(long, value_name = "WHAT=N", value_parser = beside)]
    beside: Vec<(Beside, usize)>,
    /// Fails if a median is more than so many times that of the first line
    #[arg(long, value_name = "RATIO")]
    at_most: Option<f64>,
    /// Folders with `cni-plugins`, or with an executable for each plugin; chains are called by the first `cnitool` in one of them
    #[arg(required = true, value_name = "NAME=DIR", value_parser = named)]
    subjects: Vec<(String, PathBuf)>,
    /// Given to this program in the PID namespace
    #[arg(long, hide = true)]
    inside: bool,
}

/// Objects that are on the node before the calls that are timed.
#[derive(Debug, Clone, Copy)]
enum Beside {
    Pods,
    Others,
    Links,
    Rules,
}

/// A subject, beside what is on the node.
struct Line<'a> {
    name: &'a str,
    folder: &'a Path,
    beside: Option<(Beside, usize)>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((what, count)) = self.beside else { return f.write_str(self.name) };
        write!(f, "{}, {}={count}", self.name, format!("{what:?}").to_lowercase())
    }
}

/// The cost of one verb of one subject.
#[derive(Debug, Default)]
struct Cost {
    /// Of each call, until a runtime knows the answer.
    walls: Vec<Duration>,
    /// From the first call to the last answer.
    busy: Duration,
    /// User and system time of all calls, with their helpers, until nothing of them is left.
    cpu: Duration,
}

fn beside(text: &str) -> Result<(Beside, usize), String> {
    let (what, count) = text.split_once('=').ok_or("WHAT=N is wanted")?;
    let what = match what {
        "pods" => Beside::Pods,
        "others" => Beside::Others,
        "links" => Beside::Links,
        "rules" => Beside::Rules,
        _ => return Err("WHAT is pods, others, links or rules".to_owned()),
    };
    count.parse().map(|count| (what, count)).map_err(|error| format!("{count:?}: {error}"))
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("NAME=DIR is wanted")?;
    let folder = fs::canonicalize(folder).map_err(|error| format!("cannot find {folder}: {error}"))?;
    Ok((name.to_owned(), folder))
}

impl Options {
    /// Prints a table for each row.
    /// Errors: the call that failed, or why there is none.
    pub fn run(&self) -> Result<(), String> {
        if !self.inside {
            return run_inside();
        }
        let scenes: Vec<_> = scene::all().into_iter().filter(|scene| self.is_wanted(scene)).collect();
        if let Some(row) = self.only.iter().find(|row| !scenes.iter().any(|scene| scene.name == row.as_str())) {
            let rows: Vec<_> = scene::all().iter().map(|scene| scene.name).collect();
            return Err(format!("there is no row {row:?}: there are {}", rows.join(", ")));
        }
        let at_once: Vec<_> = match self.at_once.as_slice() {
            [] => vec![1, 8, 64],
            given => given.iter().map(|count| count.get()).collect(),
        };
        let mut highest: f64 = 0.0;
        for (scene, at_once) in scenes.iter().flat_map(|scene| at_once.iter().map(move |count| (scene, *count))) {
            let (table, ratio) = self.measure(scene, at_once)?;
            highest = highest.max(ratio);
            write!(std::io::stdout(), "{table}").map_err(|error| format!("cannot print: {error}"))?;
        }
        match self.at_most {
            Some(bound) if highest > bound => Err(format!("a median is {highest:.2} times that of its first line")),
            _ => Ok(()),
        }
    }

    /// The lines of a table: each subject, beside what is on the node.
    fn lines(&self) -> Vec<Line<'_>> {
        let all: Vec<_> = match self.beside.as_slice() {
            [] => vec![None],
            given => given.iter().copied().map(Some).collect(),
        };
        let beside_each = |(name, folder)| all.iter().map(move |beside| Line { name, folder, beside: *beside });
        self.subjects.iter().map(|(name, folder)| (name.as_str(), folder.as_path())).flat_map(beside_each).collect()
    }

    fn is_wanted(&self, scene: &Scene) -> bool {
        self.only.is_empty() || self.only.iter().any(|row| row == scene.name)
    }

    fn measure(&self, scene: &Scene, at_once: usize) -> Result<(String, f64), String> {
        let lines = self.lines();
        let mut costs: Vec<Vec<Cost>> = Vec::new();
        costs.resize_with(lines.len(), || scene.verbs.iter().map(|_| Cost::default()).collect());
        for round in 0..ROUNDS {
            let mut order: Vec<_> = (0..lines.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for place in order {
                let line = &lines[place];
                // A node is its thread's, and callers are threads of that thread.
                let done = thread::scope(|scope| scope.spawn(|| self.round(scene, line, at_once)).join());
                let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let done = done.map_err(|error| format!("{line}, {}: {error}", scene.name))?;
                for (all, more) in costs[place].iter_mut().zip(done) {
                    all.walls.extend(more.walls);
                    all.busy += more.busy;
                    all.cpu += more.cpu;
                }
            }
        }
        Ok(table(scene, at_once, &lines, &mut costs))
    }

    /// Takes pods of a subject through all verbs on a new node.
    fn round(&self, scene: &Scene, line: &Line<'_>, at_once: usize) -> Result<Vec<Cost>, String> {
        let folder = line.folder;
        let multicall = folder.join("cni-plugins");
        let plugins =
            if multicall.is_file() { Subject::Multicall(multicall) } else { Subject::Folder(folder.to_owned()) };
        let cnitool = self.subjects.iter().map(|(_, folder)| folder.join("cnitool")).find(|path| path.is_file());
        let node = scene.start_node(&plugins, cnitool.as_deref())?;
        let count = self.pods.div_ceil(ROUNDS) as usize;
        // With the first pod the bridge comes, and an index of the addresses.
        let mut before = 1;
        match line.beside {
            Some((Beside::Pods, count)) => before += count,
            Some((Beside::Others, count)) => self.add_others(scene, &node, count)?,
            Some((Beside::Links, count)) => node.host().crowd_links(count),
            Some((Beside::Rules, count)) => node.host().crowd_nft(count),
            None => {}
        }
        let pods = |from: usize, count| (from..from + count).map(|pod| node.container_named(&format!("pod-{pod:05}")));
        let stay: Vec<_> = pods(0, before).map(|pod| (pod, Value::Null)).collect();
        if scene.verbs.contains(&Verb::Add) {
            all(scene, Verb::Add, &node, &stay, 1)?;
        }
        let mut pods: Vec<_> = pods(before, count).map(|pod| (pod, Value::Null)).collect();
        let mut costs = Vec::new();
        for verb in scene.verbs {
            let (spent, start) = (cpu()?, Instant::now());
            let answers = all(scene, *verb, &node, &pods, at_once)?;
            let busy = start.elapsed();
            wait_for_helpers();
            let cpu = cpu()?.saturating_sub(spent);
            costs.push(Cost { busy, cpu, walls: answers.iter().map(|(wall, _)| *wall).collect() });
            if *verb == Verb::Add && !scene.is_chain {
                pods.iter_mut().zip(answers).for_each(|(pod, (_, result))| pod.1 = result);
            }
        }
        Ok(costs)
    }

    /// Adds pods on other bridges: what they cost is not that the kernel sends each broadcast to all ports of one.
    fn add_others(&self, scene: &Scene, node: &Node, count: usize) -> Result<(), String> {
        for (number, from) in (0..count).step_by(PORTS).enumerate() {
            let names = (from..count.min(from + PORTS)).map(|pod| format!("pod-{:05}", FIRST_OTHER + pod));
            let pods: Vec<_> = names.map(|name| (node.container_named(&name), Value::Null)).collect();
            all(&scene.on_bridge(number), Verb::Add, node, &pods, 1)?;
        }
        Ok(())
    }
}

/// A table of all lines, and the highest median in proportion to that of the first line.
fn table(scene: &Scene, at_once: usize, lines: &[Line<'_>], costs: &mut [Vec<Cost>]) -> (String, f64) {
    let mut text = format!("{}, {at_once} at a time", scene.name);
    let mut highest: f64 = 0.0;
    let columns = ["p50 ms", "p99 ms", "max ms", "per s", "CPU ms", "p50", "CPU"];
    write!(text, "\n{:32}", "").ok(); // writing to a String cannot fail
    columns.iter().for_each(|column| write!(text, "{column:>10}").unwrap_or_default());
    for (place, verb) in scene.verbs.iter().enumerate() {
        let mut first = None;
        for (line, costs) in lines.iter().zip(costs.iter_mut()) {
            let Cost { walls, busy, cpu } = &mut costs[place];
            walls.sort();
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let at = |percent: usize| ms(walls[(walls.len() - 1) * percent / 100]);
            let (p50, cpu) = (at(50), ms(*cpu) / walls.len() as f64);
            let (first_p50, first_cpu) = *first.get_or_insert((p50, cpu));
            let rate = walls.len() as f64 / busy.as_secs_f64();
            highest = highest.max(p50 / first_p50);
            write!(text, "\n{:8}{:24}", verb.to_string(), line.to_string()).ok();
            write!(text, "{p50:10.2}{:10.2}{:10.2}{rate:10.1}{cpu:10.2}", at(99), at(100)).ok();
            write!(text, "{:9.2}x{:9.2}x", p50 / first_p50, cpu / first_cpu).ok();
        }
    }
    (text + "\n\n", highest)
}

/// Makes a verb's call for each pod, so many at a time; returns times and results in the pods' order.
fn all(
    scene: &Scene,
    verb: Verb,
    node: &Node,
    pods: &[(Container, Value)],
    at_once: usize,
) -> Result<Vec<(Duration, Value)>, String> {
    let calls: Vec<_> = pods.iter().map(|(pod, result)| scene.call(verb, node, pod, result)).collect();
    let calls: Vec<_> = calls.into_iter().map(|call| call.with_variable("PATH", SEARCH_PATH)).collect();
    let (next, outputs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..at_once.min(calls.len()) {
            scope.spawn(|| {
                let take = || {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    Some((place, calls.get(place)?))
                };
                while let Some((place, call)) = take() {
                    let output = call.run(&[]);
                    outputs.lock().unwrap_or_else(|broken| broken.into_inner()).push((place, output));
                }
            });
        }
    });
    let mut outputs = outputs.into_inner().unwrap_or_else(|broken| broken.into_inner());
    outputs.sort_by_key(|(place, _)| *place);
    let answer = |output: testns::Output| match output.code() {
        0 => Ok((output.elapsed, serde_json::from_str(&output.stdout).unwrap_or_default())),
        code => Err(format!("{verb} ended with {code}: {}{}", output.stdout.trim(), output.stderr.trim())),
    };
    outputs.into_iter().map(|(_, output)| answer(output)).collect()
}

/// Starts this program again, with the same arguments, in a PID namespace.
fn run_inside() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start in a PID namespace: {error}");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    // A shell that waits for a command also takes other children that have ended.
    unshare.args(["sh", "-c", r#""$0" --inside "$@"; exit $?"#]).arg(std::env::current_exe().map_err(failed)?);
    match unshare.args(std::env::args_os().skip(1)).status().map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(format!("stopped with {status}")),
    }
}

/// Waits until PID 1 has no child but this process.
#[expect(clippy::disallowed_methods, reason = "that PID 1 has taken its children is no event for others")]
fn wait_for_helpers() {
    let start = Instant::now();
    let are_left = || {
        let children = fs::read_to_string("/proc/1/task/1/children").unwrap_or_default();
        children.split_whitespace().count() > 1
    };
    while are_left() && start.elapsed() < DEADLINE {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the CPU time of all calls that have ended, and of the helpers that PID 1 has taken.
fn cpu() -> Result<Duration, String> {
    let own = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|errno| format!("cannot read CPU times: {errno}"))?;
    let own = own.user_time().num_microseconds() + own.system_time().num_microseconds();
    let stat =
        fs::read_to_string(Path::new("/proc/1/stat")).map_err(|error| format!("cannot read PID 1's: {error}"))?;
    // proc(5): behind the name, `cutime` and `cstime` are the 14th and 15th words.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = words.skip(13).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Ok(Duration::from_micros(own.unsigned_abs() + ticks * 1_000_000 / TICKS_PER_SECOND))
}
