//! A DHCP server (RFC 2131) on a network of its own, for plugins that ask one for addresses.

mod message;

use message::{Asked, Kind, LEASE_SECONDS, MASK, REQUESTED_ADDRESS, ROUTER, SERVER};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::OsString;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use testns::{Container, Node};

/// The namespace with the server, and its bridge.
const NAMESPACE: &str = "beyond-dhcp";
const BRIDGE: &str = "lan0";

/// The server, which is its clients' router too.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const PREFIX: u32 = 16;
const LEASE: u32 = 3600; // seconds: no case lasts until a renewal

/// The ports of server and client (RFC 2131, section 4.1).
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// Starts it. It ends with the process.
pub(super) fn serve(node: &Node) {
    let namespace = node.remote(NAMESPACE);
    namespace.add_link(BRIDGE, "bridge");
    namespace.add_address(BRIDGE, &format!("{ADDRESS}/{PREFIX}"));
    let socket = namespace.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, SERVER_PORT)));
    let socket = socket.unwrap_or_else(|error| panic!("cannot bind the port of DHCP: {error}"));
    // Without the link the namespace has no way to 255.255.255.255.
    let bound = setsockopt(&socket, sockopt::BindToDevice, &OsString::from(BRIDGE));
    bound.unwrap_or_else(|errno| panic!("cannot bind the server to {BRIDGE}: {errno}"));
    socket.set_broadcast(true).unwrap_or_else(|error| panic!("cannot broadcast: {error}"));
    thread::spawn(move || answer_all(&socket));
}

/// Lays links of a container on the server's network, up and without addresses.
pub(super) fn connect(pod: &Container, number: usize, links: &[String]) {
    let namespace = testns::Namespace::at(pod.namespace().path().with_file_name(NAMESPACE));
    for (index, link) in links.iter().enumerate() {
        let port = format!("port{number}-{index}");
        namespace.add_veth(&port, pod.namespace(), link);
        namespace.set_master(&port, BRIDGE);
    }
}

fn answer_all(socket: &UdpSocket) {
    let (mut leases, mut buffer) = (Leases::default(), [0; 1500]);
    while let Ok(length) = socket.recv(&mut buffer) {
        let asked = buffer.get(..length).and_then(message::read);
        if let Some(answer) = asked.and_then(|asked| leases.answer(&asked)) {
            // To all: the client has no address yet. If the answer is lost, it asks again.
            socket.send_to(&answer, (Ipv4Addr::BROADCAST, CLIENT_PORT)).ok();
        }
    }
}

/// The clients' addresses: the first client has the one after the server's.
#[derive(Debug, Default)]
struct Leases(Vec<Option<Vec<u8>>>);

impl Leases {
    fn answer(&mut self, asked: &Asked) -> Option<Vec<u8>> {
        let address = |place: usize| Some(Ipv4Addr::from(u32::from(ADDRESS) + 1 + u32::try_from(place).ok()?));
        let place = self.0.iter().position(|client| client.as_deref() == Some(asked.client()));
        match asked.kind {
            Kind::Discover => {
                let place = place.unwrap_or_else(|| self.take(asked.client()));
                Some(granted(asked, Kind::Offer, address(place)?))
            }
            Kind::Request => {
                if asked.address(SERVER).is_some_and(|server| server != ADDRESS) {
                    return None; // the offer of another
                }
                let wanted = asked.address(REQUESTED_ADDRESS).unwrap_or(asked.has);
                match place.and_then(address).filter(|address| *address == wanted) {
                    Some(address) => Some(granted(asked, Kind::Ack, address)),
                    None => Some(asked.answer(Kind::Nak, Ipv4Addr::UNSPECIFIED, &[(SERVER, ADDRESS.octets())])),
                }
            }
            Kind::Release => {
                let lease = place.filter(|place| address(*place) == Some(asked.has));
                if let Some(client) = lease.and_then(|place| self.0.get_mut(place)) {
                    *client = None;
                }
                None
            }
            Kind::Decline | Kind::Offer | Kind::Ack | Kind::Nak => None,
        }
    }

    /// The first place that is free.
    fn take(&mut self, client: &[u8]) -> usize {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        self.0.resize(self.0.len().max(free + 1), None);
        if let Some(place) = self.0.get_mut(free) {
            *place = Some(client.to_vec());
        }
        free
    }
}

fn granted(asked: &Asked, kind: Kind, address: Ipv4Addr) -> Vec<u8> {
    let mask = u32::MAX << (u32::BITS - PREFIX);
    let options = [
        (SERVER, ADDRESS.octets()),
        (LEASE_SECONDS, LEASE.to_be_bytes()),
        (MASK, mask.to_be_bytes()),
        (ROUTER, ADDRESS.octets()),
    ];
    asked.answer(kind, address, &options)
}
