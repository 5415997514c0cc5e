//! The link of a lease, in its namespace: opened anew for each exchange, so that the daemon keeps no namespace alive.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

use ipnetwork::{IpNetwork, Ipv6Network};
use netops::addr::{Address, Lifetimes};
use netops::error::{Cause, Result as OpResult};
use netops::link::{self, Advertised, Link, Settings, Target};
use netops::packet::LinkUdp;
use netops::sysctl::{self, Key};
use netops::watch::Watch;
use netops::{Errno, Kernel, Netns, OpError, addr, route};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::client::To;
use crate::daemon::clock::sleep_until;
use crate::lease::Lease;
use crate::lease_files::Subject;
use crate::message::Incoming;
use crate::rpc::Sandbox;

/// The client's UDP port (RFC 2131, 4.1).
pub(super) const CLIENT_PORT: u16 = 68;
pub(super) const SERVER_PORT: u16 = 67;
/// The client's UDP port over IPv6 (RFC 8415, 7.2).
const CLIENT_PORT_IPV6: u16 = 546;

#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) netns: Netns,
    kernel: Kernel,
    pub(super) link: Link,
}

/// The reason why the daemon finds no link.
#[derive(Debug)]
pub(super) enum LinkError {
    Gone(String),
    /// The namespace or the link could not be examined.
    Failed(String),
}

/// What the routers of a link say about IPv6 addresses.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    Managed,
    Own(Vec<Ipv6Network>),
}

impl LinkError {
    pub(super) fn why(self) -> String {
        match self {
            Self::Gone(why) | Self::Failed(why) => why,
        }
    }
}

impl OpenLink {
    /// Opens the link of this name in the namespace that the plugin saw.
    pub(super) fn open(path: &Path, sandbox: &Sandbox, ifname: &str) -> Result<Self, LinkError> {
        let netns = Netns::open(path).map_err(|error| match error.is_gone() {
            true => LinkError::Gone(error.to_string()),
            false => LinkError::Failed(error.to_string()),
        })?;
        if netns.identity().numbers() != sandbox.identity {
            return Err(LinkError::Gone(format!("{} leads to another namespace than at ADD", path.display())));
        }
        if netns.is_current().map_err(|error| LinkError::Failed(error.to_string()))? {
            return Err(LinkError::Failed(format!("{} is the node's own namespace", path.display())));
        }
        let kernel = Kernel::in_netns(&netns).map_err(failed)?;
        let link = link::get(&kernel, &Target::named(ifname)).map_err(|error| match error.is_absent() {
            true => LinkError::Gone(error.to_string()),
            false => failed(error),
        })?;
        // The loopback link's address is zero: no server could answer.
        if link.mac.is_none_or(|mac| mac.0 == [0; 6]) {
            return Err(LinkError::Failed(format!("link {ifname} in {} has no Ethernet address", path.display())));
        }
        Ok(Self { netns, kernel, link })
    }

    /// As [`OpenLink::open`], for a lease that is held: the link has to be the one that it was asked for. The kernel may have
    /// given the namespace's numbers, the link's name and its index to others meanwhile; so the link has to have its
    /// Ethernet address, or the address of the lease, where another plugin changed the former.
    pub(super) fn reopen(path: &Path, subject: &Subject, lease: Option<&Lease>) -> Result<Self, LinkError> {
        let open_link = Self::open(path, &subject.sandbox, &subject.names.ifname)?;
        let has_mac = open_link.link.mac.is_some_and(|mac| mac.0 == subject.mac);
        let has_address = || match lease {
            Some(lease) => addr::has(&open_link.kernel, &open_link.link, lease.address.ip().into()),
            None => Ok(false),
        };
        if open_link.link.index == subject.index && (has_mac || has_address().map_err(failed)?) {
            return Ok(open_link);
        }
        Err(LinkError::Gone(format!("{} is another link than at ADD", subject.names.ifname)))
    }

    /// Opens a socket for answers of servers, and for messages from a link without address.
    pub(super) fn listen(&self) -> OpResult<LinkUdp> {
        LinkUdp::open(&self.netns, &self.link, CLIENT_PORT)
    }

