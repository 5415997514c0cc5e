//! All namespaces of a process, opened once and entered together: for a program that has to see what the process sees.

use super::on_thread;
use crate::error::{Errno, OpError};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use std::fs::File;
use std::path::Path;

/// The names in `/proc/PID/ns` and their flags, in the order in which they are entered. The mount namespace is last,
/// because the others do not depend on it. The user namespace must be the caller's own; otherwise the caller may not
/// enter the others.
const KINDS: [(&str, CloneFlags); 5] = [
    ("net", CloneFlags::CLONE_NEWNET),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mnt", CloneFlags::CLONE_NEWNS),
];

/// The namespaces of a process that differ from the caller's.
#[derive(Debug)]
pub struct Namespaces {
    pid: u32,
    files: Vec<(&'static str, CloneFlags, File)>,
}

/// A bind mount of a file over another one.
#[derive(Debug, Clone, Copy)]
pub struct Bind<'a> {
    /// The file that becomes visible.
    pub source: &'a Path,
    /// The file that it covers, which must exist.
    pub target: &'a Path,
}

impl Namespaces {
    /// Opens network, UTS, IPC, PID and mount namespace of a process.
    ///
    /// When the process ends, another one may get its pid. So the caller must check *afterwards* that the process is
    /// still the intended one. If it is, the opened namespaces are its own.
    ///
    /// # Errors
    /// `ENOENT`: the process does not exist; `EACCES`: it belongs to another user.
    pub fn of_process(pid: u32) -> Result<Self, OpError> {
        let open = |(name, flag)| -> Result<_, OpError> {
            let path = format!("/proc/{pid}/ns/{name}");
            let file = File::open(&path).map_err(|error| OpError::io("open", format!("namespace {path}"), &error))?;
            let own = File::open(format!("/proc/thread-self/ns/{name}"))
                .map_err(|error| OpError::io("open", format!("the own {name} namespace"), &error))?;
            let identity = |file: &File| fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
            let is_own = identity(&file).and_then(|theirs| Ok(theirs == identity(&own)?));
            let is_own = is_own.map_err(|errno| OpError::errno("examine", format!("namespace {path}"), errno))?;
            Ok((!is_own).then_some((name, flag, file)))
        };
        let files = KINDS.into_iter().filter_map(|kind| open(kind).transpose()).collect::<Result<_, _>>()?;
        Ok(Self { pid, files })
    }

    /// Runs `work` on a thread that enters the namespaces and ends afterwards. Children that it starts are in them,
    /// too, and only the children are in the PID namespace.
    ///
    /// With `binds`, the thread gets a copy of the process's mount namespace, as each container of a pod has one. The
    /// files are mounted in this copy only.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` over a namespace; a mount's errno.
    #[expect(clippy::disallowed_methods, reason = "part of the one place that enters namespaces")]
    pub fn run<T: Send>(&self, binds: &[Bind<'_>], work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        let mut failed = String::new();
        let ran = on_thread(|| {
            let step = |what: String, outcome: Result<(), Errno>| outcome.inspect_err(|_| failed = what);
            let mut step = step;
            // Threads share root and working directory, and a thread that shares them cannot enter a mount namespace.
            step("unshare CLONE_FS".to_owned(), unshare(CloneFlags::CLONE_FS))?;
            for (name, flag, file) in &self.files {
                step(format!("setns {name}"), setns(file, *flag))?;
            }
            if !binds.is_empty() {
                step("unshare CLONE_NEWNS".to_owned(), unshare(CloneFlags::CLONE_NEWNS))?;
                // Mounts made here must not propagate to the process's mount namespace.
                let private = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>);
                step("mount MS_REC|MS_SLAVE /".to_owned(), private)?;
            }
            for Bind { source, target } in binds {
                let what = format!("mount MS_BIND {} on {}", source.display(), target.display());
                step(what, mount(Some(*source), *target, None::<&str>, MsFlags::MS_BIND, None::<&str>))?;
            }
            Ok(work())
        });
        let object = || format!("the namespaces of process {}", self.pid);
        ran.map_err(|errno| OpError::errno("enter", object(), errno).request(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    /// A process with its own namespaces. It lives as long as its stdin is open.
    fn process() -> Child {
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--ipc", "--mount", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The process answers when it is in its namespaces.
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        child
    }

    fn links(of: &str) -> Vec<String> {
        let link = |name| std::fs::read_link(format!("/proc/{of}/ns/{name}")).unwrap().display().to_string();
        ["net", "uts", "ipc", "mnt", "pid"].map(link).to_vec()
    }

    #[test]
    fn work_runs_in_all_namespaces_of_the_process_and_the_caller_stays_in_its_own() {
        let before = links("thread-self");
        let mut child = process();
        let namespaces = Namespaces::of_process(child.id()).unwrap();
        let inside = namespaces.run(&[], || {
            let output = Command::new("readlink")
                .args(["net", "uts", "ipc", "mnt", "pid"].map(|name| format!("/proc/self/ns/{name}")))
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        });
        assert_eq!(inside.unwrap().lines().collect::<Vec<_>>(), links(&child.id().to_string()));
        assert_eq!(links("thread-self"), before);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_bind_mount_is_visible_to_the_work_only() {
        let node = testns::Node::new();
        let (source, target) = (node.work_dir().join("source"), node.work_dir().join("target"));
        std::fs::write(&source, "bound").unwrap();
        std::fs::write(&target, "the node's").unwrap();
        let thread = u32::try_from(nix::unistd::gettid().as_raw()).unwrap();
        let own = Namespaces::of_process(thread).unwrap();
        let bind = Bind { source: &source, target: &target };
        let seen = own.run(&[bind], || std::fs::read_to_string(&target).unwrap()).unwrap();
        assert_eq!((seen.as_str(), std::fs::read_to_string(&target).unwrap().as_str()), ("bound", "the node's"));
        let absent = Bind { target: &node.work_dir().join("absent"), ..bind };
        let error = own.run(&[absent], || ()).unwrap_err();
        assert!(error.details().contains("MS_BIND") && error.details().contains("ENOENT"), "{}", error.details());
    }
}
