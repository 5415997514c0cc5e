//! A routing netlink connection bound to one namespace.
//!
//! The kernel processes a request while `sendmsg` runs and has answered when it returns. So requests are plain calls:
//! an event loop would have nothing to do meanwhile. The answer has a deadline all the same. [`crate::watch`] waits for
//! events that happen *later*.
//!
//! Strict checking (Linux 4.20), extended acks (4.12) and capped acks (4.4) are used where the kernel has them. Without the
//! first it ignores a list's filters, so each reader of a list filters once more; without the second, errors lack the
//! kernel's message; without the third they repeat the whole request.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::answers_by_request::{Exchange, Outcome};
use crate::buffer::Buffer;
use crate::error::{Cause, OpError, Result, errno_of};
use crate::feature::Feature;
use crate::link_attributes::{decodable, sendable};
use crate::netns::{HOST, Netns};

/// The deadline of an answer. The kernel answers at once, unless a driver hangs, which can last minutes.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long a list that keeps changing is read again.
const LIST_DEADLINE: Duration = Duration::from_secs(5);

/// How often a list is read that a process of a container may keep changing.
const READS_MAX: usize = 8;

/// The number of interruptions and of other senders' messages that are skipped while waiting for an answer. It is more
/// than fits into a queue of 212992 bytes (the default of `net.core.rmem_default`).
const THROWN_AWAY_MAX: u32 = 10_000;

/// The number of requests in one send. All answers are in the socket's queue before the first is read: a queue of 212992
/// bytes (the default of `net.core.rmem_default`) has room for 277 acks or 48 links, and loses what comes then.
const BATCH: usize = 32;

/// The bytes of requests in one send, from which on no more are added. `send` takes as many as the queue has, and an error
/// without the option for capped acks repeats its request.
const BATCH_BYTES: usize = 48 * 1024;

/// A netlink connection that acts on the namespace it was opened in.
pub struct Kernel {
    socket: Socket,
    /// Whether the kernel honours the filters of lists.
    is_strict: bool,
    place: String,
    sequence: Cell<u32>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.place)
    }
}

/// A request as data: the operation, its object, and the message to send.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until a Kernel sends it"]
pub struct Request {
    pub(crate) op: &'static str,
    pub(crate) object: String,
    pub(crate) wire_name: String,
    pub(crate) flags: u16,
    pub(crate) needs: Option<Feature>,
    pub(crate) in_detail: bool,
    pub(crate) message: RouteNetlinkMessage,
}

impl Request {
    pub(crate) fn new(op: &'static str, object: impl Into<String>, message: RouteNetlinkMessage) -> Self {
        Self { op, object: object.into(), wire_name: String::new(), flags: 0, needs: None, in_detail: false, message }
    }

    pub(crate) fn flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    /// Adds the kernel's name of the request, for an error's details.
    pub(crate) fn wire_name(mut self, wire_name: impl Into<String>) -> Self {
        self.wire_name = wire_name.into();
        self
    }

    /// Names the feature that the kernel lacks if it does not know the request.
    pub(crate) fn needs(mut self, feature: Feature) -> Self {
        self.needs = Some(feature);
        self
    }

    /// The answer is decoded with the attributes that only [`crate::link::details`] and [`crate::addr::kept`] use.
    pub(crate) fn in_detail(mut self) -> Self {
        self.in_detail = true;
        self
    }

    fn is_not_understood(&self, errno: Errno) -> bool {
        let is_traffic_control = || {
            matches!(
                self.message,
                RouteNetlinkMessage::NewQueueDiscipline(_) | RouteNetlinkMessage::NewTrafficFilter(_)
            )
        };
        // Qdiscs, filters and actions: ENOENT means that the kernel does not have the kind.
        errno == Errno::EOPNOTSUPP || (errno == Errno::ENOENT && is_traffic_control())
    }

    pub(crate) fn error(&self, place: &str, cause: Cause) -> OpError {
        let cause = match (cause, self.needs) {
            (Cause::Kernel { errno, extended_ack }, Some(feature)) if self.is_not_understood(errno) => {
                Cause::Unsupported { feature, errno, extended_ack }
            }
            (cause, _) => cause,
        };
        OpError::new(self.op, self.object.clone(), cause).at(place).request(self.wire_name.clone())
    }
}

/// The kernel's answer to one request: nothing, an object, or a list.
pub(crate) type Reply = Vec<RouteNetlinkMessage>;

