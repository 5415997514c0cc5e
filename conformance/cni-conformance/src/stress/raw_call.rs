//! Calls that no runtime would make: any bytes as environment and stdin, and a bound for the memory.

use crate::rules::prelude::*;
use crate::testbed::Answer;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

/// The most memory that a plugin may have reserved, in bytes: thirty-two times the largest input. Go's runtime alone
/// reserves over one GiB.
const ADDRESS_SPACE: rlim_t = 4 << 30;

/// As much of stdin as is worth recording.
const RECORDED: usize = 64 << 10;

/// Bounds the memory of what this process, which is the trial's own, starts from now on; and its own, which is far from it.
pub(super) fn bound_memory() {
    let (_, hard) =
        getrlimit(Resource::RLIMIT_AS).unwrap_or_else(|errno| panic!("cannot read the bound of memory: {errno}"));
    let bound = ADDRESS_SPACE.min(hard);
    let bounded = setrlimit(Resource::RLIMIT_AS, bound, bound);
    bounded.unwrap_or_else(|errno| panic!("cannot bound the memory of plugins: {errno}"));
}

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
    pub(crate) fn make(&self, testbed: &Testbed, deadline: Duration) -> Result<Answer, Stop> {
        let shown = &self.stdin[..self.stdin.len().min(RECORDED)];
        let mut recorded = testbed.call_with(self.verb, String::from_utf8_lossy(shown), &self.attachment);
        for (name, value) in &self.variables {
            let name = name.to_string_lossy();
            recorded = match value {
                Some(value) => recorded.variable(&name, &value.to_string_lossy()),
                None => recorded.without(&name),
            };
        }
        let (executable, environment, _) = recorded.invocation(&testbed.node);
        let mut command = Command::new(executable);
        command.env_clear().envs(environment);
        for (name, value) in &self.variables {
            match value {
                // A zero byte cannot be handed over at all.
                Some(value) if !value.as_bytes().contains(&0) => command.env(name, value),
                _ => command.env_remove(name),
            };
        }
        let output = testns::try_run(command, &self.stdin, deadline);
        testbed.record(&recorded, output.as_ref())
    }
}
