//! A throwaway folder with plugins, configurations and a cache, and `cnitool` pointed at it.

use skel::SUITE_MARK;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A namespace that is always there.
pub(crate) const NETNS: &str = "/proc/self/ns/net";

/// Logs its call, and prints a result on ADD.
pub(crate) const GOOD: &str = r#"
cat > "$dir/stdin"
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS [$CNI_ARGS]" >> "$dir/../log"
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}';;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}';;
esac
"#;

pub(crate) struct Tool {
    dir: TempDir,
}

pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }
}

impl Tool {
    /// Plugins in `bin`, and a network `net` of the plugin `good`.
    pub(crate) fn new() -> Self {
        // Of one length on every machine: tables are padded.
        let tool = Self { dir: tempfile::tempdir_in("/tmp").unwrap() };
        tool.plugin("good", GOOD);
        tool.write(
            "net.d/net.conflist",
            r#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilities":{"mac":true}}]}"#,
        );
        tool
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        testns::write_unshared(&path, text).unwrap();
        path
    }

    pub(crate) fn executable(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A shell script as a plugin; `$dir` is its folder.
    pub(crate) fn plugin(&self, name: &str, script: &str) {
        self.executable(&format!("bin/{name}"), &format!("#!/bin/sh\ndir=${{0%/*}}\n{script}\n"));
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// What the plugins logged since the last look.
    pub(crate) fn log(&self) -> String {
        let log = self.read("log");
        self.write("log", "");
        self.stable(&log)
    }

    pub(crate) fn files(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(dir)) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The text without what differs from run to run.
    pub(crate) fn stable(&self, text: &str) -> String {
        text.replace(self.dir.path().to_str().unwrap(), "$DIR")
    }

    /// `cnitool`, pointed at this folder by variables, without other CNI variables.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.on_path(Path::new(env!("CARGO_BIN_EXE_cnitool")));
        command.arg("--cache-dir").arg(self.path("cache"));
        command
    }

    /// Another program with the same variables.
    pub(crate) fn on_path(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for name in ["CNI_IFNAME", "CNI_ARGS", "CAP_ARGS", "CNI_COMMAND"] {
            command.env_remove(name);
        }
        command.env("CNI_PATH", self.path("bin")).env("NETCONFPATH", self.path("net.d")).stdin(Stdio::null());
        command
    }

    /// Executes commands after `prelude.sh` in this folder, with mounts of their own.
    pub(crate) fn shell(&self, commands: &str) -> Ended {
        let mut shell = self.on_path("unshare".as_ref());
        shell.args(["--mount", "sh", "-c", &format!("{}{commands}", include_str!("transcripts/prelude.sh"))]);
        shell.env("D", self.dir.path()).env("CNITOOL", env!("CARGO_BIN_EXE_cnitool")).env("SUITE_MARK", SUITE_MARK);
        self.ended(shell.current_dir(self.dir.path()))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        self.ended(self.command().args(words))
    }

    pub(crate) fn ended(&self, command: &mut Command) -> Ended {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| self.stable(&String::from_utf8_lossy(bytes));
        // A signal counts as a shell counts it.
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status).unwrap_or(0);
        let code = output.status.code().unwrap_or(128 + signal);
        Ended { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}
