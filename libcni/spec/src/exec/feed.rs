//! A child's stdin. All but its end is there before the child is, which then waits for nothing, and neither does the
//! caller before the child goes on. The end comes when the caller lets the child begin.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{self, PipeReader, PipeWriter};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

/// The rest of a config on its way to a child: its last character, without which it is no JSON, and what before that did
/// not fit into the pipe (64 KiB as a rule, pipe(7)). Dropped, it leaves the child with a config that is cut off.
pub(super) struct Feed<'a> {
    writer: PipeWriter,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    /// A pipe for the child to read from, filled.
    ///
    /// # Errors
    /// The kernel has no pipe to give.
    pub(super) fn new(input: &'a [u8]) -> io::Result<(PipeReader, Self)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let last = input.trim_ascii_end().len().saturating_sub(1);
        let count = fill(&writer, &input[..last])?;
        Ok((reader, Self { writer, rest: &input[count..] }))
    }

    /// Writes the rest, as the child reads. A plugin need not read its config: a closed pipe is its own business.
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

/// Writes as much as fits, and says how much that was.
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
