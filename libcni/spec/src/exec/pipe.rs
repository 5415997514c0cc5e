//! Reads a child's output until the child ends, not until the pipe closes.

use super::Stderr;
use nix::errno::Errno;
use std::io;
use std::os::fd::AsFd;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The size of one read: larger than most results. A buffer of the pipe's capacity would be cleared and paged in for
/// each call.
const READ_BYTES: usize = 4 << 10;
/// A pipe's capacity (pipe(7)): there cannot be more in it when a child ends.
const PIPE_BYTES: usize = 64 << 10;

pub(super) trait Take {
    /// Receives the next piece, which is not empty.
    fn take(&mut self, chunk: &[u8]);
}

/// A pipe, until it closes, and what was read from it.
pub(super) struct Reading<P, T> {
    pub(super) pipe: Option<P>,
    taken: T,
}

impl<P: AsyncRead + AsFd + Unpin, T: Take> Reading<P, T> {
    pub(super) fn new(pipe: Option<P>, taken: T) -> Self {
        Self { pipe, taken }
    }

    pub(super) fn into_taken(self) -> T {
        self.taken
    }

    /// Reads until all writers have closed the pipe. May be dropped at any await without losing data.
    pub(super) async fn read_to_end(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer).await? {
                0 => self.pipe = None,
                count => self.taken.take(&buffer[..count]),
            }
        }
        Ok(())
    }

    /// Reads what is in the pipe now, at most its capacity: more can only come from another process than the child.
    ///
    /// A plain read does not ask the async runtime, which knows of bytes only after it polled: without a
    /// pidfd (before Linux 5.3, under valgrind) the child's end may be seen before that, and its whole output would be
    /// lost.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        let mut room = PIPE_BYTES;
        while let Some(pipe) = self.pipe.as_ref().filter(|_| room > 0) {
            let most = room.min(READ_BYTES);
            match nix::unistd::read(pipe, &mut buffer[..most]) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.taken.take(&buffer[..count]);
                    room -= count;
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Bytes up to a limit; more bytes are dropped, so that the child can end.
pub(super) struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    is_past: bool,
}

impl Limited {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, is_past: false }
    }

    /// All bytes; `None` if there were more than the limit.
    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        (!self.is_past).then_some(self.bytes)
    }
}

impl Take for Limited {
    fn take(&mut self, chunk: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.is_past |= chunk.len() > room;
        self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// stderr on its way to a sink; its end is kept.
pub(super) struct Tail {
    sink: Stderr,
    kept: Vec<u8>,
    limit: usize,
}

impl Tail {
    pub(super) fn new(sink: Stderr, limit: usize) -> Self {
        Self { sink, kept: Vec::new(), limit }
    }

    pub(super) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

impl Take for Tail {
    fn take(&mut self, chunk: &[u8]) {
        if let Stderr::To(sink) = &mut self.sink {
            sink(chunk);
        }
        self.kept.extend_from_slice(chunk);
        let excess = self.kept.len().saturating_sub(self.limit);
        self.kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::task::{Context, Waker};
    use tokio::net::unix::pipe::Receiver;

    #[test]
    fn what_is_in_the_pipe_is_taken_before_the_runtime_has_heard_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let (reader, mut writer) = io::pipe().unwrap();
        let mut reading = Reading::new(Some(Receiver::from_owned_fd(reader.into()).unwrap()), Limited::new(100));
        // The pipe is empty and the async runtime knows that; it is not asked again, as it does not run.
        let mut context = Context::from_waker(Waker::noop());
        runtime.block_on(tokio::task::yield_now());
        assert!(std::pin::pin!(reading.read_to_end()).poll(&mut context).is_pending());
        writer.write_all(b"the reply").unwrap();
        reading.drain().unwrap();
        assert_eq!(reading.into_taken().into_bytes().unwrap(), b"the reply");
    }
}
