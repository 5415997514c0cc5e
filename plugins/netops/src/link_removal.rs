//! Removes links, where possible without waiting for the kernel's grace period.
//!
//! `RTM_DELLINK` returns only after an RCU grace period and after the last reference is gone (20 ms measured). But the
//! kernel announces the removal much earlier (2 ms): from then on the link has no name, no master, no address and no
//! peer, and only memory is still to be freed. A system call cannot be abandoned, and a process that ends waits for its
//! threads. So a child process makes the call, and the caller waits for the announcement. If the child is killed at any
//! moment, the kernel either never got the request or completes it. `helper_process.rs` limits the number of such children; a
//! caller that may start none waits for the kernel.
//!
//! Many links share one grace period: they are put into a group of their own, which one request deletes, without a child process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;

use crate::buffer::Buffer;
use crate::error::{Cause, OpError, Result};
use crate::helper_process::Turn;
use crate::link::{self, Link, Target};
use crate::netlink_connection::{DEADLINE, Kernel, Request, encode_batch};
use crate::netlink_frames::{Frames, NetlinkReply};
use crate::netns::Netns;
use crate::unsafe_calls::Rest;

const RTNLGRP_LINK: u32 = 1; // include/uapi/linux/rtnetlink.h

/// The number of links that one request deletes. Meanwhile the kernel changes no other link, for about 1 ms per link.
const PART: usize = 100;

/// A link that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The link.
    pub link: Link,
    /// The reason.
    pub error: OpError,
}

/// Deletes a link (of a veth: both ends). The kernel answers when it has freed the link.
///
/// # Errors
/// `ENODEV`: the link is already gone. `EOPNOTSUPP`: hardware cannot be deleted.
pub fn request(target: &Target) -> Request {
    Request::new("delete", format!("link {}", target.name()), RouteNetlinkMessage::DelLink(target.message()))
        .wire_name(format!("RTM_DELLINK dev={}", target.name()))
}

/// Deletes a link of the caller's own namespace. Returns when no process can see the link any more.
///
/// A link that is already gone counts as deleted: DEL and GC need no more. If a child process stays to wait for the
/// kernel, it keeps `held` open, because closing an nf_tables socket has to wait, too.
///
/// # Errors
/// As the kernel refuses; [`Cause::Timeout`] after [`DEADLINE`].
pub fn remove(link: &Link, held: Option<BorrowedFd<'_>>) -> Result<()> {
    remove_by(Kernel::host()?, link, held)
}

/// As [`remove`], by a connection to the caller's own namespace, which is not used afterwards: announcements arrive on it.
///
/// # Errors
/// As [`remove`].
pub fn remove_by(net: Kernel, link: &Link, held: Option<BorrowedFd<'_>>) -> Result<()> {
    match remove_by_helper(net, link, held)? {
        true => Ok(()),
        false => remove_in_line(&Kernel::host()?, link),
    }
}

/// As [`remove_by`], in another namespace: for a link of a container that has no end on the host. `net` is a connection to
/// `netns`.
///
/// # Errors
/// As [`remove`].
pub fn remove_in(netns: &Netns, net: Kernel, link: &Link) -> Result<()> {
    match remove_by_helper(net, link, None)? {
        true => Ok(()),
        false => remove_in_line(&Kernel::in_netns(netns)?, link),
    }
}

/// Deletes any number of links of the caller's own namespace. Returns those that still exist.
#[must_use]
pub fn remove_all(links: &[Link]) -> Vec<Left> {
    let left = |link: &Link, error: OpError| Left { link: link.clone(), error };
    match links {
        [] => Vec::new(),
        [link] => remove(link, None).err().map(|error| left(link, error)).into_iter().collect(),
        links => match Kernel::host() {
            Ok(net) => remove_all_by(&net, links),
            Err(error) => links.iter().map(|link| left(link, error.clone())).collect(),
        },
    }
}

/// Deletes any number of links of the namespace that `net` acts on, and waits for the kernel. Returns those that still exist.
#[must_use]
pub fn remove_all_by(net: &Kernel, links: &[Link]) -> Vec<Left> {
    let left = |link: &Link, error: OpError| Left { link: link.clone(), error };
    match (links, free_group(net)) {
        ([], _) => Vec::new(),
        (_, Ok(group)) => links.chunks(PART).flat_map(|part| remove_part(net, group, part)).collect(),
        (_, Err(error)) => links.iter().map(|link| left(link, error.clone())).collect(),
    }
}

