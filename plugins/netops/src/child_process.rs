//! A child process with input on stdin, output that is kept, and a deadline. Needs no thread: where a cgroup has no room for
//! further processes, there may be none.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How often a child that has closed its output is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes `input` to the child's stdin, reads stdout and stderr, which are pipes, and waits for the child's end. `None`: it
/// has not ended within the deadline, and is still to be killed and waited for.
///
/// # Errors
/// As reading, writing and waiting fail. A child that does not read all of its input is no error: it may say why on stderr.
pub fn finish(child: &mut Child, mut input: &[u8], within: Duration) -> io::Result<Option<Output>> {
    let until = Instant::now() + within;
    let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    for pipe in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)] {
        pipe.map(|pipe| fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))).transpose()?;
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        write_some(&mut stdin, &mut input)?;
        read_some(&mut stdout, &mut out)?;
        read_some(&mut stderr, &mut err)?;
        let mut ready: Vec<PollFd<'_>> = Vec::new();
        ready.extend(stdin.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
        ready.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        ready.extend(stderr.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        let left = until.saturating_duration_since(Instant::now());
        if ready.is_empty()
            && let Some(status) = child.try_wait()?
        {
            return Ok(Some(Output { status, stdout: out, stderr: err }));
        }
        if left.is_zero() {
            return Ok(None);
        }
        let wait = if ready.is_empty() { left.min(PAUSE) } else { left };
        match poll(&mut ready, PollTimeout::try_from(wait + PAUSE).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Writes what fits, and closes the pipe after the last byte.
fn write_some(pipe: &mut Option<impl Write>, input: &mut &[u8]) -> io::Result<()> {
    while let Some(open) = pipe {
        if input.is_empty() {
            *pipe = None;
            break;
        }
        match open.write(input) {
            Ok(count) => *input = input.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => *pipe = None,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads what is there, and closes the pipe at its end.
fn read_some(pipe: &mut Option<impl Read>, output: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    while let Some(open) = pipe {
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) => output.extend(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sh(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn input_and_output_longer_than_a_pipe_pass() {
        let input = vec![b'x'; 1 << 20];
        let output = finish(&mut sh("cat; echo done >&2"), &input, Duration::from_secs(60)).unwrap().unwrap();
        assert!(output.status.success() && output.stdout == input && output.stderr == b"done\n");
    }

    #[test]
    fn a_program_that_does_not_read_may_say_why() {
        let input = vec![b'x'; 1 << 20];
        let output = finish(&mut sh("echo no >&2; exit 3"), &input, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(3), &b"no\n"[..]));
    }

    #[test]
    fn a_program_that_has_not_ended_at_the_deadline_is_left_to_the_caller() {
        for script in ["exec sleep 60", "exec sleep 60 >&- 2>&-"] {
            let mut child = sh(script);
            assert!(finish(&mut child, b"", Duration::from_millis(50)).unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
