//! The counts of a call of a plugin or of cnitool: system calls, netlink, processes, memory, instructions.
//!
//! Counts repeat where times do not, so they can decide a test. Start at [`count_all`]; `README.md` says what each number
//! is, [`limits`] compares them with a file.

mod calls;
pub mod limits;
mod metric;

use crate::scene::Invocation;
pub use crate::scene::Scene;
pub use calls::{CountedCall, Folder, count_all, scenes};
pub use metric::{Counts, Metric};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use testns::{Node, Output};

/// Each executable, and a word that is in the names of its functions, if it has any.
const PLUGINS: (&str, &str) = ("cni-plugins", "dispatch");
const CNITOOL: (&str, &str) = ("cnitool", "cnitool");

/// Makes the calls of all scenes under valgrind and writes the functions of each executable to a file of its name in `order`,
/// a name a line: those of a scene's calls behind those of the scenes before it, which are shorter.
pub fn write_order(folder: &Folder, order: &Path) -> Result<(), String> {
    let (cnitool, plugins): (Vec<Scene>, _) = scenes().into_iter().partition(Scene::is_chain);
    for ((file, word), scenes) in [(PLUGINS, plugins), (CNITOOL, cnitool)] {
        let mut names = Vec::new();
        let mut known = BTreeSet::new();
        for scene in scenes {
            for seen in count_all(folder, scene.name(), true, &|_| true)? {
                names.extend(seen.functions.into_iter().filter(|name| known.insert(name.clone())));
            }
        }
        if !names.iter().any(|name| name.contains(word)) {
            return Err(format!("cannot write {file}: its executable has no names: build it with -C strip=none"));
        }
        let text = names.iter().map(|name| format!("{name}\n")).collect::<String>();
        let path = order.join(file);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

pub fn table(all: &[CountedCall]) -> String {
    let header = std::iter::once("call".to_owned()).chain(Metric::ALL.iter().map(|metric| metric.name().to_owned()));
    let row = |seen: &CountedCall| {
        let counts = Metric::ALL.iter().map(|metric| seen.counts.get(*metric).map_or("-".to_owned(), grouped));
        std::iter::once(seen.call.clone()).chain(counts).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = std::iter::once(header.collect()).chain(all.iter().map(row)).collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..=Metric::ALL.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            }
            .ok();
        }
        text.push('\n');
    }
    text
}

/// How often each call made each system call, the most frequent first.
pub fn system_calls(all: &[CountedCall]) -> String {
    let mut text = String::new();
    for seen in all {
        let mut names: Vec<_> = seen.names.iter().collect();
        names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let names: Vec<_> = names.iter().map(|(name, count)| format!("{name} {count}")).collect();
        // Writing to a String cannot fail.
        writeln!(text, "{}: {}", seen.call, names.join(", ")).ok();
    }
    text
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const VALGRIND: &str = "/usr/bin/valgrind";

/// Says its process ID first, as the profile's name has it: children that stay the same program write one, too.
const SAY_PID: &str = "echo $$ >\"$0\"; exec \"$@\"";

fn is_installed() -> bool {
    Path::new(VALGRIND).exists()
}

/// Valgrind's counts of a call's process, all threads together.
struct Profile {
    instructions: u64,
    /// The functions they are of, as the linker calls them; names that a stripped executable lacks are left out.
    functions: Vec<String>,
}

fn profile(call: &Invocation, node: &Node) -> Result<(Output, Profile), String> {
    let (pid, profile) = (node.work_dir().join("valgrind-pid"), node.work_dir().join("profile"));
    let out = format!("--callgrind-out-file={}.%p", profile.display());
    let pid_file = pid.display().to_string();
    let before = ["/bin/sh", "-c", SAY_PID, &pid_file, VALGRIND, "-q", "--tool=callgrind", "--demangle=no", &out];
    let output = on_itself(call, node)?.run(&before.map(str::to_owned));
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let profile = format!("{}.{}", profile.display(), read(&pid)?.trim());
    let text = read(Path::new(&profile))?;
    let total = text.lines().rev().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")));
    let total = total.and_then(|number| number.trim().parse().ok());
    let instructions = total.ok_or_else(|| format!("{profile} has no line `totals:`"))?;
    // `fn=(12) name`, or `cfn=(12) name` for one that is called, where it comes first, `fn=(12)` from then on; `name'2`
    // is a recursion into it.
    let name = |line: &str| {
        let (_, name) = line.trim_start_matches('c').strip_prefix("fn=(")?.split_once(") ")?;
        Some(name.split('\'').next()?.to_owned()).filter(|name| !name.starts_with("0x"))
    };
    Ok((output, Profile { instructions, functions: text.lines().filter_map(name).collect() }))
}

/// A plugin knows its own IPAM plugin by `/proc/self/exe`, which is valgrind's here. So in the call's `CNI_PATH` that
/// plugin is `/proc/self/exe`, too. cnitool calls its plugins as they are; what they do is not its own.
fn on_itself(call: &Invocation, node: &Node) -> Result<Invocation, String> {
    let with_path = |path: &Path| call.clone().with_variable("CNI_PATH", &path.display().to_string());
    if !call.arguments.is_empty() {
        return Ok(with_path(&node.bin_dir()));
    }
    let folder = node.work_dir().join("itself");
    let made = fs::create_dir_all(&folder).and_then(|()| match symlink("/proc/self/exe", folder.join("host-local")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    });
    made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(with_path(&folder))
}
