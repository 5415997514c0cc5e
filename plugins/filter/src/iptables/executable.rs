//! Running iptables' programs: found in PATH, then in the system's folders; fed by stdin, with a deadline.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use netops::OpError;
use netops::error::{Cause, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A runtime may start plugins with any PATH, or none.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// iptables itself waits for its lock for [`LOCK_WAIT`].
const DEADLINE: Duration = Duration::from_secs(30);
/// What `-w` gets, in seconds.
const LOCK_WAIT: Duration = Duration::from_secs(20);

/// Links that lead from a program's name to its file: alternatives, then the multi-call executable.
const LINKS_MAX: usize = 8;

/// Which tables a program of iptables works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The legacy variant's own.
    Legacy,
    /// Those in nf_tables.
    Nft,
}

/// A program that is there.
#[derive(Debug, Clone)]
pub(crate) struct Program(PathBuf);

/// Finds the first of these programs that is installed. Folders of PATH that are relative count for nothing: what they
/// lead to depends on where the runtime was started.
pub(crate) fn find(search_path: &str, names: &[&str]) -> Option<Program> {
    let folders = search_path.split(':').chain(FOLDERS).filter(|folder| folder.starts_with('/'));
    let folders: Vec<&str> = folders.collect();
    let paths = names.iter().flat_map(|name| folders.iter().map(move |folder| Path::new(folder).join(name)));
    paths.into_iter().find(|path| path.is_file()).map(Program)
}

/// Which variant a program is, by the names that its links lead to; `None` if no program of that name is installed, or
/// its names say nothing, as those of a script. Runs nothing: a few `readlink`, each of a microsecond.
pub(crate) fn variant(search_path: &str, name: &str) -> Option<Variant> {
    let folders = search_path.split(':').chain(FOLDERS).filter(|folder| folder.starts_with('/'));
    for folder in folders {
        let mut path = Path::new(folder).join(name);
        for _ in 0..LINKS_MAX {
            match fs::read_link(&path) {
                Ok(target) => path = path.parent().unwrap_or(&path).join(target),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // A file: what its links were called has said nothing.
                Err(_) => return None,
            }
            if let Some(variant) = path.file_name().and_then(|name| named(&name.to_string_lossy())) {
                return Some(variant);
            }
        }
    }
    None
}

fn named(file: &str) -> Option<Variant> {
    // Versions 1.4.12 to 1.6 had one file of that name, which is the legacy variant.
    if file.contains("legacy") || file == "xtables-multi" {
        return Some(Variant::Legacy);
    }
    file.contains("nft").then_some(Variant::Nft)
}

/// What `iptables-save -t TABLE` prints.
pub(crate) fn save(program: &Program, table: &str) -> Result<String> {
    run(program, &["-t", table], "")
}

/// What `iptables-save` prints: all tables that are in use.
pub(crate) fn save_all(program: &Program) -> Result<String> {
    run(program, &[], "")
}

/// Has `iptables-restore` make changes.
pub(crate) fn restore(program: &Program, lines: &str) -> Result<()> {
    run(program, &["--noflush", "-w", &LOCK_WAIT.as_secs().to_string()], lines).map(drop)
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// Its stderr, if it fails.
fn run(program: &Program, args: &[&str], input: &str) -> Result<String> {
    let object = format!("{} {}", program.0.display(), args.join(" "));
    tracing::debug!(object, input, "running");
    let failed = |e: &std::io::Error| OpError::io("run", object.clone(), e);
    let child = Command::new(&program.0)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // It may be a script that starts others: all of them end at the deadline.
        .process_group(0)
        .spawn()
        .map_err(|e| failed(&e))?;
    let group = Pid::from_raw(child.id().cast_signed());
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
        killpg(group, Signal::SIGKILL).ok();
        waiter.join().ok();
        return Err(OpError::new("run", object, Cause::Timeout(DEADLINE)));
    };
    let output = output.map_err(|e| failed(&e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("xtables lock") {
        let lock = format!("the xtables lock for {object}, which another process has held all the time");
        return Err(OpError::new("take", lock, Cause::Timeout(LOCK_WAIT)));
    }
    Err(OpError::state("run", object, format!("{}: {}", output.status, words.trim().replace('\n', "; "))))
}
