//! Waits for announcements of the kernel until a link is in the state that a plan needs.
//!
//! Subscribe before the change, so that no announcement between change and wait is missed. Nothing is polled.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::MsgFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::addr;
use crate::buffer::READ_BYTES;
use crate::error::{Cause, OpError, Result, errno_of};
use crate::link::{self, Link};
use crate::netlink_connection::{DEADLINE, Kernel, open_socket, parse, receive};
use crate::netlink_frames::{Frames, NetlinkReply};
use crate::netns::{HOST, Netns};

const RTNLGRP_LINK: u32 = 1; // include/uapi/linux/rtnetlink.h
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTNLGRP_IPV6_IFINFO: u32 = 12;

/// A subscription to the announcements of links and IPv6 addresses in one namespace.
#[derive(Debug)]
pub struct Watch {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

/// The links that announcements were about.
pub(crate) struct Seen {
    pub(crate) indexes: Vec<u32>,
    /// Addresses that exist now, with the index of their links.
    addresses: Vec<(u32, IpAddr)>,
    /// The kernel dropped announcements, so any link may have changed.
    any: bool,
}

impl Seen {
    fn lost() -> Self {
        Self { indexes: Vec::new(), addresses: Vec::new(), any: true }
    }
}

impl Watch {
    /// Subscribes in the caller's own namespace.
    ///
    /// # Errors
    /// As [`Kernel::host`].
    pub fn host() -> Result<Self> {
        Self::open(HOST, &[])
    }

    /// Subscribes in the namespace `netns`.
    ///
    /// # Errors
    /// As [`Kernel::in_netns`].
    pub fn in_netns(netns: &Netns) -> Result<Self> {
        let place = netns.path().display().to_string();
        netns.run(|| Self::open(&place, &[]))?
    }

    /// As [`Watch::in_netns`], and to what routers advertise ([`link::advertised`]).
    ///
    /// # Errors
    /// As [`Kernel::in_netns`].
    pub fn of_routers(netns: &Netns) -> Result<Self> {
        let place = netns.path().display().to_string();
        netns.run(|| Self::open(&place, &[RTNLGRP_IPV6_IFINFO]))?
    }

