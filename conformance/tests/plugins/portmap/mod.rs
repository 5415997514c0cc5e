//! portmap: ports of the node that lead to a container.

mod accept_forwarded;
mod nftables;
mod packets;
mod port_conflicts;
mod rules;
mod shared;

use crate::prelude::*;
use conformance::iptables::has_iptables;
use conformance::portmap::{config, forwarding, made_up, mapping, saved};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
/// How long a connection that must not come about is tried.
const SHORT: Duration = Duration::from_millis(300);

/// ADD with a made-up result: the rules alone.
#[track_caller]
fn map<'a>(node: &'a Node, config: Value, attachment: impl Into<Attachment>, previous: Value) -> Attached<'a> {
    Attached::add(node, &with(config, json!({"prevResult": previous})), attachment)
}

/// A network of which the ports are mapped.
fn routed(ipam: &Value) -> Value {
    bridge(json!({"isDefaultGateway": true, "hairpinMode": true, "ipMasq": true, "ipam": ipam}))
}

#[track_caller]
fn bridged<'a>(node: &'a Node, config: &Value, attachment: impl Into<Attachment>) -> Attached<'a> {
    mapped_in(node, &routed(&dual()), config, attachment)
}

/// ADD to this network, and of portmap.
#[track_caller]
fn mapped_in<'a>(node: &'a Node, network: &Value, config: &Value, attachment: impl Into<Attachment>) -> Attached<'a> {
    let made = Attached::add(node, network, attachment);
    testns::Namespace::at(&made.attachment.netns).wait_for_addresses();
    Attached::add(node, &with(config.clone(), json!({"prevResult": made.result})), &made.attachment)
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

/// Listens on a port. A process that another test is about to start may still hold the listener of the call before.
fn listen(server: &Namespace, address: SocketAddr) -> TcpListener {
    let begin = Instant::now();
    loop {
        match server.enter(|| TcpListener::bind(address)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begin.elapsed() < LONG => std::thread::yield_now(),
            listener => return listener.unwrap(),
        }
    }
}

/// Connects to an address and sees whether the server on this port of the container answers; returns the client's address
/// as the server sees it.
fn tcp(from: &Namespace, to: SocketAddr, server: &Namespace, port: u16, within: Duration) -> Option<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
    let listener = listen(server, at(any, port));
    let mut client = from.enter(|| TcpStream::connect_timeout(&to, within)).ok()?;
    // The last packet of the handshake may still be under way.
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::try_from(LONG).unwrap()).ok().filter(|count| *count > 0)?;
    let (mut served, source) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    served.set_read_timeout(Some(LONG)).unwrap();
    served.read_exact(&mut [0]).unwrap();
    served.write_all(b"y").unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.read_exact(&mut [0]).unwrap();
    Some(source.ip())
}

/// A server of UDP in a container, for both families.
fn udp_server(server: &Namespace, port: u16) -> UdpSocket {
    let server = server.enter(|| UdpSocket::bind(at("::", port))).unwrap();
    server.set_read_timeout(Some(LONG)).unwrap();
    server
}
