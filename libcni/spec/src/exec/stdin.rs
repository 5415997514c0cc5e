//! A child's stdin. All but its last byte is in the pipe before the child starts, so neither the child nor the caller
//! waits for the other. The last byte is written when the caller lets the child begin.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{self, PipeReader, PipeWriter};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

/// The rest of a child's config: its last character, without which it is no valid JSON, and what did not fit into the
/// pipe before that (64 KiB as a rule, pipe(7)). Dropping it leaves the child with an incomplete config.
pub(super) struct Feed<'a> {
    writer: PipeWriter,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    /// A pipe for the child to read from, filled.
    ///
    /// # Errors
    /// The kernel cannot create a pipe.
    pub(super) fn new(input: &'a [u8]) -> io::Result<(PipeReader, Self)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let last = input.trim_ascii_end().len().saturating_sub(1);
        let count = fill(&writer, &input[..last])?;
        Ok((reader, Self { writer, rest: &input[count..] }))
    }

    /// Writes the rest, as the child reads. A plugin need not read its config: a closed pipe is no error.
    pub(super) async fn finish(self) -> io::Result<()> {
        let written = async {
            let count = fill(&self.writer, self.rest)?;
            match &self.rest[count..] {
                [] => Ok(()),
                rest => Sender::from_owned_fd(self.writer.into())?.write_all(rest).await,
            }
        };
        match written.await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Writes as much as fits, and returns how much that was.
fn fill(writer: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match nix::unistd::write(writer, &bytes[count..]) {
            Ok(more) => count += more,
            Err(Errno::EAGAIN) => break,
            Err(Errno::EINTR) => (),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(count)
}
