//! The socket: sends transactions and requests, receives answers and dumps.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::object::Family;
use super::reply::{Body, Part, Reply, parse_replies, parse_reply};
use super::transaction::{DUMP, REQUEST, Transaction};
use super::wire::{Header, RawMessage, RawMessages, Writer};
use crate::error::{Cause, OpError, Result};
use crate::helper_process::Turn;
use crate::netns::Netns;
use crate::unsafe_calls::{Rest, hold_in_child};

/// The kernel fills at most 32 KiB of a dump at once (`netlink_dump`).
const RECEIVE_LEN: usize = 64 * 1024;
/// How long a dump is read again if other processes keep changing the ruleset.
const DUMP_DEADLINE: Duration = Duration::from_secs(5);
/// The kernel answers before `send` returns. This deadline is for a kernel that does not answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of changes in one batch: all may be refused, and 277 refusals fit into a queue of 212992 bytes (the default of
/// `net.core.rmem_default`). Each part is a transaction, so a split batch can be repeated.
pub const MAX_CHANGES: usize = 200;

/// A bound netfilter socket with extended acks. Reads and writes wait at most [`ANSWER_TIMEOUT`].
pub(super) fn open_socket() -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind(&SocketAddr::new(0, 0))?; // `bind_auto` also asks which port it is
    // Both options exist since Linux 4.12. On older kernels, errors only lack the extended ack.
    socket.set_ext_ack(true).and_then(|()| socket.set_cap_ack(true)).ok();
    let timeout = TimeVal::seconds(ANSWER_TIMEOUT.as_secs().try_into().unwrap_or(i64::MAX));
    setsockopt(&socket, sockopt::ReceiveTimeout, &timeout)?;
    setsockopt(&socket, sockopt::SendTimeout, &timeout)?;
    Ok(socket)
}

/// Longer than the kernel's grace period usually is. A helper that closes earlier would wait with the ruleset locked.
const GRACE: Duration = Duration::from_millis(50);

/// The helpers of calls that follow each other close their connections together. Each close that finds deleted objects of any
/// call waits with the ruleset locked, so if each helper closed by itself, every commit would wait for one of them.
const TOGETHER: Duration = Duration::from_millis(200);

/// How long the helper that is started in this turn holds a connection of nf_tables that its call has closed.
pub(crate) fn rest(turn: &Turn, least: Duration) -> Rest {
    Rest { least, until_multiple_of: if turn.is_beside_few() { TOGETHER } else { Duration::ZERO } }
}

/// A connection to nf_tables of the namespace it was opened in.
///
/// Two costs determine how to use it (measured on Linux 6.18, where a request takes 5 to 50 us):
/// - **Closing a socket after a transaction, of any process, that deleted an object waits for the kernel's grace period,
///   10 to 25 ms.** Removing links takes as long, and their helper can hold the socket ([`crate::link_removal::remove`]); without
///   links, a helper holds it ([`Nft::close`]).
/// - **A refused transaction costs a grace period too**, inside [`Nft::commit`] and while the ruleset is locked for all
///   processes. Read first and then change; do not use a refusal as a test.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
    pub(super) place: String,
    seq: u32,
    buffer: Vec<u8>,
    /// Whether objects were deleted, which the kernel frees after a grace period.
    has_deleted: bool,
}

impl Nft {
    /// Connects to nf_tables in the calling thread's network namespace, which `place` names in
    /// errors: `the host` or a path.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
    pub fn open(place: impl Into<String>) -> Result<Self> {
        let place = place.into();
        let socket = open_socket().map_err(|e| OpError::io("open", "an nf_tables socket", &e).at(&*place))?;
        Ok(Self { socket, place, seq: 0, buffer: Vec::with_capacity(RECEIVE_LEN), has_deleted: false })
    }

