//! A routing netlink connection bound to one namespace.
//!
//! The kernel works on a request while `sendmsg` runs and has answered when it returns, so requests here
//! are plain calls: there is nothing an event loop could do meanwhile. A deadline guards the answer all the
//! same. Waiting for something that happens *later* is [`crate::watch`]'s task.
//!
//! Strict checks and extended acks are on: filters are honoured, and errors carry the kernel's sentence.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::TimeVal;

use crate::answer::{Answer, Frames};
use crate::error::{Cause, OpError, Result};
use crate::netns::{HOST, Netns};
use crate::sieve::sift;

/// How long an answer may take. The kernel answers at once or, when a driver hangs, not for minutes.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The kernel fills at most 32 KiB of a dump into one read (`netlink_recvmsg`).
pub(crate) const READ_BYTES: usize = 32 * 1024;

/// A netlink connection that acts on the namespace it was opened in.
pub struct Kernel {
    socket: Socket,
    place: String,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.place)
    }
}

/// One request as data: what it is for, and what goes over the wire.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until a Kernel sends it"]
pub struct Request {
    pub(crate) op: &'static str,
    pub(crate) object: String,
    pub(crate) words: String,
    pub(crate) flags: u16,
    pub(crate) message: RouteNetlinkMessage,
}

impl Request {
    pub(crate) fn new(op: &'static str, object: impl Into<String>, message: RouteNetlinkMessage) -> Self {
        Self { op, object: object.into(), words: String::new(), flags: 0, message }
    }

    pub(crate) fn flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    /// The request in the kernel's words, for an error's details.
    pub(crate) fn words(mut self, words: impl Into<String>) -> Self {
        self.words = words.into();
        self
    }

    /// A question about one object has it as its answer, or a refusal: an ack beside it would say nothing.
    fn is_answered_by_an_object(&self) -> bool {
        matches!(self.message, RouteNetlinkMessage::GetLink(_)) && self.flags & NLM_F_DUMP != NLM_F_DUMP
    }

    pub(crate) fn error(&self, place: &str, cause: Cause) -> OpError {
        OpError::new(self.op, self.object.clone(), cause).at(place).request(self.words.clone())
    }
}

/// What the kernel answered to one request: nothing, an object, or a list.
pub(crate) type Reply = Vec<RouteNetlinkMessage>;

impl Kernel {
    /// Opens a connection in the caller's own namespace, which errors call `the host`.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; `EPROTONOSUPPORT` on a kernel without routing netlink.
    pub fn host() -> Result<Self> {
        Self::on(open_socket(DEADLINE), HOST.to_owned())
    }