fn remove_in_line(net: &Kernel, link: &Link) -> Result<()> {
    match net.run(request(&link.into())) {
        Err(error) if !error.is_absent() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a helper process deleted the link. If false, the link may still exist.
fn remove_by_helper(mut net: Kernel, link: &Link, held: Option<BorrowedFd<'_>>) -> Result<bool> {
    let request = &request(&link.into());
    net.listen(RTNLGRP_LINK)?;
    let (bytes, _) = encode_batch(std::slice::from_ref(request), net.next_sequence(1));
    // Other calls wait for their turn until this one has forked.
    let Some(turn) = Turn::find() else { return Ok(false) };
    tracing::debug!(place = net.place(), request = request.wire_name, "{} {}", request.op, request.object);
    let rest = if held.is_some() { crate::nft::rest(&turn, Duration::ZERO) } else { Rest::NONE };
    match turn.start(|| crate::unsafe_calls::send_from_child(net.as_fd(), &bytes, held, rest)) {
        Err(_no_process) => Ok(false),
        Ok(end) => Listening { net, link, request }.until_gone(end.as_fd()),
    }
}

struct Listening<'a> {
    net: Kernel,
    link: &'a Link,
    request: &'a Request,
}

impl Listening<'_> {
    fn error(&self, cause: Cause) -> OpError {
        self.request.error(self.net.place(), cause)
    }

    /// Whether the removal was announced or acknowledged before the child ended.
    fn until_gone(&self, child: BorrowedFd<'_>) -> Result<bool> {
        let mut buffer = Buffer::take();
        let end = Instant::now() + DEADLINE;
        loop {
            let mut files = [PollFd::new(self.net.as_fd(), PollFlags::POLLIN), PollFd::new(child, PollFlags::empty())];
            match poll(&mut files, until(end)) {
                Ok(0) => return Err(self.error(Cause::Timeout(DEADLINE))),
                Ok(_) => {
                    // Checked before the socket is read: all messages that the child caused are in the socket by then.
                    let has_ended = files[1].any().unwrap_or(false);
                    match self.read(&mut buffer)? {
                        true => return Ok(true),
                        false if has_ended => return Ok(false),
                        false => (),
                    }
                }
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(self.error(Cause::Kernel { errno, extended_ack: None })),
            }
        }
    }

    /// Reads all messages in the socket.
    fn read(&self, buffer: &mut Vec<u8>) -> Result<bool> {
        loop {
            match self.net.receive(buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(()) if self.says_gone(buffer)? => return Ok(true),
                Ok(()) | Err(Errno::EINTR) => (),
                Err(Errno::EAGAIN) => return Ok(false),
                // The kernel dropped announcements.
                Err(Errno::ENOBUFS) if link::find_index(&self.net, self.link.index)?.is_none() => return Ok(true),
                Err(Errno::ENOBUFS) => (),
                Err(errno) => return Err(self.error(Cause::Kernel { errno, extended_ack: None })),
            }
        }
    }

    /// Announcements have the sequence 0 or the request's, answers the request's, so the message type distinguishes
    /// them.
    fn says_gone(&self, bytes: &[u8]) -> Result<bool> {
        for frame in Frames::new(bytes) {
            match frame.answer() {
                NetlinkReply::Object(_) => {
                    if frame.about().is_some_and(|about| about.is_removal() && about.index == self.link.index) {
                        return Ok(true);
                    }
                }
                NetlinkReply::Done => return Ok(true),
                NetlinkReply::Failed(cause) => {
                    let error = self.error(cause);
                    return if error.is_absent() { Ok(true) } else { Err(error) };
                }
                NetlinkReply::Noise => (),
            }
        }
        Ok(false)
    }
}

fn until(end: Instant) -> PollTimeout {
    let left = end.saturating_duration_since(Instant::now());
    // Rounded up: poll with a timeout of 0 would end in the last fraction of a millisecond.
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

/// The number of a group that has no links. Never 0, which is the group of all links without one.
fn free_group(net: &Kernel) -> Result<u32> {
    let links = link::list_of_container(net)?;
    loop {
        // The hasher's key is random in each process.
        let group = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0);
        if group != 0 && links.iter().all(|link| link.group != group) {
            return Ok(group);
        }
    }
}

/// Deletes these links by putting them into a group of their own. If the kernel refuses that, deletes them one by one.
fn remove_part(net: &Kernel, group: u32, links: &[Link]) -> Vec<Left> {
    let join = links.iter().map(|link| {
        let mut message = Target::from(link).message();
        message.attributes.push(LinkAttribute::Group(group));
        Request::new("delete", format!("link {}", link.name), RouteNetlinkMessage::SetLink(message))
            .wire_name(format!("RTM_SETLINK dev={} group={group}", link.name))
    });
    let joined = net.call_all(join.collect());
    let mut left = Vec::new();
    let mut there = Vec::new();
    for (link, outcome) in links.iter().zip(joined) {
        match outcome {
            Ok(_) => there.push(link),
            Err(error) if error.is_absent() => (),
            Err(error) => left.push(Left { link: link.clone(), error }),
        }
    }
    if there.is_empty() || net.run(delete_group(group)).is_ok() {
        return left;
    }
    let refused = there
        .into_iter()
        .filter_map(|link| remove_in_line(net, link).err().map(|error| Left { link: link.clone(), error }));
    left.extend(refused);
    left
}

fn delete_group(group: u32) -> Request {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group));
    Request::new("delete", format!("the links of group {group}"), RouteNetlinkMessage::DelLink(message))
        .wire_name(format!("RTM_DELLINK group={group}"))
}
