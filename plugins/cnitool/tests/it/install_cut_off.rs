//! Installation that is killed, or whose system calls fail, at every point in turn, by means of `strace`.

use crate::install::{install, multicall};
use crate::tool::{Ended, Tool};
use std::path::Path;
use std::process::Command;

/// System calls that change the folder. Children are not traced: they change nothing, and the counts stay those of
/// cnitool.
const CALLS: &[&str] = &[
    "mkdir",
    "link",
    "linkat",
    "rename",
    "renameat",
    "unlink",
    "unlinkat",
    "rmdir",
    "copy_file_range",
    "chmod",
    "fchmod",
    "fsync",
];

/// Installs release 2 over release 1 and a foreign file, under `strace` with these options.
fn upgrade(tool: &Tool, options: &[String]) -> Ended {
    let old = std::fs::read_to_string(multicall(tool, "1")).unwrap();
    for (name, text) in
        [("bridge", old.as_str()), ("cnitool", old.as_str()), ("host-local", "theirs"), ("noop", old.as_str())]
    {
        // The file in place may be one of many names.
        std::fs::remove_file(tool.path("target").join(name)).ok();
        tool.executable(&format!("target/{name}"), text);
    }
    multicall(tool, "2");
    let mut command = tool.on_path(Path::new("strace"));
    command.arg("-o").arg(tool.path("trace")).args(options).arg(format!("-etrace={}", CALLS.join(",")));
    command.arg(env!("CARGO_BIN_EXE_cnitool")).args(["install", "--replace-foreign", "--bin-dir"]);
    command.arg(tool.path("target")).arg("--from").arg(tool.path("from/cni-plugins"));
    tool.ended(&mut command)
}

/// Every call that changes the folder: its name and its number among those of this name.
fn points(tool: &Tool) -> Vec<(String, usize)> {
    assert_eq!(upgrade(tool, &[]).code, 0);
    let trace = tool.read("trace");
    let count = |call: &str| trace.lines().filter(|line| line.starts_with(&format!("{call}("))).count();
    let points = CALLS.iter().flat_map(|call| (1..=count(call)).map(|n| (call.to_string(), n)));
    let points: Vec<_> = points.collect();
    assert!(points.len() > 20, "only {points:?}");
    points
}

/// The release of a file; the foreign file is `theirs`.
fn release(tool: &Tool, name: &str) -> String {
    if !tool.path("target").join(name).exists() {
        return "absent".to_owned();
    }
    let text = tool.read(&format!("target/{name}"));
    ["release 1", "release 2", "theirs"].into_iter().find(|mark| text.contains(mark)).unwrap_or("broken").to_owned()
}

fn has_strace(test: &str) -> bool {
    let found = Command::new("strace").arg("-V").output().is_ok();
    if !found {
        testns::skip(test, "strace is not installed");
    }
    found
}

#[test]
fn killed_anywhere_it_leaves_a_working_set() {
    testns::needs!(has_strace("killed_anywhere_it_leaves_a_working_set"));
    let tool = Tool::new();
    for (call, n) in points(&tool) {
        let ended = upgrade(&tool, &[format!("-einject={call}:signal=KILL:when={n}")]);
        assert_eq!(ended.code, 137, "{call} {n}: {}", ended.stderr);
        assert!(["release 1", "release 2"].contains(&&*release(&tool, "bridge")), "{call} {n}");
        let foreign = release(&tool, "host-local");
        assert!(
            foreign == "theirs" || foreign == "release 2" && tool.read("target/.replaced/host-local") == "theirs",
            "{call} {n}: {foreign}"
        );
        // The next one clears away what is left.
        install(&tool, &["--replace-foreign"]).ok();
        assert_eq!(tool.files("target"), [".replaced", "bridge", "cnitool", "host-local"], "{call} {n}");
    }
}

#[test]
fn a_call_that_fails_leaves_all_as_it_was() {
    testns::needs!(has_strace("a_call_that_fails_leaves_all_as_it_was"));
    let tool = Tool::new();
    let mut failures = 0;
    for (call, n) in points(&tool) {
        let ended = upgrade(&tool, &[format!("-einject={call}:error=EIO:when={n}")]);
        let set = [release(&tool, "bridge"), release(&tool, "host-local"), release(&tool, "noop")];
        // Links have copies as a fallback, what cannot be removed is reported, and only the flush of the folder comes
        // after the swap.
        let is_done = ended.code == 0 || ended.stderr.contains("cannot flush");
        let want = if is_done { ["release 2", "release 2", "absent"] } else { ["release 1", "theirs", "release 1"] };
        assert_eq!(set, want, "{call} {n}: {}", ended.stderr);
        failures += usize::from(!is_done);
        install(&tool, &["--replace-foreign"]).ok();
        assert_eq!(tool.files("target"), [".replaced", "bridge", "cnitool", "host-local"], "{call} {n}");
    }
    assert!(failures > 8, "only {failures} mattered");
}
