//! A PID namespace for several programs one after the other, as the one of a node's runtime.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const UNSHARE: &str = "/usr/bin/unshare";

/// A PID namespace that ends with the value.
#[derive(Debug)]
pub struct PidNamespace(Child);

impl PidNamespace {
    /// Makes one; `None`: util-linux is missing, as on the emulated machine of the full kernel, which runs nothing else meanwhile.
    pub fn new() -> Option<Self> {
        let mut unshare = Command::new(UNSHARE);
        // A mount namespace of its own, so that nothing is found by the mounts of its first process. The kernel itself waits for children of a
        // process that ignores their end.
        unshare.args([
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            "trap '' CHLD; echo; exec sleep 10000",
        ]);
        let mut child = Path::new(UNSHARE).exists().then(|| unshare.stdout(Stdio::piped()).spawn().ok())??;
        child.stdout.as_mut()?.read_exact(&mut [0]).ok()?;
        Some(Self(child))
    }

    /// The words before those of a program that is to run there, with its own `/proc` in a mount namespace of its own.
    pub fn words(&self) -> [String; 4] {
        let namespace = format!("--pid=/proc/{}/ns/pid_for_children", self.0.id());
        ["/usr/bin/nsenter".to_owned(), namespace, UNSHARE.to_owned(), "--mount-proc".to_owned()]
    }

    pub fn command(&self) -> Command {
        let [nsenter, words @ ..] = self.words();
        let mut command = Command::new(nsenter);
        command.args(words);
        command
    }
}

impl Drop for PidNamespace {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
