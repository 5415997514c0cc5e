//! Waiting for what the kernel does about namespaces that have ended.

use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::must::Must;
use crate::{Node, Remains};

const RTMGRP_LINK: u32 = 1;

impl Node {
    /// Waits until the kernel has taken apart every namespace, of whatever node, that ended before.
    ///
    /// The kernel does so later, one batch after the other. So a namespace ends here whose veth leads to the node: once the
    /// veth is gone, the batch is under way. When a second one's is gone, the batch is over.
    #[track_caller]
    pub fn settle(&self, deadline: Duration) {
        for round in ["settle0", "settle1"] {
            let links = self.host().enter(|| {
                let protocol = SockProtocol::NetlinkRoute;
                let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
                bind(fd.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
                let seconds = i64::try_from(deadline.as_secs()).map_err(|_too_long| Errno::EINVAL)?;
                setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(seconds))?;
                Ok::<_, Errno>(fd)
            });
            let links = links.must("listen to the node's links");
            let container = self.container_named(round);
            self.host().add_veth(round, container.namespace(), "eth0");
            container.leave(Remains::Gone);
            while self.host().find_link(round).is_some() {
                let received = recv(links.as_raw_fd(), &mut [0; 8192], MsgFlags::empty());
                // With a time limit, a signal ends the wait even where its handler restarts system calls.
                let received = if received == Err(Errno::EINTR) { Ok(0) } else { received };
                received.must(format_args!("wait for the end of a namespace within {} s", deadline.as_secs()));
            }
        }
    }
}
