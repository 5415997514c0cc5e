//! Removing links without waiting for the kernel's grace period.
//!
//! `RTM_DELLINK` returns only after an RCU grace period and the last reference (20 ms measured), but the
//! kernel announces the removal long before (2 ms): from then on the link has no name, no port, no address
//! and no peer, and what remains is freeing memory. A system call cannot be left early, and a process that
//! ends waits for its threads, so a child process makes the call and the caller listens for the announcement.
//! Killed at any moment, either the kernel never got the request or it completes it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;

use crate::answer::{Answer, Frames};
use crate::error::{Cause, OpError, Result};
use crate::kernel::{DEADLINE, Kernel, READ_BYTES, Request, encode, open_socket, receive};
use crate::link::{Link, Target};
use crate::netns::HOST;

const RTNLGRP_LINK: u32 = 1; // include/uapi/linux/rtnetlink.h

/// Deletes a link (of a veth: both ends) and waits until the kernel has freed it.
///
/// # Errors
/// `ENODEV`: it is gone already. `EOPNOTSUPP`: hardware cannot be deleted.
pub fn request(target: &Target) -> Request {
    Request::new("delete", format!("link {}", target.name()), RouteNetlinkMessage::DelLink(target.message()))
        .words(format!("RTM_DELLINK dev={}", target.name()))
}

/// Deletes links of the caller's own namespace; returns when the kernel has announced each one's removal.
///
/// Links that are gone already count as deleted: that is what DEL and GC want.
///
/// # Errors
/// The first refusal, after all were tried; [`Cause::Timeout`] after [`DEADLINE`].
pub fn remove_announced(links: &[Link]) -> Result<()> {
    if links.is_empty() {
        return Ok(());
    }
    let requests: Vec<Request> = links.iter().map(|link| request(&link.into())).collect();
    let open = |errno| OpError::errno("open", "a netlink socket", errno).at(HOST);
    let mut socket = open_socket(DEADLINE).map_err(open)?;
    subscribe(&mut socket).map_err(open)?;
    let mut removal =
        Removal { pending: links.iter().map(|link| link.index).collect(), links, requests: &requests, failed: None };
    if let Ok(child) = crate::raw::send_from_child(socket.as_fd(), &encode(&requests, 1)) {
        removal.listen(&socket, &child)?;
    }
    removal.finish()
}

fn subscribe(socket: &mut netlink_sys::Socket) -> std::result::Result<(), Errno> {
    socket.add_membership(RTNLGRP_LINK).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)))
}

struct Removal<'a> {
    pending: BTreeSet<u32>,
    links: &'a [Link],
    requests: &'a [Request],
    failed: Option<OpError>,
}

impl Removal<'_> {
    /// Takes announcements and verdicts until every link is accounted for, or no more can come.
    fn listen(&mut self, socket: &netlink_sys::Socket, child: &OwnedFd) -> Result<()> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let end = Instant::now() + DEADLINE;
        while !self.pending.is_empty() {
            let mut files =
                [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(child.as_fd(), PollFlags::empty())];
            match poll(&mut files, until(end)) {
                Ok(0) => self.fail_pending(&Cause::Timeout(DEADLINE)),
                Ok(_) => {
                    // Before the look at the socket: what the child caused is there by then.
                    let has_ended = files[1].any().unwrap_or(false);
                    self.read(socket, &mut buffer)?;
                    if has_ended {
                        return Ok(());
                    }
                }
                Err(Errno::EINTR) => (),
                Err(errno) => self.fail_pending(&Cause::Kernel { errno, words: None }),
            }
        }
        Ok(())
    }

    /// Reads all there is.
    fn read(&mut self, socket: &netlink_sys::Socket, buffer: &mut Vec<u8>) -> Result<()> {
        while !self.pending.is_empty() {
            match receive(socket, buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(()) => self.take(buffer),
                Err(Errno::EINTR) => (),
                Err(Errno::ENOBUFS) => self.look()?,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => self.fail_pending(&Cause::Kernel { errno, words: None }),
            }
        }
        Ok(())
    }

    /// Deletes the slow way what is not accounted for: there was no child, or it ended before the kernel had its
    /// requests.
    fn finish(mut self) -> Result<()> {
        if !self.pending.is_empty() {
            let net = Kernel::host()?;
            for ((sequence, link), request) in (1..).zip(self.links).zip(self.requests) {
                if self.pending.contains(&link.index) {
                    self.settle(sequence, net.run(request.clone()).err().map(|error| error.cause));
                }
            }
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Announcements have sequence 0 or the request's, verdicts the request's: told apart by kind.
    fn take(&mut self, bytes: &[u8]) {
        for frame in Frames::new(bytes) {
            match frame.answer() {
                Answer::Object(_) => {
                    if let Some(about) = frame.about().filter(|about| about.is_removal()) {
                        self.pending.remove(&about.index);
                    }
                }
                Answer::Done => self.settle(frame.sequence, None),
                Answer::Failed(cause) => self.settle(frame.sequence, Some(cause)),
                Answer::Noise => (),
            }
        }
    }

    fn settle(&mut self, sequence: u32, cause: Option<Cause>) {
        let number = sequence.wrapping_sub(1) as usize;
        let (Some(link), Some(request)) = (self.links.get(number), self.requests.get(number)) else {
            return;
        };
        if !self.pending.remove(&link.index) {
            return;
        }
        if let Some(cause) = cause {
            let error = OpError::new(request.op, request.object.clone(), cause).at(HOST).request(request.words.clone());
            if !error.is_absent() {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// Announcements were lost: ask for each link.
    fn look(&mut self) -> Result<()> {
        let net = Kernel::host()?;
        for index in self.pending.clone() {
            if crate::link::find_index(&net, index)?.is_none() {
                self.pending.remove(&index);
            }
        }
        Ok(())
    }

    fn fail_pending(&mut self, cause: &Cause) {
        for (number, _) in self.links.iter().enumerate() {
            let sequence = u32::try_from(number).unwrap_or(u32::MAX).wrapping_add(1);
            self.settle(sequence, Some(cause.clone()));
        }
        self.pending.clear();
    }
}

fn until(end: Instant) -> PollTimeout {
    let left = end.saturating_duration_since(Instant::now());
    // Rounded up: a poll of no time would take the last fraction of a millisecond for the end.
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{self, Bridge};
    use crate::netns::Netns;

    #[test]
    fn what_the_child_did_not_do_is_done_the_slow_way() {
        Netns::run_in_new(|| {
            let net = Kernel::host().unwrap();
            let made = ["br0", "br1"].map(|name| {
                net.run(link::create_bridge(name, &Bridge::default())).unwrap();
                link::get(&net, &Target::named(name)).unwrap()
            });
            let lo = link::get(&net, &Target::named("lo")).unwrap();
            let links = [made[0].clone(), lo, made[1].clone()];
            let requests: Vec<Request> = links.iter().map(|link| request(&link.into())).collect();
            let pending = links.iter().map(|link| link.index).collect();
            let removal = Removal { pending, links: &links, requests: &requests, failed: None };
            assert_eq!(removal.finish().unwrap_err().object, "link lo");
            assert_eq!(link::list(&net, None).unwrap().len(), 1);
        })
        .unwrap();
    }
}
