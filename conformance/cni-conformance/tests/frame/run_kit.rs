//! The kit as a process, and plugins that are a few lines of shell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of plugins, and room for configs.
pub(crate) struct Bin(tempfile::TempDir);

pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A plugin that answers VERSION with 1.0.0, and ADD with an empty result.
pub(crate) const HONEST: &str = r#"
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[],"ips":[]}' ;;
esac
"#;

impl Bin {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder below one that every testbed hides.
    pub(crate) fn hidden() -> Self {
        Self(tempfile::tempdir_in("/run").unwrap())
    }

    pub(crate) fn with(name: &str, script: &str) -> Self {
        let bin = Self::new();
        bin.put(name, script);
        bin
    }

    pub(crate) fn put(&self, name: &str, script: &str) {
        testns::write_executable(self.path().join(name), format!("#!/bin/sh\n{script}")).unwrap();
    }

    pub(crate) fn config(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

pub(crate) fn plugin(bin: &Bin, arguments: &[&str]) -> Command {
    let mut command = kit(&["plugin", "--bin-dir"]);
    command.arg(bin.path()).args(arguments);
    if !arguments.contains(&"--report") {
        command.args(["--report", "terminal"]);
    }
    command
}

pub(crate) fn kit(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cni-conformance"));
    command.args(arguments);
    command
}

pub(crate) fn say(mut command: Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// The last line of the report: how many trials passed, failed, were skipped, could not be tried.
pub(crate) fn sum(pass: usize, fail: usize, skip: usize, broken: usize) -> String {
    format!(": {pass} pass, {fail} fail, {skip} skip, {broken} not tried")
}

impl Said {
    #[track_caller]
    pub(crate) fn has(&self, status: i32, texts: &[&str]) {
        let Self { stdout, stderr, .. } = self;
        let all = format!("stdout: {stdout}\nstderr: {stderr}");
        assert_eq!(self.status, Some(status), "{all}");
        for text in texts {
            assert!(all.contains(text), "not said: {text}\n{all}");
        }
    }

    #[track_caller]
    pub(crate) fn has_not(&self, text: &str) {
        assert!(
            !self.stdout.contains(text) && !self.stderr.contains(text),
            "said: {text}\n{}{}",
            self.stdout,
            self.stderr
        );
    }
}
