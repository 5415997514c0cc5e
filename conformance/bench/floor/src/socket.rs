//! A netlink socket: a batch out, the answer to its last request back.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

use crate::message::{Answer, Answers, Batch};

/// A netlink socket.
pub(crate) struct Socket(pub(crate) OwnedFd);

impl Socket {
    /// Of the thread's namespace; the kernel gives it an address at the first send.
    pub(crate) fn open(protocol: SockProtocol) -> Result<Self, Errno> {
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).map(Self)
    }

    /// A routing socket that also hears of the groups of this mask.
    pub(crate) fn listening(groups: u32) -> Result<Self, Errno> {
        let socket = Self::open(SockProtocol::NetlinkRoute)?;
        bind(socket.0.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(socket)
    }

    pub(crate) fn send(&self, batch: &Batch) -> Result<(), Errno> {
        send(self.0.as_raw_fd(), &batch.bytes, MsgFlags::empty()).map(drop)
    }

    /// Sends a batch whose last request asks for an ack or an object, and returns what `read` makes of the
    /// objects. The kernel answers a refused request in any case.
    pub(crate) fn call<T>(&self, batch: &Batch, read: impl FnMut(u16, &[u8]) -> Option<T>) -> Result<Option<T>, Errno> {
        self.send(batch)?;
        self.answer(batch.count, read)
    }

    pub(crate) fn answer<T>(
        &self,
        last: u32,
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let mut found = None;
        self.receive(|answer| match answer {
            Answer::Done { number } => number == last,
            Answer::Object { kind, number, body } => {
                found = found.take().or_else(|| read(kind, body));
                number == last
            }
            Answer::Refused(_) => true,
        })?;
        Ok(found)
    }

    /// Receives until `is_last` says so, or a request is refused.
    pub(crate) fn receive(&self, mut is_last: impl FnMut(Answer<'_>) -> bool) -> Result<(), Errno> {
        let mut buffer = [0; 8192];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            for answer in Answers(buffer.get(..length).unwrap_or_default()) {
                if let Answer::Refused(errno) = answer {
                    return Err(errno);
                }
                if is_last(answer) {
                    return Ok(());
                }
            }
        }
    }
}
