//! Runs the programs of iptables: found in PATH, then in the system's folders; with input on stdin and a deadline.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use netops::error::{Cause, Result};
use netops::{OpError, child_process};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Used besides PATH: a runtime may start plugins with any PATH, or none.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
/// The deadline of a program. iptables itself waits up to [`LOCK_WAIT`] for its lock.
const DEADLINE: Duration = Duration::from_secs(30);
/// The value of option `-w`, in seconds.
const LOCK_WAIT: Duration = Duration::from_secs(20);

/// The operation in the errors of programs.
const RUN: &str = "run";
/// How the error of a program begins that cannot use its input.
const UNUSABLE_INPUT: &str = "exit status: 2: ";

/// The maximum number of links from a program's name to its file: alternatives, then the multi-call executable.
const LINKS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Works on the legacy tables.
    Legacy,
    /// Works on nf_tables.
    Nft,
}

#[derive(Debug, Clone)]
pub(crate) struct Program(PathBuf);

/// Where programs are searched, each folder once. Relative folders in PATH are ignored: they depend on the folder in which
/// the runtime was started.
fn folders(search_path: &str) -> Vec<&str> {
    let mut folders = Vec::new();
    for folder in search_path.split(':').chain(FOLDERS).filter(|folder| folder.starts_with('/')) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Finds the first of these programs that is installed.
pub(crate) fn find(search_path: &str, names: &[&str]) -> Option<Program> {
    let folders = folders(search_path);
    let paths = names.iter().flat_map(|name| folders.iter().map(move |folder| Path::new(folder).join(name)));
    paths.into_iter().find(|path| path.is_file()).map(Program)
}

/// The variant of a program, by the names that its links lead to. `None`: no program of that name is installed, or the
/// names do not show the variant, as for a script. Runs nothing, only a few `readlink` of a microsecond each.
pub(crate) fn variant(search_path: &str, name: &str) -> Option<Variant> {
    for folder in folders(search_path) {
        let mut path = Path::new(folder).join(name);
        for _ in 0..LINKS_MAX {
            match fs::read_link(&path) {
                Ok(target) => path = path.parent().unwrap_or(&path).join(target),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // The end of the links: none of their names showed the variant.
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

/// The output of `iptables-save -t TABLE`.
pub(crate) fn save(program: &Program, table: &str) -> Result<String> {
    run(program, &["-t", table], "")
}

/// The output of `iptables-save`: all tables that are in use.
pub(crate) fn save_all(program: &Program) -> Result<String> {
    run(program, &[], "")
}

/// Makes changes by `iptables-restore`.
pub(crate) fn restore(program: &Program, lines: &str) -> Result<()> {
    run(program, &["--noflush", "-w", &LOCK_WAIT.as_secs().to_string()], lines).map(drop)
}

/// What iptables says about an input that it cannot use, by its exit status (`PARAMETER_PROBLEM` of xtables.h); `None` if
/// the error is any other.
#[must_use]
pub fn unusable_input(error: &OpError) -> Option<&str> {
    let Cause::State(sentence) = &error.cause else { return None };
    let says = sentence.strip_prefix(UNUSABLE_INPUT).filter(|_| error.op == RUN)?;
    says.split("; ").next()
}

/// Runs a program to its end and returns its output.
/// Errors: the program's stderr, if it fails.
pub(crate) fn run(program: &Program, args: &[&str], input: &str) -> Result<String> {
    let object = format!("{} {}", program.0.display(), args.join(" "));
    tracing::debug!(object, input, "running");
    let failed = |e: &std::io::Error| OpError::io(RUN, object.clone(), e);
    let mut child = Command::new(&program.0)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The program may be a script that starts other processes. All of them are killed at the deadline.
        .process_group(0)
        .spawn()
        .map_err(|e| failed(&e))?;
    let output = child_process::finish(&mut child, input.as_bytes(), DEADLINE);
    let Some(output) = output.map_err(|e| failed(&e))? else {
        // The child is not reaped yet, so the pid is still the child's.
        killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).ok();
        child.wait().ok();
        return Err(OpError::new(RUN, object, Cause::Timeout(DEADLINE)));
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("xtables lock") {
        let lock = format!("the xtables lock for {object}, which another process has held all the time");
        return Err(OpError::new("take", lock, Cause::Timeout(LOCK_WAIT)));
    }
    Err(OpError::state(RUN, object, format!("{}: {}", output.status, words.trim().replace('\n', "; "))))
}