impl Kernel {
    /// Opens a connection in the caller's own namespace, which errors call `the host`.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; `EPROTONOSUPPORT` on a kernel without routing netlink.
    pub fn host() -> Result<Self> {
        Self::on(open_socket(DEADLINE), HOST.to_owned())
    }

    /// Opens a connection in the namespace `netns`. It can be used from any thread.
    ///
    /// # Errors
    /// As [`Netns::run`] and [`Kernel::host`].
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        // Only the socket is opened there: a thread that allocates memory gets a new heap, which is slow.
        let socket = netns.run(|| open_socket(DEADLINE))?;
        Self::on(socket, netns.path().display().to_string())
    }

    fn on(socket: std::result::Result<Socket, Errno>, place: String) -> Result<Self> {
        let socket = socket.map_err(|errno| {
            OpError::errno("open", "a netlink socket", errno).at(&place).request("socket AF_NETLINK NETLINK_ROUTE")
        })?;
        let is_strict = socket.set_netlink_get_strict_chk(true).is_ok();
        Ok(Self { socket, is_strict, place, sequence: Cell::new(0) })
    }

    /// Whether the kernel honours the filters of lists, and their namespace. Otherwise it ignores both.
    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The namespace that its requests act on: `the host` or the namespace's path.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Sends one request and waits for the kernel's answer.
    ///
    /// # Errors
    /// The kernel's errno and extended ack; [`Cause::Timeout`] after [`DEADLINE`].
    pub fn run(&self, request: Request) -> Result<()> {
        self.call(request).map(drop)
    }

    /// Sends all requests, as many with one system call as the kernel's answers have room for. The kernel processes them in
    /// order and does not stop at an error.
    ///
    /// # Errors
    /// The first error, in the requests' order. Later requests may have succeeded.
    pub fn run_all(&self, requests: Vec<Request>) -> Result<()> {
        for outcome in self.call_all(requests) {
            outcome?;
        }
        Ok(())
    }

    /// Sends all requests as [`Kernel::run_all`] does. One outcome for each, in order.
    pub fn run_each(&self, requests: Vec<Request>) -> Vec<Result<()>> {
        self.call_all(requests).into_iter().map(|outcome| outcome.map(drop)).collect()
    }

    pub(crate) fn call(&self, request: Request) -> Result<Reply> {
        let once = || self.exchange(std::slice::from_ref(&request)).pop().unwrap_or(Outcome::Complete(Ok(Vec::new())));
        until_complete(LIST_DEADLINE, once).unwrap_or_else(|cause| Err(request.error(&self.place, cause)))
    }

    /// As [`Kernel::call`] of a list that another process may keep changing: then all objects of a few reads, in order. Each read
    /// has the objects that are there from its beginning to its end.
    pub(crate) fn gather(&self, list: &Request) -> Result<Reply> {
        let mut all = Vec::new();
        for _ in 0..READS_MAX {
            match self.exchange(std::slice::from_ref(list)).pop() {
                Some(Outcome::Complete(reply)) => return reply,
                Some(Outcome::Interrupted(part)) => all.extend(part),
                None => break,
            }
        }
        Ok(all)
    }

    /// An outcome for each request, in order. Lists must be read by [`Kernel::call`], which reads an interrupted list
    /// again.
    pub(crate) fn call_all(&self, requests: Vec<Request>) -> Vec<Result<Reply>> {
        let outcomes = self.exchange(&requests).into_iter().zip(&requests);
        let whole = |(outcome, request): (Outcome, &Request)| match outcome {
            Outcome::Complete(outcome) => outcome,
            Outcome::Interrupted(_) => Err(request.error(&self.place, Cause::Changing(Duration::ZERO))),
        };
        outcomes.map(whole).collect()
    }

    fn exchange(&self, requests: &[Request]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let first = self.next_sequence(u32::try_from(rest.len()).unwrap_or(u32::MAX));
            let (bytes, count) = encode_batch(rest, first);
            let (batch, later) = rest.split_at(count);
            let mut exchange = Exchange::new(batch, first, &self.place);
            let received = self.send(batch, &bytes).and_then(|()| self.collect(&mut exchange));
            let missing = received.err().map_or(Cause::Timeout(DEADLINE), cause_of);
            let is_answered = exchange.is_complete();
            outcomes.extend(exchange.finish(&missing));
            if !is_answered {
                // An unanswered request may have been carried out; the requests after it are not sent.
                outcomes.extend(Exchange::new(later, 0, &self.place).finish(&missing));
                break;
            }
            rest = later;
        }
        outcomes
    }

    /// The first of as many unused numbers of requests.
    pub(crate) fn next_sequence(&self, count: u32) -> u32 {
        let last = self.sequence.get();
        self.sequence.set(last.wrapping_add(count));
        last.wrapping_add(1)
    }

    /// Joins a group, whose announcements arrive between the answers from now on: for a connection that is used for
    /// nothing else afterwards.
    pub(crate) fn listen(&mut self, group: u32) -> Result<()> {
        let joined = self.socket.add_membership(group).map_err(errno_of);
        joined.map_err(|errno| OpError::errno("open", "a netlink socket", errno).at(&self.place))
    }

    pub(crate) fn receive(&self, buffer: &mut Vec<u8>, flags: MsgFlags) -> std::result::Result<(), Errno> {
        receive(&self.socket, buffer, flags)
    }

    fn send(&self, requests: &[Request], bytes: &[u8]) -> std::result::Result<(), Errno> {
        for Request { op, object, wire_name, .. } in requests {
            tracing::debug!(place = self.place, request = wire_name, "{op} {object}");
        }
        loop {
            match send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn collect(&self, exchange: &mut Exchange<'_>) -> std::result::Result<(), Errno> {
        let mut buffer = Buffer::take();
        let mut thrown_away = 0;
        while !exchange.is_complete() {
            match receive(&self.socket, &mut buffer, MsgFlags::empty()) {
                Ok(()) => exchange.take(&buffer),
                // The kernel has answered when `send` returns, so no more messages than fit into the queue are before
                // the answer.
                Err(Errno::EINTR) if thrown_away < THROWN_AWAY_MAX => thrown_away += 1,
                Err(errno) => return Err(errno),
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

/// A bound routing socket, with extended and capped acks where the kernel has them. Each read waits at most `deadline`.
pub(crate) fn open_socket(deadline: Duration) -> std::result::Result<Socket, Errno> {
    open_socket_of(NETLINK_ROUTE, deadline)
}

/// As [`open_socket`], of another protocol.
pub(crate) fn open_socket_of(protocol: isize, deadline: Duration) -> std::result::Result<Socket, Errno> {
    let mut socket = Socket::new(protocol).map_err(errno_of)?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(errno_of)?;
    socket.set_ext_ack(true).ok();
    socket.set_cap_ack(true).ok();
    let seconds = i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX);
    setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(seconds))?;
    Ok(socket)
}

/// Reads from the kernel into an empty `buffer`, up to its capacity. Only the pages that are written to are touched: a
/// new page costs more than the system call.
///
/// A process with `CAP_NET_ADMIN` in the socket's namespace, such as one in a container, can send to this socket, and
/// port and sequence are easy to guess. Messages of senders other than the kernel (port 0) are dropped.
/// Errors: as `recv(2)`; `EINTR` also if a message was dropped.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>, flags: MsgFlags) -> std::result::Result<(), Errno> {
    buffer.clear();
    match socket.recv_from(buffer, flags.bits()) {
        Ok((_, sender)) if sender.port_number() == 0 => Ok(()),
        Ok(_) => {
            buffer.clear();
            Err(Errno::EINTR)
        }
        Err(error) => Err(errno_of(error)),
    }
}

/// Encodes requests for one send, numbered from `first`, and says how many: one at least, and no more than have room. Each
/// asks for an ack where it needs one.
pub(crate) fn encode_batch(requests: &[Request], first: u32) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for (number, request) in (0u32..).zip(requests.iter().take(BATCH)) {
        let mut header = NetlinkHeader::default();
        header.sequence_number = first.wrapping_add(number);
        header.flags = NLM_F_REQUEST | request.flags;
        // A dump ends with NLMSG_DONE and a get request with its object. All others end with the ack.
        if !request.is_list() && !request.is_answered_by_an_object() {
            header.flags |= NLM_F_ACK;
        }
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request.message.clone()));
        message.finalize();
        let mut encoded = vec![0; message.buffer_len()];
        message.serialize(&mut encoded);
        let encoded = sendable(&encoded);
        if count > 0 && bytes.len() + encoded.len() > BATCH_BYTES {
            break;
        }
        bytes.extend_from_slice(&encoded);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        count += 1;
    }
    (bytes, count)
}

