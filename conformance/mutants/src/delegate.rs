//! A call of another plugin by a mutant itself.

use crate::MutantCall;
use skel::cni_spec::Command;
use std::io::Write;
use std::path::Path;
use std::process::{self, Output, Stdio};

/// Runs an executable with the environment and the stdin of a call.
pub(crate) fn run(executable: &Path, call: &MutantCall, verb: Command) -> Output {
    let mut command = process::Command::new(executable);
    command.env("CNI_COMMAND", verb.as_str()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", executable.display()));
    let mut stdin = child.stdin.take().unwrap_or_else(|| panic!("no stdin"));
    stdin.write_all(call.stdin()).unwrap_or_else(|error| panic!("{error}"));
    drop(stdin);
    child.wait_with_output().unwrap_or_else(|error| panic!("{error}"))
}