    fn open(place: &str, more: &[u32]) -> Result<Self> {
        let open = || {
            let socket = open_socket(DEADLINE)?;
            for &group in [RTNLGRP_LINK, RTNLGRP_IPV6_IFADDR].iter().chain(more) {
                socket.add_membership(group).map_err(errno_of)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|errno| OpError::errno("subscribe to", "link announcements", errno).at(place))?;
        Ok(Self { socket, buffer: Vec::with_capacity(READ_BYTES) })
    }

    /// Waits until the link can carry packets (`IF_OPER_UP`). Returns the link as it is then.
    ///
    /// # Errors
    /// [`Cause::Timeout`]; `ENODEV` if the link is deleted meanwhile.
    pub async fn until_up(&mut self, net: &Kernel, link: &Link, deadline: Duration) -> Result<Link> {
        let object = format!("for link {} to come up", link.name);
        self.until(net, link.index, object, deadline, |net| {
            Ok(link::get(net, &link.into())?).map(|link| link.oper_up.then_some(link))
        })
        .await
    }

    /// Calls `look`, and calls it again after each announcement about `index`, until it returns a value.
    ///
    /// # Errors
    /// [`Cause::Timeout`], naming `object`; the errors of `look`.
    pub async fn until<T>(
        &mut self,
        net: &Kernel,
        index: u32,
        object: String,
        deadline: Duration,
        mut look: impl FnMut(&Kernel) -> Result<Option<T>>,
    ) -> Result<T> {
        let waiting = async {
            loop {
                // Newer kernels update the carrier state when they are asked for it, so this nearly always succeeds at
                // once.
                if let Some(found) = look(net)? {
                    return Ok(found);
                }
                loop {
                    let seen = self
                        .next()
                        .await
                        .map_err(|errno| OpError::errno("wait", object.clone(), errno).at(net.place()))?;
                    if seen.any || seen.indexes.contains(&index) {
                        break;
                    }
                }
            }
        };
        within(deadline, pin!(waiting))
            .await
            .unwrap_or_else(|| Err(OpError::new("wait", object.clone(), Cause::Timeout(deadline)).at(net.place())))
    }

    /// Waits until the kernel has announced these IPv6 addresses of the link. An address without duplicate address
    /// detection is announced once, after the kernel has joined its solicited-node multicast group.
    ///
    /// # Errors
    /// [`Cause::Timeout`].
    pub async fn until_announced(&mut self, link: &Link, addresses: &[IpAddr], deadline: Duration) -> Result<()> {
        let object = format!("for the addresses of {} to be announced", link.name);
        let mut missing = addresses.to_vec();
        let waiting = async {
            while !missing.is_empty() {
                let seen = self.next().await.map_err(|errno| OpError::errno("wait", object.clone(), errno))?;
                missing.retain(|address| !seen.any && !seen.addresses.contains(&(link.index, *address)));
            }
            Ok(())
        };
        within(deadline, pin!(waiting))
            .await
            .unwrap_or_else(|| Err(OpError::new("wait", object.clone(), Cause::Timeout(deadline))))
    }

    /// Waits for an announcement of any link or IPv6 address.
    ///
    /// # Errors
    /// The kernel refuses to be read.
    pub async fn changed(&mut self) -> Result<()> {
        let failed = |errno| OpError::errno("wait", "for link announcements", errno);
        self.next().await.map(|_| ()).map_err(failed)
    }

    /// Drops the announcements that have come until now.
    pub fn pass_over(&mut self) {
        while matches!(receive(&self.socket, &mut self.buffer, MsgFlags::MSG_DONTWAIT), Ok(()) | Err(Errno::ENOBUFS)) {}
    }

    async fn next(&mut self) -> std::result::Result<Seen, Errno> {
        loop {
            match receive(&self.socket, &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(()) => return Ok(seen(&self.buffer)),
                Err(Errno::ENOBUFS) => return Ok(Seen::lost()),
                Err(Errno::EINTR) => (),
                Err(Errno::EAGAIN) => readable(self.socket.as_fd()).await.map_err(errno_of)?,
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// The output of the work, or `None` after `deadline`. Work that is ready at once needs no event loop and works without
/// one. The future is pinned by the caller: passed by value it would be stored twice in the caller's state.
pub(crate) async fn within<T>(deadline: Duration, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let timer = async {
        event_loop().await;
        tokio::time::timeout(deadline, std::future::pending::<()>()).await
    };
    match select(work, pin!(timer)).await {
        Either::Left((done, _timer)) => Some(done),
        Either::Right(_elapsed) => None,
    }
}

/// Completes when an event loop polls it. A call can begin without an event loop, which is expensive to create, and
/// create one only if the work does not complete at once.
async fn event_loop() {
    std::future::poll_fn(|_| if Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits until the socket has something to read. Only a caller that has to wait registers with the event loop.
#[expect(deprecated, reason = "its replacement is unsafe; the borrow keeps this descriptor open all the time")]
async fn readable(fd: BorrowedFd<'_>) -> std::io::Result<()> {
    event_loop().await;
    let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
    fd.readable().await?.retain_ready();
    Ok(())
}

/// The indexes of the links that announcements are about, whether or not the rest can be decoded.
pub(crate) fn seen(bytes: &[u8]) -> Seen {
    let (mut indexes, mut addresses) = (Vec::new(), Vec::new());
    for frame in Frames::new(bytes) {
        indexes.extend(frame.about().map(|about| about.index));
        if let NetlinkReply::Object(bytes) = frame.answer()
            && let Ok(message @ RouteNetlinkMessage::NewAddress(_)) = parse(bytes, false)
            && let RouteNetlinkMessage::NewAddress(header) = &message
        {
            let index = header.header.index;
            addresses.extend(addr::read(&message, index).map(|address| (index, address.net.ip())));
        }
    }
    Seen { indexes, addresses, any: false }
}