/// Decodes one message whose frame is already checked; `in_detail` as [`Request::in_detail`].
pub(crate) fn parse(bytes: &[u8], in_detail: bool) -> std::result::Result<RouteNetlinkMessage, Cause> {
    let undecodable = |why: String| Cause::State(format!("the kernel's answer is not understood: {why}"));
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&decodable(bytes, in_detail)) {
        Ok(message) => match message.payload {
            NetlinkPayload::InnerMessage(inner) => Ok(inner),
            other => Err(undecodable(format!("it is a message of type {}", other.message_type()))),
        },
        Err(error) => Err(undecodable(error.to_string())),
    }
}

/// Reads a list until it does not change during the read, or until the deadline.
fn until_complete(deadline: Duration, mut read: impl FnMut() -> Outcome) -> std::result::Result<Result<Reply>, Cause> {
    let begin = Instant::now();
    loop {
        match read() {
            Outcome::Complete(outcome) => return Ok(outcome),
            Outcome::Interrupted(_) if begin.elapsed() < deadline => (),
            Outcome::Interrupted(_) => return Err(Cause::Changing(deadline)),
        }
    }
}

pub(crate) fn cause_of(errno: Errno) -> Cause {
    match errno {
        Errno::EAGAIN => Cause::Timeout(DEADLINE),
        errno => Cause::Kernel { errno, extended_ack: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{self, Bridge};
    use netlink_packet_core::NLM_F_DUMP;
    use netlink_packet_route::link::LinkMessage;

    #[test]
    fn an_interrupted_list_is_read_again_until_the_deadline() {
        let mut interruptions = 3;
        let read = || {
            interruptions -= 1;
            if interruptions > 0 { Outcome::Interrupted(Vec::new()) } else { Outcome::Complete(Ok(Vec::new())) }
        };
        assert_eq!(until_complete(Duration::from_secs(60), read), Ok(Ok(Vec::new())));
        let short = Duration::from_millis(1);
        let cause = until_complete(short, || Outcome::Interrupted(Vec::new())).unwrap_err();
        assert_eq!(cause.to_string(), "the list kept changing while it was read, for 1 ms; try again");
    }

    #[test]
    fn a_list_that_changes_while_it_is_read_is_interrupted() {
        Netns::run_in_new(|| {
            let (net, other) = (Kernel::host().unwrap(), Kernel::host().unwrap());
            // More than one read of 32 KiB.
            let bridges = (0..100).map(|n| link::create_bridge(&format!("br{n}"), &Bridge::default()));
            net.run_all(bridges.collect()).unwrap();
            let list =
                [Request::new("list", "links", RouteNetlinkMessage::GetLink(LinkMessage::default())).flags(NLM_F_DUMP)];
            let mut exchange = Exchange::new(&list, 1000, net.place());
            net.send(&list, &encode_batch(&list, 1000).0).unwrap();
            let mut buffer = Buffer::take();
            receive(&net.socket, &mut buffer, MsgFlags::empty()).unwrap();
            exchange.take(&buffer);
            assert!(!exchange.is_complete());
            other.run(link::create_bridge("late", &Bridge::default())).unwrap();
            net.collect(&mut exchange).unwrap();
            assert!(matches!(exchange.finish(&Cause::Timeout(DEADLINE))[..], [Outcome::Interrupted(_)]));
            assert_eq!(link::list(&net, None).unwrap().len(), 102);
        })
        .unwrap();
    }

    #[test]
    fn any_number_of_requests_is_answered() {
        Netns::run_in_new(|| {
            let net = Kernel::host().unwrap();
            let targets = (0..600).map(|_| link::get_request(&link::Target::named("lo")));
            let replies = net.call_all(targets.collect());
            assert_eq!(replies.len(), 600);
            for reply in replies {
                assert_eq!(reply.unwrap().len(), 1);
            }
            let absent = (0..600).map(|n| link::get_request(&link::Target::named(format!("none{n}"))));
            let replies = net.call_all(absent.collect());
            assert_eq!(replies.iter().filter(|reply| reply.as_ref().unwrap_err().is_absent()).count(), 600);
            assert_eq!(replies[599].as_ref().unwrap_err().object, "link none599");
        })
        .unwrap();
    }

    #[test]
    fn requests_that_are_long_are_sent_apart() {
        let long = || Request::new("get", "a link", RouteNetlinkMessage::GetLink(link::Target::named("lo").message()));
        let alias = "x".repeat(20_000);
        let named = |mut request: Request| {
            if let RouteNetlinkMessage::GetLink(message) = &mut request.message {
                message.attributes.push(netlink_packet_route::link::LinkAttribute::IfAlias(alias.clone()));
            }
            request
        };
        let requests: Vec<_> = (0..5).map(|_| named(long())).collect();
        assert_eq!(encode_batch(&requests, 1).1, 2);
        assert_eq!(encode_batch(&requests[4..], 1).1, 1);
    }
}