    /// Opens a connection inside `netns`; it can be used from any thread.
    ///
    /// # Errors
    /// As [`Netns::run`] and [`Kernel::host`].
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        // Only the socket is opened there: a thread that allocates costs a new heap.
        let socket = netns.run(|| open_socket(DEADLINE))?;
        Self::on(socket, netns.path().display().to_string())
    }

    fn on(socket: std::result::Result<Socket, Errno>, place: String) -> Result<Self> {
        let socket = socket.map_err(|errno| {
            OpError::errno("open", "a netlink socket", errno).at(&place).request("socket AF_NETLINK NETLINK_ROUTE")
        })?;
        Ok(Self { socket, place, sequence: Cell::new(0), buffer: RefCell::new(Vec::with_capacity(READ_BYTES)) })
    }

    /// Where its requests act: `the host` or the namespace's path.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Sends one request and waits for the kernel's verdict.
    ///
    /// # Errors
    /// The kernel's errno and sentence; [`Cause::Timeout`] after [`DEADLINE`].
    pub fn run(&self, request: Request) -> Result<()> {
        self.call(request).map(drop)
    }

    /// Sends all requests in one go; the kernel works on them in order and does not stop at a failure.
    ///
    /// # Errors
    /// The first failure, in the requests' order. Later requests may have succeeded.
    pub fn run_all(&self, requests: Vec<Request>) -> Result<()> {
        for outcome in self.call_all(requests) {
            outcome?;
        }
        Ok(())
    }

    pub(crate) fn call(&self, request: Request) -> Result<Reply> {
        match self.call_all(vec![request]).pop() {
            Some(outcome) => outcome,
            None => Ok(Vec::new()),
        }
    }

    /// One outcome for each request, in order.
    pub(crate) fn call_all(&self, requests: Vec<Request>) -> Vec<Result<Reply>> {
        let first = self.sequence.get().wrapping_add(1);
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        self.sequence.set(self.sequence.get().wrapping_add(count));
        let mut outcomes: Vec<Option<Result<Reply>>> = requests.iter().map(|_| None).collect();
        let told =
            self.send(&requests, first).map_err(cause_of).and_then(|()| self.collect(&requests, first, &mut outcomes));
        let missing = told.err().unwrap_or(Cause::Timeout(DEADLINE));
        requests
            .iter()
            .zip(outcomes)
            .map(|(request, outcome)| outcome.unwrap_or_else(|| Err(request.error(&self.place, missing.clone()))))
            .collect()
    }

    fn send(&self, requests: &[Request], first: u32) -> std::result::Result<(), Errno> {
        let bytes = encode(requests, first);
        loop {
            match send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn collect(
        &self,
        requests: &[Request],
        first: u32,
        outcomes: &mut [Option<Result<Reply>>],
    ) -> std::result::Result<(), Cause> {
        let mut replies: Vec<Reply> = requests.iter().map(|_| Vec::new()).collect();
        let mut buffer = self.buffer.borrow_mut();
        while outcomes.iter().any(Option::is_none) {
            match receive(&self.socket, &mut buffer, MsgFlags::empty()) {
                Ok(()) => (),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(cause_of(errno)),
            }
            for frame in Frames::new(&buffer) {
                // An answer to an earlier request that timed out is nobody's now.
                let index = frame.sequence.wrapping_sub(first) as usize;
                let (Some(request), Some(reply), Some(outcome)) =
                    (requests.get(index), replies.get_mut(index), outcomes.get_mut(index))
                else {
                    continue;
                };
                match frame.answer() {
                    Answer::Object(bytes) => match parse(bytes) {
                        Ok(message) => {
                            reply.push(message);
                            if request.is_answered_by_an_object() {
                                *outcome = Some(Ok(std::mem::take(reply)));
                            }
                        }
                        Err(cause) => *outcome = Some(Err(request.error(&self.place, cause))),
                    },
                    Answer::Failed(cause) => {
                        *outcome = Some(Err(request.error(&self.place, cause)));
                    }
                    Answer::Done => {
                        outcome.get_or_insert_with(|| Ok(std::mem::take(reply)));
                    }
                    Answer::Noise => (),
                }
            }
        }
        Ok(())
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A bound routing socket with strict checks and extended acks, reads limited to `deadline`.
pub(crate) fn open_socket(deadline: Duration) -> std::result::Result<Socket, Errno> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO));
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(errno)?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(errno)?;
    socket.set_ext_ack(true).map_err(errno)?;
    socket.set_cap_ack(true).map_err(errno)?;
    socket.set_netlink_get_strict_chk(true).map_err(errno)?;
    let seconds = i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX);
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(seconds, 0))?;
    Ok(socket)
}

/// Reads into an empty `buffer` as much as it has room for. Only what was read is touched: a new page costs more than the
/// system call.
///
/// # Errors
/// As `recv(2)`.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>, flags: MsgFlags) -> std::result::Result<(), Errno> {
    buffer.clear();
    match socket.recv(buffer, flags.bits()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))),
    }
}

/// All requests in one buffer, numbered from `first`, each asking for an ack where it needs one.
pub(crate) fn encode(requests: &[Request], first: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, request) in (0u32..).zip(requests) {
        let mut header = NetlinkHeader::default();
        header.sequence_number = first.wrapping_add(number);
        header.flags = NLM_F_REQUEST | request.flags;
        // A dump ends with NLMSG_DONE, a question with its object; everything else with the ack asked for.
        if request.flags & NLM_F_DUMP != NLM_F_DUMP && !request.is_answered_by_an_object() {
            header.flags |= NLM_F_ACK;
        }
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request.message.clone()));
        message.finalize();
        let start = bytes.len();
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        if let Some(place) = bytes.get_mut(start..) {
            message.serialize(place);
        }
    }
    bytes
}

/// Decodes one message whose frame was already checked.
pub(crate) fn parse(bytes: &[u8]) -> std::result::Result<RouteNetlinkMessage, Cause> {
    let undecodable = |why: String| Cause::State(format!("the kernel's answer is not understood: {why}"));
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&sift(bytes)) {
        Ok(message) => match message.payload {
            NetlinkPayload::InnerMessage(inner) => Ok(inner),
            other => Err(undecodable(format!("{other:?}"))),
        },
        Err(error) => Err(undecodable(error.to_string())),
    }
}

fn cause_of(errno: Errno) -> Cause {
    match errno {
        Errno::EAGAIN => Cause::Timeout(DEADLINE),
        errno => Cause::Kernel { errno, words: None },
    }
}
