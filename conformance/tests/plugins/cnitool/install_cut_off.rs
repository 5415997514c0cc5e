//! Installation that is killed, or whose system calls fail, at every point in turn, by means of `strace`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use skel::SUITE_MARK;
use tempfile::TempDir;

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

/// A script in the place of `cni-plugins`: two plugins and noop, distinguished by name, of this release.
const PLUGINS: &str = r#"#!/bin/sh
# MARK, release RELEASE
case "${0##*/} ${CNI_COMMAND-}" in
*' ') printf 'bridge\nhost-local\nnoop\n';;
'cni-plugins '*) exit 1;;
*' VERSION') echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}';;
esac
"#;

/// The folder of a test: `from` has the script, `target` what is installed.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("from")).unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn executable(&self, name: &str, text: &str) {
        testns::write_unshared(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn offer(&self, release: &str) -> String {
        let script = PLUGINS.replace("MARK", SUITE_MARK).replace("RELEASE", release);
        self.executable("from/cni-plugins", &script);
        script
    }

    fn installed(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("target")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn install(&self, program: &mut Command) -> Output {
        program.args(["install", "--replace-foreign", "--bin-dir"]).arg(self.path("target"));
        program.arg("--from").arg(self.path("from/cni-plugins")).output().unwrap()
    }

    /// Asserts that the next installation clears away what is left.
    #[track_caller]
    fn assert_installs(&self, label: &str) {
        let output = self.install(&mut Command::new(testns::cnitool()));
        assert!(output.status.success(), "{label}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(self.installed(), [".replaced", "bridge", "cnitool", "host-local"], "{label}");
    }
}

/// Installs release 2 over release 1 and a foreign file, under `strace` with these options.
fn upgrade(folder: &Folder, options: &[String]) -> Output {
    let old = folder.offer("1");
    for (name, text) in [("bridge", &*old), ("cnitool", &old), ("host-local", "theirs"), ("noop", &old)] {
        // The file in place may be one of many names.
        fs::remove_file(folder.path("target").join(name)).ok();
        folder.executable(&format!("target/{name}"), text);
    }
    folder.offer("2");
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(folder.path("trace")).args(options).arg(format!("-etrace={}", CALLS.join(",")));
    folder.install(strace.arg(testns::cnitool()))
}

/// Every call that changes the folder: its name and its number among those of this name.
fn points(folder: &Folder) -> Vec<(String, usize)> {
    assert_eq!(upgrade(folder, &[]).status.code(), Some(0));
    let trace = folder.read("trace");
    let count = |call: &str| trace.lines().filter(|line| line.starts_with(&format!("{call}("))).count();
    let points = CALLS.iter().flat_map(|call| (1..=count(call)).map(|n| (call.to_string(), n)));
    let points: Vec<_> = points.collect();
    assert!(points.len() > 20, "only {points:?}");
    points
}

/// The release of a file; the foreign file is `theirs`.
fn release(folder: &Folder, name: &str) -> String {
    if !folder.path("target").join(name).exists() {
        return "absent".to_owned();
    }
    let text = folder.read(&format!("target/{name}"));
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
    let folder = Folder::new();
    for (call, n) in points(&folder) {
        let ended = upgrade(&folder, &[format!("-einject={call}:signal=KILL:when={n}")]);
        assert!(
            ended.status.signal() == Some(9) || ended.status.code() == Some(137),
            "{call} {n}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        assert!(["release 1", "release 2"].contains(&&*release(&folder, "bridge")), "{call} {n}");
        let foreign = release(&folder, "host-local");
        assert!(
            foreign == "theirs" || foreign == "release 2" && folder.read("target/.replaced/host-local") == "theirs",
            "{call} {n}: {foreign}"
        );
        folder.assert_installs(&format!("{call} {n}"));
    }
}

#[test]
fn a_call_that_fails_leaves_all_as_it_was() {
    testns::needs!(has_strace("a_call_that_fails_leaves_all_as_it_was"));
    let folder = Folder::new();
    let mut failures = 0;
    for (call, n) in points(&folder) {
        let ended = upgrade(&folder, &[format!("-einject={call}:error=EIO:when={n}")]);
        let set = [release(&folder, "bridge"), release(&folder, "host-local"), release(&folder, "noop")];
        // Links have copies as a fallback, what cannot be removed is reported, and only the flush of the folder comes
        // after the swap.
        let said = String::from_utf8_lossy(&ended.stderr);
        let is_done = ended.status.success() || said.contains("cannot flush");
        let want = if is_done { ["release 2", "release 2", "absent"] } else { ["release 1", "theirs", "release 1"] };
        assert_eq!(set, want, "{call} {n}: {said}");
        failures += usize::from(!is_done);
        folder.assert_installs(&format!("{call} {n}"));
    }
    assert!(failures > 8, "only {failures} mattered");
}
