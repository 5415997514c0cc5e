//! A plugin that serves one container at a time, and refuses another in the meantime.

use crate::{MutantCall, memory};
use skel::Reply;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// The socket on which the call that serves listens, below the testbed's own folder.
const SOCKET: &str = "/run/testns/mutant-is-busy";

/// The time that a call waits for another to be refused.
const PATIENCE: Duration = Duration::from_secs(2);

/// The number of calls that wait in vain before none waits any more: on most testbeds calls come one by one.
const VAIN: usize = 4;

/// The first call waits for another, so that they meet on any machine; the other is refused.
pub(super) fn alone(call: &MutantCall) -> Reply {
    if memory::has("refused") || memory::has(&format!("in-vain-{VAIN}")) {
        return call.honest();
    }
    let Ok(listener) = UnixListener::bind(SOCKET) else {
        memory::mark("refused");
        drop(UnixStream::connect(SOCKET));
        return call.refuse(110, "another container is being served");
    };
    // A thread of its own waits, as `accept` has no deadline.
    let (came, news) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let other = listener.accept().map(|(mut other, _)| other.read(&mut [0]).is_ok());
        came.send(other.is_ok()).ok();
    });
    if news.recv_timeout(PATIENCE).is_err() {
        let vain = (1..=VAIN).find(|number| !memory::has(&format!("in-vain-{number}")));
        vain.into_iter().for_each(|number| memory::mark(&format!("in-vain-{number}")));
    }
    std::fs::remove_file(SOCKET).ok();
    call.honest()
}
