//! Running iptables' programs: found in fixed folders, fed by stdin, with a deadline.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use netops::OpError;
use netops::error::{Cause, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A runtime may start plugins with any PATH, or none.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// iptables itself waits for its lock for [`LOCK_WAIT_SECONDS`].
const DEADLINE: Duration = Duration::from_secs(30);
/// What `-w` gets.
pub(crate) const LOCK_WAIT_SECONDS: &str = "20";

/// Finds the first of these programs that is installed.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    let paths = names.iter().flat_map(|name| FOLDERS.iter().map(move |folder| PathBuf::from(folder).join(name)));
    paths.into_iter().find(|path| path.is_file())
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// Its stderr, if it fails.
pub(crate) fn run(program: &PathBuf, args: &[&str], input: &str) -> Result<String> {
    let object = format!("{} {}", program.display(), args.join(" "));
    let failed = |e: &std::io::Error| OpError::io("run", object.clone(), e);
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    let pid = child.id();
    let input = input.to_owned();
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let mut child = child;
        // A child that does not read to the end says why on stderr.
        child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        sender.send(child.wait_with_output()).ok();
    });
    let Ok(output) = receiver.recv_timeout(DEADLINE) else {
        // The waiter has not reaped it, so the number is still the child's.
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).ok();
        waiter.join().ok();
        return Err(OpError::new("run", object, Cause::Timeout(DEADLINE)));
    };
    let output = output.map_err(|e| failed(&e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(OpError::state("run", object, format!("{}: {}", output.status, words.trim().replace('\n', "; "))))
}