    /// Lowers the link's MTU. It is not raised: the links that it is connected to may carry no more.
    pub(super) fn lower_mtu(&self, mtu_bytes: u16) -> OpResult<()> {
        let settings = Settings { mtu_bytes: Some(mtu_bytes.into()), ..Settings::default() };
        match u32::from(mtu_bytes) < self.link.mtu_bytes {
            true => self.kernel.run(link::set(&(&self.link).into(), &settings)),
            false => Ok(()),
        }
    }

    /// Sends to one server from an address of the link, by the namespace's own routes. The kernel answers a datagram to a
    /// port that no socket has by an ICMP message to the server: so the socket has to stay open until the answer is here.
    pub(super) fn send(&self, from: Ipv4Addr, server: Ipv4Addr, payload: &[u8]) -> Result<Socket, String> {
        let name = self.link.name.as_bytes();
        let send = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
            socket.set_reuse_address(true)?;
            socket.bind_device(Some(name))?;
            socket.bind(&SocketAddrV4::new(from, CLIENT_PORT).into())?;
            socket.send_to(payload, &SocketAddrV4::new(server, SERVER_PORT).into())?;
            Ok(socket)
        };
        let sent = self.netns.run(send).map_err(|error| error.to_string())?;
        sent.map_err(|error: std::io::Error| format!("cannot send to {server}: {error}"))
    }

    pub(super) fn set_up(&self, up: bool) -> OpResult<()> {
        self.kernel.run(link::set(&(&self.link).into(), &Settings { up: Some(up), ..Settings::default() }))
    }

    /// Takes an address from the link, and so the routes that depend on it. One that is gone already is no error.
    pub(super) fn remove_address(&self, address: IpNetwork) -> OpResult<()> {
        match self.kernel.run(addr::delete(&self.link, address)) {
            Err(error) if error.os_errno() != Some(Errno::EADDRNOTAVAIL) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Gives the link address and routes of a lease, as the interface plugin does at ADD. What is there already stays.
    pub(super) fn configure(&self, lease: &Lease, priority: u32) -> OpResult<()> {
        self.set_up(true)?;
        let or_there = |added: OpResult<()>| match added {
            Err(error) if error.os_errno() != Some(Errno::EEXIST) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        or_there(self.kernel.run(addr::add(&self.link, &IpNetwork::from(lease.address).into())))?;
        for wanted in lease.result(priority).routes {
            let gateway = wanted.gw.filter(|gateway| !gateway.is_unspecified());
            let metric = Some(priority).filter(|&metric| metric > 0);
            let route = route::Route {
                scope: wanted.scope,
                metric,
                ..route::Route::new(wanted.dst, gateway, Some(self.link.index))
            };
            or_there(self.kernel.run(route::add(&route)))?;
        }
        Ok(())
    }

    pub(super) fn dhcpv6(&self) -> Result<UdpSocket, String> {
        let name = self.link.name.as_bytes();
        let open = || {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
            socket.set_only_v6(true)?;
            socket.set_reuse_address(true)?;
            socket.bind_device(Some(name))?;
            socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, CLIENT_PORT_IPV6, 0, 0).into())?;
            Ok(socket)
        };
        let opened = self.netns.run(open).map_err(|error| error.to_string())?;
        let opened = opened.and_then(|socket: Socket| UdpSocket::from_std(socket.into()));
        opened
            .map_err(|error: std::io::Error| format!("cannot listen to DHCPv6 servers on {}: {error}", self.link.name))
    }

    /// Waits until the link has an address of its own and a router has said how others are given, at most `within`.
    pub(super) async fn hear_routers(&self, within: Duration) -> OpResult<Heard> {
        // As interface plugins do for an IPv6 address of a result.
        let key = Key::of_link("ipv6", &self.link.name, "disable_ipv6")?;
        self.netns.run(|| sysctl::ensure(&key, "0"))??;
        let mut watch = Watch::of_routers(&self.netns)?;
        let object = format!("for a router's advertisement on {}", self.link.name);
        let heard = watch.until(&self.kernel, self.link.index, object, within, |_| self.heard()).await;
        match heard {
            Err(error) if matches!(error.cause, Cause::Timeout(_)) => match self.link_local()? {
                true => Ok(Heard::Nothing),
                false => {
                    let object = format!("link {}", self.link.name);
                    Err(OpError::state("use IPv6 on", object, "it has no link-local address"))
                }
            },
            heard => heard,
        }
    }

    fn heard(&self) -> OpResult<Option<Heard>> {
        if !self.link_local()? {
            return Ok(None);
        }
        match link::advertised(&self.kernel, &self.link)? {
            Advertised::Nothing => Ok(None),
            Advertised::Managed => Ok(Some(Heard::Managed)),
            Advertised::Unmanaged => {
                let own: Vec<Ipv6Network> =
                    self.usable()?.into_iter().filter(|net| !net.ip().is_unicast_link_local()).collect();
                Ok((!own.is_empty()).then_some(Heard::Own(own)))
            }
        }
    }

    /// Whether the link has the address that its own messages come from.
    fn link_local(&self) -> OpResult<bool> {
        Ok(self.usable()?.iter().any(|net| net.ip().is_unicast_link_local()))
    }

    /// The link's IPv6 addresses that are found unique.
    fn usable(&self) -> OpResult<Vec<Ipv6Network>> {
        let addresses = addr::list(&self.kernel, &self.link)?;
        let usable = addresses.iter().filter(|address| !address.tentative && !address.dad_failed);
        let ipv6 = usable.filter_map(|Address { net, .. }| match net {
            IpNetwork::V6(net) => Some(*net),
            IpNetwork::V4(_) => None,
        });
        Ok(ipv6.collect())
    }

    /// Waits until the link has an address, at most `within`.
    pub(super) async fn await_address(&self, address: IpNetwork, within: Duration) -> OpResult<()> {
        let mut watch = Watch::in_netns(&self.netns)?;
        let object = format!("for address {address} on {}", self.link.name);
        let look = |kernel: &Kernel| Ok(addr::has(kernel, &self.link, address.ip())?.then_some(()));
        watch.until(&self.kernel, self.link.index, object, within, look).await
    }

    /// Gives an IPv6 address its lifetimes, and adds it if it is not there.
    pub(super) fn keep(&self, address: IpNetwork, lifetimes: Lifetimes) -> OpResult<()> {
        self.kernel.run(addr::ensure_for(&self.link, address, lifetimes))
    }
}

