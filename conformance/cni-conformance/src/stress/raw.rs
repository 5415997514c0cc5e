//! Calls that no runtime would make: any bytes as environment and stdin, and a bound for the memory.

use crate::bench::{Answer, Bench};
use crate::finding::Stop;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;
use testns::{Attachment, Verb};

/// How much memory a plugin may have reserved, in KiB: thirty-two times the largest input. Go's runtime alone
/// reserves over one GiB.
const ADDRESS_SPACE_KIB: u32 = 4 << 20;

/// As much of stdin as is worth recording.
const RECORDED: usize = 64 << 10;

/// Sets the bound, then becomes the program.
const BOUND_FIRST: &str = "ulimit -v \"$1\" && exec \"$0\"";

/// A call as bytes.
#[derive(Debug, Clone)]
pub(crate) struct RawCall {
    pub(crate) verb: Verb,
    pub(crate) attachment: Attachment,
    pub(crate) stdin: Vec<u8>,
    /// Variables in place of those that the verb would have, or beside them; `None` leaves one out.
    pub(crate) variables: Vec<(OsString, Option<OsString>)>,
}

impl RawCall {
    pub(crate) fn new(verb: Verb, attachment: &Attachment, stdin: Vec<u8>) -> Self {
        Self { verb, attachment: attachment.clone(), stdin, variables: Vec::new() }
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    /// Makes it. The record has readable texts in place of bytes that are none, and the start of a long stdin.
    pub(crate) fn make(&self, bench: &Bench, deadline: Duration) -> Result<Answer, Stop> {
        let shown = &self.stdin[..self.stdin.len().min(RECORDED)];
        let mut recorded = bench.call_with(self.verb, String::from_utf8_lossy(shown), &self.attachment);
        for (name, value) in &self.variables {
            let name = name.to_string_lossy();
            recorded = match value {
                Some(value) => recorded.variable(&name, &value.to_string_lossy()),
                None => recorded.without(&name),
            };
        }
        let (executable, environment, _) = recorded.invocation(&bench.node);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", BOUND_FIRST]).arg(executable).arg(ADDRESS_SPACE_KIB.to_string());
        command.env_clear().envs(environment);
        for (name, value) in &self.variables {
            match value {
                // A zero byte cannot be handed over at all.
                Some(value) if !value.as_bytes().contains(&0) => command.env(name, value),
                _ => command.env_remove(name),
            };
        }
        let output = testns::try_run(command, &self.stdin, deadline);
        bench.record(&recorded, output.as_ref())
    }
}
