//! A child's stdin. It is filled before the child is there, which then waits for nothing, and neither does the caller
//! before the child goes on.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{self, PipeReader, PipeWriter};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

/// A config on its way to a child: what does not fit into the pipe, 64 KiB as a rule (pipe(7)).
pub(super) struct Feed<'a> {
    rest: Option<(PipeWriter, &'a [u8])>,
}

impl<'a> Feed<'a> {
    /// A pipe for the child to read from, filled.
    ///
    /// # Errors
    /// The kernel has no pipe to give.
    pub(super) fn new(input: &'a [u8]) -> io::Result<(PipeReader, Self)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut rest = input;
        while !rest.is_empty() {
            match nix::unistd::write(&writer, rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::EAGAIN) => return Ok((reader, Self { rest: Some((writer, rest)) })),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok((reader, Self { rest: None }))
    }

    /// Writes what did not fit, as the child reads. A plugin need not read its config: a closed pipe is its own business.
    pub(super) async fn finish(self) -> io::Result<()> {
        let Some((writer, rest)) = self.rest else { return Ok(()) };
        match Sender::from_owned_fd(writer.into())?.write_all(rest).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
