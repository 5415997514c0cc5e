//! Counting instructions by valgrind's callgrind.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use testns::{Node, Output};

use crate::invocation::Invocation;

/// Debian's place.
const VALGRIND: &str = "/usr/bin/valgrind";

/// Says its process ID first, as the profile's name has it: children that stay the same program write one, too.
const SAY_PID: &str = "echo $$ >\"$0\"; exec \"$@\"";

/// Returns whether instructions can be counted here.
pub(crate) fn is_installed() -> bool {
    Path::new(VALGRIND).exists()
}

/// Valgrind's counts of a call's process, all threads together.
pub(crate) struct Profile {
    /// How many instructions it executed.
    pub(crate) instructions: u64,
    /// The functions they are of, as the linker calls them; names that a stripped executable lacks are left out.
    pub(crate) functions: Vec<String>,
}

/// Makes a call under valgrind.
pub(crate) fn profile(call: &Invocation, node: &Node) -> Result<(Output, Profile), String> {
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
