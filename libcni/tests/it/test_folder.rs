//! A throwaway folder with plugins, a cache and a log of what ran.

use libcni::{NetworkConf, Runtime, RuntimeConf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::future::Future;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Logs verb and name, keeps its input, and prints a result on ADD.
pub(crate) const GOOD: &str = r#"
cat > "$dir/stdin.$name.$CNI_COMMAND"
echo "$CNI_COMMAND $name" >> "$dir/log"
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}'
"#;

/// Logs verb and name, and fails at every verb that is in `failing`.
pub(crate) fn failing(verbs: &str) -> String {
    format!(
        r#"
cat > "$dir/stdin.$name.$CNI_COMMAND"
echo "$CNI_COMMAND $name" >> "$dir/log"
case " {verbs} " in *" $CNI_COMMAND "*) echo '{{"code":'${{code:-11}}',"msg":"'$name' cannot","details":"more words"}}'; exit 1;; esac
[ "$CNI_COMMAND" != ADD ] || echo '{{"cniVersion":"1.0.0"}}'
"#
    )
}

pub(crate) struct Folder {
    path: PathBuf,
    /// Removes it at the end, where this process has made it.
    _dir: Option<TempDir>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().to_owned(), _dir: Some(dir) }
    }

    /// A folder that another process has made.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _dir: None }
    }

    /// A folder with these plugins, by name and script.
    pub(crate) fn with(plugins: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        for (name, script) in plugins {
            folder.plugin(name, script);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a shell script there as a plugin; `$dir` is the folder and `$name` its own name.
    pub(crate) fn plugin(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path().join(name);
        testns::write_executable(&path, format!("#!/bin/sh\ndir=${{0%/*}}; name=${{0##*/}}\n{script}\n")).unwrap();
        path
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// The calls that ran, in order, on one line.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default().trim().replace('\n', ", ")
    }

    pub(crate) fn clear_log(&self) {
        self.write("log", "");
    }

    pub(crate) fn stable(&self, text: &str) -> String {
        text.replace(self.path().to_str().unwrap(), "$DIR")
    }

    pub(crate) fn builder(&self) -> libcni::Builder {
        Runtime::builder().plugin_dirs([self.path()]).cache_dir(self.path().join("cache")).stderr(|_, _| {})
    }

    pub(crate) fn runtime(&self) -> Runtime {
        self.builder().build()
    }

    pub(crate) fn cache_files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path().join("cache/results")) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn network(version: &str, plugins: &[&str]) -> NetworkConf {
    let plugins: Vec<_> = plugins.iter().map(|name| format!(r#"{{"type":"{name}"}}"#)).collect();
    let list = format!(r#"{{"cniVersion":"{version}","name":"net","plugins":[{}]}}"#, plugins.join(","));
    NetworkConf::parse(list.as_bytes()).unwrap()
}

/// Container c1's eth0 in a namespace that is always there.
pub(crate) fn eth0() -> RuntimeConf {
    RuntimeConf::new("c1", "eth0").unwrap().netns("/proc/self/ns/net")
}

/// The attachment of this test alone: ending what an unfinished ADD left running must not end other tests' plugins.
pub(crate) fn own() -> RuntimeConf {
    eth0().netns(format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()))
}

#[track_caller]
pub(crate) fn assert_ends(pid: &str) {
    let number = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let pidfd = match rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return,
        pidfd => pidfd.unwrap(),
    };
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(30_000_u16)), Ok(1), "process {pid} is left");
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A folder with plugin `a`, which logs each call and stops in this one: opens FIFO `begun`, and ends when FIFO `end` does.
pub(crate) fn stopped_in(call: &str) -> Folder {
    let stop =
        format!(r#"[ "$CNI_COMMAND.$CNI_CONTAINERID" != "{call}" ] || {{ echo > "$dir/begun"; cat "$dir/end"; }}"#);
    let folder = Folder::with(&[("a", &format!("{GOOD}\n{stop} >&2"))]);
    for fifo in ["begun", "end"] {
        mkfifo(&folder.path().join(fifo), Mode::S_IRWXU).unwrap();
    }
    folder
}

/// A runtime that does not wait long for a lock.
pub(crate) fn hasty(folder: &Folder) -> Runtime {
    folder.builder().plugin_deadline(Duration::from_millis(300)).build()
}