fn failed(error: OpError) -> LinkError {
    LinkError::Failed(error.to_string())
}

pub(super) fn send_from_node(server: Ipv4Addr, payload: &[u8]) -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.send_to(payload, (server, SERVER_PORT)).map(drop)
}

/// How long an answer is listened for after a message. A socket that stayed open would keep the namespace alive.
pub(super) const LISTENS: Duration = Duration::from_secs(10);

pub(super) struct Exchange {
    pub(super) open_link: OpenLink,
    udp: LinkUdp,
    /// The packet socket that receives the answer that `udp` reads, too.
    renewing: Option<Socket>,
}

impl Exchange {
    pub(super) fn open(open_link: OpenLink) -> OpResult<Self> {
        let udp = open_link.listen()?;
        Ok(Self { open_link, udp, renewing: None })
    }

    /// Sends a message from the link; to one server by the namespace's routes, if they lead there.
    pub(super) fn send(&mut self, to: To, bytes: &[u8]) -> Result<(), String> {
        let all = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
        let (from, to) = match to {
            To::Anyone => (Ipv4Addr::UNSPECIFIED, all),
            To::Everyone(from) => (from, all),
            To::Server { from, server } => match self.open_link.send(from, server, bytes) {
                Ok(socket) => {
                    self.renewing = Some(socket);
                    return Ok(());
                }
                Err(why) => {
                    tracing::debug!(why, "the message goes to all stations instead");
                    (from, SocketAddrV4::new(server, SERVER_PORT))
                }
            },
        };
        self.udp.send(from, to, bytes).map_err(|error| error.to_string())
    }
}

/// The next message for the link; `None` when it is time to close the link, or the link cannot receive.
pub(super) async fn receive(exchange: Option<&Exchange>, until: Duration, mac: [u8; 6]) -> Option<Incoming> {
    let Some(Exchange { udp, .. }) = exchange else { return std::future::pending().await };
    let message = async {
        loop {
            match udp.receive().await {
                Ok(datagram) => {
                    if let Some(message) = Incoming::decode(&datagram.payload, mac) {
                        return Some(message);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the link does not receive");
                    return None;
                }
            }
        }
    };
    tokio::select! {
        message = message => message,
        () = sleep_until(until) => None,
    }
}