    /// Connects to nf_tables in a namespace.
    ///
    /// # Errors
    /// As [`Nft::open`] and [`Netns::run`].
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        netns.run(|| Self::open(netns.path().display().to_string()))?
    }

    /// Closes the connection. If it has deleted objects, a helper process holds it open until the kernel's grace period is
    /// over, so that the caller, which ends now, does not wait for that. So it does while another call's helper exists: the
    /// kernel has one queue of deleted objects for all connections, and each close waits until it is empty
    /// (`nft_rcv_nl_event`).
    pub fn close(self) {
        let turn = if self.has_deleted { Turn::find() } else { Turn::find_beside_others() };
        let Some(turn) = turn else { return };
        let rest = rest(&turn, GRACE);
        // Without a process the connection is closed here, and waits.
        turn.start(|| hold_in_child(self.as_fd(), rest).map(|pid| (pid, ()))).ok();
    }

    /// Commits a transaction: all of it or nothing.
    ///
    /// # Errors
    /// The first change the kernel refused, with the kernel's errno; nothing was changed then.
    /// `ERESTART`: the ruleset has changed since the generation the transaction was made for.
    /// `EPERM`: no `CAP_NET_ADMIN`.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<()> {
        if transaction.is_empty() {
            return Ok(());
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = transaction.to_string();
            text.lines().for_each(|change| tracing::debug!(place = self.place, "{change}"));
        }
        self.transact(transaction, Transaction::encode)?;
        self.has_deleted |= transaction.deletes();
        Ok(())
    }

    /// Tests whether a transaction could be committed: the kernel processes it and then rolls it back.
    ///
    /// Costs a grace period, as a refused transaction does.
    ///
    /// # Errors
    /// As [`Nft::commit`].
    pub fn try_out(&mut self, transaction: &Transaction) -> Result<()> {
        self.transact(transaction, Transaction::encode_trial)
    }

    fn transact(
        &mut self,
        transaction: &Transaction,
        encode: impl FnOnce(&Transaction, u32) -> Option<Vec<u8>>,
    ) -> Result<()> {
        let first = self.seq.wrapping_add(1);
        let count = u32::try_from(transaction.changes.len()).unwrap_or(u32::MAX - 2);
        self.seq = first.wrapping_add(count).wrapping_add(1);
        let bytes = encode(transaction, first).ok_or_else(|| self.too_long())?;
        self.make_room(bytes.len(), transaction.changes.len());
        self.send(&bytes, "commit")?;

        let mut is_acknowledged = false;
        let mut refusal: Option<(u32, Cause)> = None;
        // The kernel put all of its answers into the socket before `send` returned.
        while let Some(replies) = self.receive("commit", MsgFlags::MSG_DONTWAIT)? {
            for reply in replies {
                let number = reply.seq.wrapping_sub(first);
                match reply.body {
                    Body::Ack if number == count => is_acknowledged = true,
                    Body::Refused { errno, extended_ack } if number <= count => {
                        let is_first = refusal.as_ref().is_none_or(|(found, _)| number < *found);
                        if is_first {
                            refusal = Some((number, Cause::Kernel { errno, extended_ack }));
                        }
                    }
                    _ => {}
                }
            }
        }
        match refusal {
            Some((number, cause)) => Err(self.refused(transaction, number, cause)),
            None if is_acknowledged => Ok(()),
            None => {
                Err(OpError::state("commit", "an nft transaction", "the kernel has not acknowledged it")
                    .at(&*self.place))
            }
        }
    }

    /// Commits any number of independent changes, at most [`MAX_CHANGES`] at once.
    ///
    /// # Errors
    /// As [`Nft::commit`]; the parts before the refused one are done.
    pub fn commit_in_parts(&mut self, transaction: Transaction) -> Result<()> {
        let mut changes = transaction.changes.into_iter();
        loop {
            let part: Vec<_> = changes.by_ref().take(MAX_CHANGES).collect();
            if part.is_empty() {
                return Ok(());
            }
            self.commit(&Transaction::new(part))?;
        }
    }

    pub(super) fn get<T>(
        &mut self,
        kind: u16,
        family: Family,
        object: &dyn Display,
        ask: impl FnOnce(&mut Writer),
        pick: impl Fn(Body) -> Option<T>,
    ) -> Result<Option<T>> {
        let seq = self.request(kind, 0, family, object, ask)?;
        self.receive_answer(seq, object, pick)
    }

    /// Receives the answer to one request for one object; `None` if the object does not exist.
    pub(super) fn receive_answer<T>(
        &mut self,
        seq: u32,
        object: &dyn Display,
        pick: impl Fn(Body) -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            let replies = self.receive("get", MsgFlags::empty())?.unwrap_or_default();
            match replies.into_iter().find(|reply| reply.seq == seq).map(|reply| reply.body) {
                Some(Body::Refused { errno: Errno::ENOENT, .. }) => return Ok(None),
                Some(Body::Refused { errno, extended_ack }) => {
                    return Err(self.failed("get", object, Cause::Kernel { errno, extended_ack }));
                }
                Some(body) => return Ok(pick(body)),
                None => {}
            }
        }
    }

    pub(super) fn list<T>(
        &mut self,
        kind: u16,
        family: Family,
        object: &dyn Display,
        ask: impl Fn(&mut Writer),
        pick: impl Fn(Body) -> Option<T>,
    ) -> Result<Vec<T>> {
        self.list_where(kind, family, object, ask, |_| true, pick)
    }

    pub(super) fn list_where<T>(
        &mut self,
        kind: u16,
        family: Family,
        object: &dyn Display,
        ask: impl Fn(&mut Writer),
        is_wanted: impl Fn(RawMessage<'_>) -> bool,
        pick: impl Fn(Body) -> Option<T>,
    ) -> Result<Vec<T>> {
        let start = Instant::now();
        while start.elapsed() < DUMP_DEADLINE {
            let seq = self.request(kind, DUMP, family, object, &ask)?;
            if let Some(found) = self.receive_dump(seq, object, &is_wanted, &pick)? {
                return Ok(found);
            }
        }
        Err(self.failed("list", object, Cause::Timeout(DUMP_DEADLINE)))
    }

    /// Receives one dump to its end; `None` if a change of the ruleset interrupted it.
    ///
    /// All parts are read before any is decoded: the kernel checks for changes at each read, so a slow reader is
    /// interrupted more often.
    fn receive_dump<T>(
        &mut self,
        seq: u32,
        object: &dyn Display,
        is_wanted: &impl Fn(RawMessage<'_>) -> bool,
        pick: &impl Fn(Body) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let (mut all, mut is_spoilt) = (Vec::new(), false);
        loop {
            self.receive_bytes("list", MsgFlags::empty())?;
            let part = Part::of(&self.buffer, seq);
            all.extend_from_slice(&self.buffer);
            is_spoilt |= part.is_interrupted;
            if part.is_last {
                break;
            }
        }
        let mut found = Vec::new();
        if is_spoilt {
            return Ok(None);
        }
        for message in RawMessages(&all).filter(|message| message.seq == seq && is_wanted(*message)) {
            match parse_reply(message).body {
                Body::Done => break,
                Body::Refused { errno: Errno::ENOENT, .. } => return Ok(Some(found)),
                Body::Refused { errno: Errno::EINTR | Errno::EAGAIN, .. } => return Ok(None),
                Body::Refused { errno, extended_ack } => {
                    return Err(self.failed("list", object, Cause::Kernel { errno, extended_ack }));
                }
                body => found.extend(pick(body)),
            }
        }
        Ok(Some(found))
    }

    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        object: &dyn Display,
        ask: impl FnOnce(&mut Writer),
    ) -> Result<u32> {
        let mut w = Writer::default();
        let seq = self.write_request(&mut w, kind, flags, family, ask);
        self.send_requests(w, object)?;
        Ok(seq)
    }

    /// Writes one more request; its answer has the returned number.
    pub(super) fn write_request(
        &mut self,
        w: &mut Writer,
        kind: u16,
        flags: u16,
        family: Family,
        ask: impl FnOnce(&mut Writer),
    ) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        w.message(Header { kind, flags: flags | REQUEST, seq: self.seq, family: family as u8, res_id: 0 }, ask);
        self.seq
    }

    /// Sends the requests that were written; an error names `object`.
    pub(super) fn send_requests(&self, w: Writer, object: &dyn Display) -> Result<()> {
        let bytes = w.finish().ok_or_else(|| self.too_long())?;
        self.send(&bytes, "get").map_err(|e| OpError { object: object.to_string(), ..e })
    }

    /// Lets one `send` take a large transaction, and the socket's queue a refusal of each change. Without the privilege to
    /// exceed the node's limit (`net.core.wmem_max`), `send` refuses it with `EMSGSIZE`, and nothing is changed.
    fn make_room(&self, length: usize, changes: usize) {
        const DEFAULT: usize = 100 << 10;
        /// A refusal, with the kernel's structures around it.
        const REFUSAL_BYTES: usize = 1024;
        // The kernel doubles the numbers, and uses some of them for its own structures.
        if length > DEFAULT {
            let forced = setsockopt(&self.socket, sockopt::SndBufForce, &length);
            forced.or_else(|_| setsockopt(&self.socket, sockopt::SndBuf, &length)).ok();
        }
        if changes > MAX_CHANGES {
            let answers = changes * REFUSAL_BYTES;
            let forced = setsockopt(&self.socket, sockopt::RcvBufForce, &answers);
            forced.or_else(|_| setsockopt(&self.socket, sockopt::RcvBuf, &answers)).ok();
        }
    }

    fn send(&self, bytes: &[u8], op: &'static str) -> Result<()> {
        let failed = |e| OpError::io(op, "nft objects", &e).at(&*self.place);
        self.socket.send(bytes, 0).map_err(failed).map(|_| ())
    }

    /// Reads the messages of one `recv`; `None` if none is there and the flags say not to wait.
    fn receive(&mut self, op: &'static str, flags: MsgFlags) -> Result<Option<Vec<Reply>>> {
        Ok(self.receive_bytes(op, flags)?.then(|| parse_replies(&self.buffer)))
    }

    /// Fills the buffer by one `recv`; false if no message is there and the flags say not to wait.
    fn receive_bytes(&mut self, op: &'static str, flags: MsgFlags) -> Result<bool> {
        self.buffer.clear();
        loop {
            match self.socket.recv(&mut self.buffer, flags.bits()) {
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    if flags.contains(MsgFlags::MSG_DONTWAIT) {
                        return Ok(false);
                    }
                    return Err(self.failed(op, &"nft objects", Cause::Timeout(ANSWER_TIMEOUT)));
                }
                Err(e) => return Err(OpError::io(op, "nft objects", &e).at(&*self.place)),
            }
        }
    }

    fn failed(&self, op: &'static str, object: &dyn Display, cause: Cause) -> OpError {
        OpError::new(op, object.to_string(), cause).at(&*self.place)
    }

    fn refused(&self, transaction: &Transaction, number: u32, cause: Cause) -> OpError {
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        match index.and_then(|index| transaction.changes.get(index)) {
            Some(change) => {
                OpError::new(change.verb(), change.object(), cause).at(&*self.place).request(change.request())
            }
            None => {
                OpError::new("commit", "an nft transaction", cause).at(&*self.place).request("NFNL_MSG_BATCH_BEGIN")
            }
        }
    }

    fn too_long(&self) -> OpError {
        let sentence = "a name or comment in it is longer than netlink can carry";
        OpError::state("commit", "an nft transaction", sentence).at(&*self.place)
    }
}

impl AsFd for Nft {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
