//! The reply of a call. Only this module writes to stdout.

use cni_spec::{CniError, SpecVersion};
use nix::errno::Errno;
use std::io;

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
        let bounded = CniError::new(error.code, bounded(&error.msg)).detail(bounded(&error.details));
        Self { stdout: bounded.to_json(version).into_bytes(), exit: 1 }
    }

    /// Writes stdout, and returns the exit status; `unsent` handles a result that could not be written. A runtime that
    /// closed its end gets no text and sees the exit status.
    #[must_use]
    pub fn send_or(self, unsent: impl FnOnce()) -> u8 {
        match write_all(&self.stdout) {
            Ok(()) => self.exit,
            Err(error) => {
                tracing::error!(%error, "cannot write the reply to stdout");
                if self.exit == 0 {
                    unsent();
                }
                1
            }
        }
    }

    /// Writes stdout, and returns the exit status.
    #[must_use]
    pub fn send(self) -> u8 {
        self.send_or(|| {})
    }
}

/// The longest text of an error, in bytes. Runtimes log errors whole, and a config's values may be of any length.
const TEXT_BYTES_MAX: usize = 4096;

/// The start and the end of a text that is too long: what failed, and why.
fn bounded(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(TEXT_BYTES_MAX / 2);
    let end = text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2);
    let left_out = end - start;
    format!("{} [{left_out} bytes left out] {}", &text[..start], &text[end..])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_keeps_its_start_and_its_end() {
        assert_eq!(bounded("short"), "short");
        let text = bounded(&format!("cannot use key mode = {}: it is none", "ä".repeat(70_000)));
        assert!(text.len() < TEXT_BYTES_MAX + 100, "{}", text.len());
        assert!(text.starts_with("cannot use key mode = ää") && text.ends_with("ää: it is none"), "{text}");
        assert!(text.contains(" bytes left out] "), "{text}");
    }
}
