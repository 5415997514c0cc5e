//! A pod's sandbox: the pause process and the namespaces it holds.

use crate::manifest::Manifest;
use crate::pause::GO;
use crate::process::Process;
use anyhow::{Context, Result};
use netops::Netns;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

/// The `go` that a new pause process waits for: if this is dropped before, the process ends.
#[derive(Debug)]
pub(crate) struct Go(ChildStdin);

impl Go {
    /// Writes it: from now on the pause process outlives this one.
    pub(crate) fn say(mut self) -> Result<()> {
        self.0.write_all(GO).context("the pause process ended early")
    }
}

/// Starts a pause process, in namespaces of its own unless the pod is to be in the node's network.
pub(crate) fn start(manifest: &Manifest) -> Result<(Process, Go)> {
    let own = !manifest.host_network;
    // The executable's path may lead to another file by now, as after an update; this one cannot.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("pause").args(["pause", &manifest.key.to_string()]);
    command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = if own {
        Netns::run_in_new_with_uts(|| {
            rustix::system::sethostname(hostname(manifest).as_bytes()).context("cannot set the host name")?;
            command.spawn().context("cannot start a pause process")
        })??
    } else {
        command.spawn().context("cannot start a pause process")?
    };
    let stdin = child.stdin.take().context("cannot reach the pause process")?;
    Ok((Process::open_child(child.id())?, Go(stdin)))
}

/// `spec.hostname`, or the first 63 characters of the pod's name, as a kubelet takes them.
fn hostname(manifest: &Manifest) -> String {
    let name = manifest.hostname.as_ref().unwrap_or(&manifest.key.name);
    let short: String = name.chars().take(63).collect();
    short.trim_end_matches(['-', '.']).to_owned()
}

/// An ID as container runtimes make them: 32 random bytes in hex.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0; 32];
    let mut random = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    random.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
