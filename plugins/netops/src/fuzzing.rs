//! The private decoders, for the targets of conformance/fuzz. No interface: it changes with them.

use netlink_packet_route::RouteNetlinkMessage;

use crate::addr::{self, Address};
use crate::answer::{Answer, Frames};
use crate::bridge_port::{self, Vlans};
use crate::error::OpError;
use crate::kernel::{Request, encode, parse};
use crate::link::Link;
use crate::nft::{self, Transaction};
use crate::route::{self, Route};

/// What one frame of a routing netlink read says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The request was carried out, or its list is complete.
    Done,
    /// It was refused, or the object is not understood.
    Failed(OpError),
    /// A link, and its VLANs as a bridge's port.
    Link(Box<Link>, Vec<Vlans>),
    /// An address, if it is one this crate reads.
    Address(Option<Address>),
    /// A route, or one for each next hop.
    Routes(Vec<Route>),
    /// Something else.
    Other,
}

/// Decodes what one read of a routing netlink socket gave: sequence, length and meaning of each frame.
#[must_use]
pub fn told(bytes: &[u8]) -> Vec<(u32, usize, Told)> {
    Frames::new(bytes).map(|frame| (frame.sequence, frame.bytes.len(), told_by(frame.answer()))).collect()
}

fn told_by(answer: Answer<'_>) -> Told {
    let failed = |cause| Told::Failed(OpError::new("read", "an answer", cause));
    match answer {
        Answer::Object(bytes) => parse(bytes).map_or_else(failed, |message| read(&message)),
        Answer::Done => Told::Done,
        Answer::Failed(cause) => failed(cause),
        Answer::Noise => Told::Other,
    }
}

fn read(message: &RouteNetlinkMessage) -> Told {
    match message {
        RouteNetlinkMessage::NewLink(link) => {
            let vlans = link.attributes.iter().flat_map(bridge_port::vlans_in).collect();
            Told::Link(Box::new(Link::from(link)), vlans)
        }
        RouteNetlinkMessage::NewAddress(address) => Told::Address(addr::read(message, address.header.index)),
        RouteNetlinkMessage::NewRoute(message) => Told::Routes(route::read(message)),
        _ => Told::Other,
    }
}

/// The bytes of requests, as they are sent; what the kernel says of an object has the same form.
#[must_use]
pub fn encoded(requests: &[Request], first: u32) -> Vec<u8> {
    encode(requests, first)
}

/// The bytes of a transaction's messages; the kernel tells of objects in the same form.
#[must_use]
pub fn nft_encoded(transaction: &Transaction, seq: u32) -> Option<Vec<u8>> {
    nft::encoded(transaction, seq)
}

/// The process that holds the lock of the file `id`, by the text of `/proc/locks`.
#[must_use]
pub fn lock_holder(locks: &str, id: &str) -> Option<i32> {
    crate::lock::holder_in(locks, id)
}

/// The links that announcements are about.
#[must_use]
pub fn announced(bytes: &[u8]) -> Vec<u32> {
    crate::watch::seen(bytes).indexes
}
