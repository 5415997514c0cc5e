//! `install --watch`: other installers in the same folder.

use crate::fixture::Tool;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Stdio};

/// A folder with release 1, which is not installed.
pub(crate) fn with_release() -> Tool {
    let tool = Tool::new();
    tool.shell("release 1").ok();
    tool
}

/// An installation that goes on.
struct Watching {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Watching {
    fn begin(tool: &Tool, words: &[&str]) -> Self {
        Self::start(tool, words).installed()
    }

    fn start(tool: &Tool, words: &[&str]) -> Self {
        let mut command = tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref());
        command.args(["install", "--watch", "--bin-dir"]).arg(tool.path("target"));
        command.arg("--from").arg(tool.path("from/cni-plugins")).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines }
    }

    /// Waits until all names are there.
    fn installed(mut self) -> Self {
        let first = BufReader::new(self.child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert!(first.starts_with("NAME"), "{first}");
        self
    }

    /// The next line of stderr, without the path of the test's folder.
    fn line(&mut self, tool: &Tool) -> String {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).unwrap();
        assert!(count > 0, "the installer has ended: {:?}", self.child.wait());
        tool.stable(line.trim_end())
    }

    fn end(mut self) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(143), "{status}");
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The installer has ended, unless the test failed.
        drop(self.child.kill());
    }
}

#[test]
fn what_is_removed_cut_short_or_made_unusable_is_put_back() {
    let tool = with_release();
    tool.shell("install").ok();
    let whole = tool.read("target/bridge");
    let mut watching = Watching::begin(&tool, &[]);
    let is_whole = |name: &str| {
        let mode = tool.path(name).metadata().unwrap().permissions().mode();
        assert_eq!((tool.read(name), mode & 0o777), (whole.clone(), 0o755), "{name}");
    };
    fs::remove_file(tool.path("target/bridge")).unwrap();
    assert_eq!(watching.line(&tool), "note: put back in $DIR/target: bridge");
    is_whole("target/bridge");
    for left in [0, 10, whole.len() as u64 - 1] {
        fs::File::options().write(true).open(tool.path("target/host-local")).unwrap().set_len(left).unwrap();
        assert_eq!(watching.line(&tool), "note: put back in $DIR/target: host-local", "{left} bytes");
        is_whole("target/host-local");
    }
    fs::set_permissions(tool.path("target/bridge"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(watching.line(&tool), "note: put back in $DIR/target: bridge");
    is_whole("target/bridge");
    fs::rename(tool.path("target/cnitool"), tool.path("moved")).unwrap();
    assert_eq!(watching.line(&tool), "note: put back in $DIR/target: cnitool");
    // A package's upgrade once emptied the folder (kubernetes 115629).
    // The watch may put a file back before the folder itself is removed.
    while let Err(error) = fs::remove_dir_all(tool.path("target")) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
    }
    let mut back = Vec::new();
    while ["target/bridge", "target/host-local", "target/cnitool"].iter().any(|name| !tool.path(name).exists()) {
        back.push(watching.line(&tool));
    }
    is_whole("target/bridge");
    // Whether it was put back at once or in two parts, the new folder is watched.
    while !back.last().is_some_and(|line| line.starts_with("note: put back")) {
        back.push(watching.line(&tool));
    }
    fs::remove_file(tool.path("target/host-local")).unwrap();
    while watching.line(&tool) != "note: put back in $DIR/target: host-local" {}
    is_whole("target/host-local");
    watching.end();
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn another_release_and_a_foreign_plugin_stay() {
    let tool = with_release();
    let mut watching = Watching::begin(&tool, &[]);
    assert_eq!(watching.line(&tool), "warning: $DIR/target did not exist and was made");
    let newer = tool.read("target/bridge").replace("release 1", "release 2");
    tool.executable("newer", &newer);
    fs::rename(tool.path("newer"), tool.path("target/bridge")).unwrap();
    assert_eq!(watching.line(&tool), "warning: $DIR/target/bridge is of another release: it stays");
    tool.executable("target/host-local", "theirs");
    assert_eq!(watching.line(&tool), "warning: $DIR/target/host-local was replaced, and is not ours: it stays");
    watching.end();
    assert_eq!((tool.read("target/bridge"), tool.read("target/host-local")), (newer, "theirs".to_owned()));
}

/// `cp` empties the file, and writes into it for a while.
#[test]
fn what_another_installer_is_writing_is_left_to_it() {
    let tool = with_release();
    for words in [&[][..], &["--replace-foreign"]] {
        tool.shell("install --replace-foreign").ok();
        let mut watching = Watching::begin(&tool, words);
        let mut cp = fs::File::create(tool.path("target/bridge")).unwrap();
        // The watch has looked at the empty file when it has put this one back.
        fs::remove_file(tool.path("target/host-local")).unwrap();
        assert_eq!(watching.line(&tool), "note: put back in $DIR/target: host-local");
        assert_eq!(tool.read("target/bridge"), "", "{words:?}");
        cp.write_all(b"theirs").unwrap();
        drop(cp);
        let end = if words.is_empty() {
            "warning: $DIR/target/bridge was replaced, and is not ours: it stays"
        } else {
            "note: put back in $DIR/target: bridge"
        };
        assert_eq!(watching.line(&tool), end);
        watching.end();
        let theirs = if words.is_empty() { "target/bridge" } else { "target/.replaced/bridge" };
        assert_eq!(tool.read(theirs), "theirs");
    }
}

#[test]
fn another_install_is_waited_for() {
    let tool = with_release();
    tool.shell("install").ok();
    let hold = || {
        let lock = fs::File::create(tool.path("target/.cni-install.lock")).unwrap();
        lock.lock().unwrap();
        lock
    };
    // Before its own first installation, and afterwards.
    let first = hold();
    let mut watching = Watching::start(&tool, &[]);
    let waits = |line: String| {
        let wanted = "warning: cannot install into $DIR/target: another install is under way: process ";
        assert!(line.starts_with(wanted), "{line}");
    };
    waits(watching.line(&tool));
    drop(first);
    let mut watching = watching.installed();
    let second = hold();
    fs::remove_file(tool.path("target/bridge")).unwrap();
    waits(watching.line(&tool));
    // The installer ends, and has installed another release meanwhile: that one stays.
    let newer = tool.read("target/host-local").replace("release 1", "release 2");
    tool.executable("newer", &newer);
    fs::rename(tool.path("newer"), tool.path("target/bridge")).unwrap();
    drop(second);
    while watching.line(&tool) != "warning: $DIR/target/bridge is of another release: it stays" {}
    watching.end();
    assert_eq!(tool.read("target/bridge"), newer);
}
