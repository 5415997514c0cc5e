//! Waiting for the network, and payload between namespaces.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

use crate::must::Must;
use crate::{Address, Namespace};

/// Time for the kernel to come to rest, or for a packet to arrive.
const PATIENCE: Duration = Duration::from_secs(20);
const LINK_SCOPE: u8 = 253; // RT_SCOPE_LINK, linux/rtnetlink.h

impl Namespace {
    /// Waits until `condition` is true, looking again at each change of links, addresses, routes
    /// or neighbours.
    #[track_caller]
    pub fn wait_for(&self, what: &str, condition: impl FnMut(&Self) -> bool) {
        assert!(self.wait_within(PATIENCE, condition), "waited {PATIENCE:?} in vain for {what}");
    }

    /// As [`Namespace::wait_for`], and says whether `condition` came true within the time.
    #[track_caller]
    pub fn wait_within(&self, time: Duration, mut condition: impl FnMut(&Self) -> bool) -> bool {
        let events = self.enter(open_events).must("listen for network changes");
        let start = Instant::now();
        while !condition(self) {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            wait_readable(&events, left).must("wait for network changes");
            drain(&events);
        }
        true
    }

    /// Waits until duplicate address detection is through on all links.
    #[track_caller]
    pub fn wait_for_addresses(&self) {
        self.wait_for("duplicate address detection", |namespace| {
            !namespace.addresses().iter().any(Address::is_tentative)
        });
    }

    /// Waits until a link that has a carrier has its link-local address, which may be tentative; returns at once where IPv6
    /// is off.
    #[track_caller]
    pub(crate) fn wait_for_link_local(&self, link: &str) {
        if self.sysctl(&format!("net/ipv6/conf/{link}/disable_ipv6")) == "1" {
            return;
        }
        self.wait_for("a link-local address", |namespace| {
            namespace.addresses().iter().any(|address| address.link == link && address.scope == LINK_SCOPE)
        });
    }

    /// Waits until a link is up and the kernel has done what it does when it gets round to it: a link-local address, and
    /// for each IPv6 address its route and, on a router, the anycast route of its subnet (RFC 4291, 2.6.1), which comes last.
    #[track_caller]
    pub fn wait_until_settled(&self, link: &str) {
        const LOCAL: u8 = 2; // RTN_LOCAL, linux/rtnetlink.h
        const ANYCAST: u8 = 4; // RTN_ANYCAST
        self.wait_for("a link to be up", |namespace| namespace.link(link).state == "up");
        let is_router = self.sysctl(&format!("net/ipv6/conf/{link}/forwarding")) == "1";
        self.wait_for("the routes of a link's addresses", |namespace| {
            let addresses = namespace.addresses().into_iter();
            let addresses: Vec<_> = addresses.filter(|address| address.link == link && address.ip.is_ipv6()).collect();
            let mut routes = namespace.routes();
            routes.retain(|route| route.hops.iter().any(|hop| hop.link == link));
            let has_route = |address: &Address| {
                let to = format!("{}/128", address.ip);
                routes.iter().any(|route| route.kind == LOCAL && route.to == to)
            };
            let anycast = routes.iter().filter(|route| route.kind == ANYCAST).count();
            addresses.iter().any(|address| address.scope == LINK_SCOPE)
                && addresses.iter().all(has_route)
                && (!is_router || anycast >= addresses.len())
        });
    }
}

fn open_events() -> nix::Result<OwnedFd> {
    const LINK_NEIGH_ADDRESSES_ROUTES: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let events = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(events.as_raw_fd(), &NetlinkAddr::new(0, LINK_NEIGH_ADDRESSES_ROUTES))?;
    Ok(events)
}

pub(crate) fn wait_readable(fd: &impl AsFd, within: Duration) -> nix::Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
    Ok(poll(&mut fds, timeout)? > 0)
}

fn drain(events: &OwnedFd) {
    let mut buffer = [0; 8192];
    // Lost messages (ENOBUFS) are news as well: the caller looks at everything again.
    while recv(events.as_raw_fd(), &mut buffer, MsgFlags::empty()).is_ok() {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram each way.
    Udp,
    /// A connection with a few bytes each way.
    Tcp,
}

/// Sends payload from a client in `from` to a server in `to` and back; returns the client's
/// address as the server saw it, which is the node's where the node masquerades.
///
/// The server listens on every address of `to`; the client dials `ip`.
pub fn exchange(
    transport: Transport,
    from: &Namespace,
    (to, ip): (&Namespace, IpAddr),
    within: Duration,
) -> io::Result<SocketAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match transport {
        Transport::Udp => exchange_udp(from, to, ip, any, within),
        Transport::Tcp => exchange_tcp(from, to, ip, any, within),
    }
}

fn exchange_udp(from: &Namespace, to: &Namespace, ip: IpAddr, any: IpAddr, within: Duration) -> io::Result<SocketAddr> {
    let mut buffer = [0; 16];
    let server = to.enter(|| UdpSocket::bind((any, 0)))?;
    let client = from.enter(|| UdpSocket::bind((any, 0)))?;
    server.set_read_timeout(Some(within))?;
    client.set_read_timeout(Some(within))?;
    client.connect((ip, server.local_addr()?.port()))?;
    client.send(b"ping")?;
    let (length, source) = uninterrupted(|| server.recv_from(&mut buffer))?;
    assert!(buffer.starts_with(b"ping") && length == 4, "the server got other bytes");
    server.send_to(b"pong", source)?;
    let length = uninterrupted(|| client.recv(&mut buffer))?;
    assert!(buffer.starts_with(b"pong") && length == 4, "the client got other bytes");
    Ok(source)
}

fn exchange_tcp(from: &Namespace, to: &Namespace, ip: IpAddr, any: IpAddr, within: Duration) -> io::Result<SocketAddr> {
    let mut buffer = [0; 4];
    let server = to.enter(|| TcpListener::bind((any, 0)))?;
    let address = SocketAddr::new(ip, server.local_addr()?.port());
    let mut client = from.enter(|| TcpStream::connect_timeout(&address, within))?;
    if !wait_readable(&server, within)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (mut served, source) = server.accept()?;
    client.set_read_timeout(Some(within))?;
    served.set_read_timeout(Some(within))?;
    client.write_all(b"ping")?;
    served.read_exact(&mut buffer)?;
    assert!(&buffer == b"ping", "the server got other bytes");
    served.write_all(b"pong")?;
    client.read_exact(&mut buffer)?;
    assert!(&buffer == b"pong", "the client got other bytes");
    Ok(source)
}

/// Reads again after a signal, such as the end of another test's child: the kernel does not where the read has a deadline.
pub fn uninterrupted<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}
