//! The reply of a call. Only this module writes to stdout.

use cni_spec::{CniError, SpecVersion};
use nix::errno::Errno;
use std::io;
use std::process::ExitCode;

/// stdout and exit status of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The content of stdout.
    pub stdout: Vec<u8>,
    /// Exit status; 0 is success.
    pub exit: u8,
}

impl Reply {
    /// Success, with the text to print.
    #[must_use]
    pub fn success(stdout: impl Into<Vec<u8>>) -> Self {
        Self { stdout: stdout.into(), exit: 0 }
    }

    /// Failure: the error object, in the config's version as far as that is known.
    #[must_use]
    pub fn failure(error: &CniError, version: SpecVersion) -> Self {
        Self { stdout: error.to_json(version).into_bytes(), exit: 1 }
    }

    /// Writes stdout; `unsent` handles a result that could not be written. A runtime that closed its end gets no text
    /// and sees the exit status.
    #[must_use]
    pub fn send_or(self, unsent: impl FnOnce()) -> ExitCode {
        match write_all(&self.stdout) {
            Ok(()) => ExitCode::from(self.exit),
            Err(error) => {
                tracing::error!(%error, "cannot write the reply to stdout");
                if self.exit == 0 {
                    unsent();
                }
                ExitCode::FAILURE
            }
        }
    }

    /// Writes stdout.
    #[must_use]
    pub fn send(self) -> ExitCode {
        self.send_or(|| {})
    }
}

/// Writes past std's line buffer, so that a reply goes out in one system call, whole.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::unistd::write(io::stdout(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
