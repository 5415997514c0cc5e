//! Sorts the kernel's answers by the requests that they belong to.
//!
//! No I/O: bytes in, outcomes out. A list that changed while the kernel wrote it is an outcome of its own, because
//! entries that existed all the time may be missing from it. An object that cannot be decoded does not make the rest of
//! its list fail.

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;

use crate::error::{Cause, Result};
use crate::netlink_connection::{Reply, Request, parse};
use crate::netlink_frames::{Frame, Frames, NetlinkReply};

/// Requests that were sent, numbered from `first`, and their outcomes so far.
pub(crate) struct Exchange<'a> {
    requests: &'a [Request],
    first: u32,
    place: &'a str,
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    reply: Reply,
    is_interrupted: bool,
    outcome: Option<Outcome>,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    /// The kernel's answer, with the objects it listed.
    Complete(Result<Reply>),
    /// The list changed while the kernel wrote it (`NLM_F_DUMP_INTR`); this much of it came.
    Interrupted(Reply),
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(requests: &'a [Request], first: u32, place: &'a str) -> Self {
        Self { requests, first, place, slots: requests.iter().map(|_| Slot::default()).collect() }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| slot.outcome.is_some())
    }

    /// Processes the frames of one read.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for frame in Frames::new(bytes) {
            // The answer to an earlier request that timed out matches no slot.
            let index = frame.sequence.wrapping_sub(self.first) as usize;
            if let (Some(request), Some(slot)) = (self.requests.get(index), self.slots.get_mut(index)) {
                slot.take(&frame, request, self.place);
            }
        }
    }

    /// An outcome for each request, in order. Requests without an answer get `missing` as their error.
    pub(crate) fn finish(self, missing: &Cause) -> Vec<Outcome> {
        let Self { requests, place, slots, .. } = self;
        let pairs = requests.iter().zip(slots);
        pairs
            .map(|(request, slot)| {
                slot.outcome.unwrap_or_else(|| Outcome::Complete(Err(request.error(place, missing.clone()))))
            })
            .collect()
    }
}

impl Slot {
    fn take(&mut self, frame: &Frame<'_>, request: &Request, place: &str) {
        self.is_interrupted |= frame.is_interrupted();
        match frame.answer() {
            NetlinkReply::Object(bytes) => match parse(bytes, request.in_detail) {
                Ok(message) => {
                    self.reply.push(message);
                    if request.is_answered_by_an_object() {
                        self.outcome = Some(Outcome::Complete(Ok(std::mem::take(&mut self.reply))));
                    }
                }
                Err(cause) if request.is_list() => {
                    tracing::warn!(%cause, object = request.object, place, "passing over a part of the list");
                    self.reply.extend(bare_link(frame));
                }
                Err(cause) => self.outcome = Some(Outcome::Complete(Err(request.error(place, cause)))),
            },
            NetlinkReply::Failed(cause) => self.outcome = Some(Outcome::Complete(Err(request.error(place, cause)))),
            NetlinkReply::Done if self.outcome.is_some() => (),
            NetlinkReply::Done if self.is_interrupted => {
                self.outcome = Some(Outcome::Interrupted(std::mem::take(&mut self.reply)))
            }
            NetlinkReply::Done => self.outcome = Some(Outcome::Complete(Ok(std::mem::take(&mut self.reply)))),
            NetlinkReply::Noise => (),
        }
    }
}

impl Request {
    /// A get request for one object is answered by the object or an error, so it needs no ack.
    pub(crate) fn is_answered_by_an_object(&self) -> bool {
        matches!(self.message, RouteNetlinkMessage::GetLink(_)) && !self.is_list()
    }

    pub(crate) fn is_list(&self) -> bool {
        self.flags & NLM_F_DUMP == NLM_F_DUMP
    }
}

/// A link that could not be decoded, with its index only. It has no kind and no alias, so no list of links to delete
/// contains it. But it must be counted, for example among a bridge's ports.
fn bare_link(frame: &Frame<'_>) -> Option<RouteNetlinkMessage> {
    let about = frame.about()?;
    if !about.is_new_link() {
        return None;
    }
    let mut message = LinkMessage::default();
    message.header.interface_family = about.family.into();
    message.header.index = about.index;
    Some(RouteNetlinkMessage::NewLink(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use netlink_packet_core::{NLM_F_ACK, NLM_F_MULTIPART};

    const NLMSG_DONE: u16 = 3;
    const NLM_F_DUMP_INTR: u16 = 0x10;
    const RTM_NEWLINK: u16 = 16;

    fn list() -> Request {
        Request::new("list", "links", RouteNetlinkMessage::GetLink(LinkMessage::default())).flags(NLM_F_DUMP)
    }

    fn frame(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_MULTIPART).to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    /// Link `index` with one attribute of four bytes.
    fn link(index: u8, flags: u16, attribute: u16) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&u32::from(index).to_ne_bytes());
        body.extend(8_u16.to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(*b"abc\0");
        frame(RTM_NEWLINK, flags, &body)
    }

    fn outcome(reads: &[Vec<u8>]) -> Outcome {
        let requests = [list()];
        let mut exchange = Exchange::new(&requests, 1, "the host");
        for read in reads {
            assert!(!exchange.is_complete());
            exchange.take(read);
        }
        assert!(exchange.is_complete());
        exchange.finish(&Cause::State("unused".into())).remove(0)
    }

    fn links(outcome: Outcome) -> Vec<Link> {
        match outcome {
            Outcome::Complete(reply) => reply.unwrap().iter().filter_map(Link::from_message).collect(),
            Outcome::Interrupted(_) => panic!("interrupted"),
        }
    }

    #[test]
    fn a_list_is_interrupted_if_any_part_of_it_says_so() {
        let done = |flags| frame(NLMSG_DONE, flags, &[0; 4]);
        let whole = [link(1, 0, 3), link(2, 0, 3), done(0)];
        assert_eq!(links(outcome(&whole)).len(), 2);
        for interrupted in [
            [link(1, 0, 3), link(2, NLM_F_DUMP_INTR, 3), done(0)],
            [link(1, NLM_F_DUMP_INTR, 3), link(2, 0, 3), done(0)],
            [link(1, 0, 3), link(2, 0, 3), done(NLM_F_DUMP_INTR)],
        ] {
            assert!(matches!(outcome(&interrupted), Outcome::Interrupted(_)));
        }
    }

    #[test]
    fn a_refusal_with_the_dump_interrupted_bit_stays_a_refusal() {
        // In an ack the bit has another meaning.
        let refused = frame(2, NLM_F_DUMP_INTR | NLM_F_ACK, &(-19_i32).to_ne_bytes());
        assert!(matches!(outcome(&[refused]), Outcome::Complete(Err(_))));
    }

    #[test]
    fn a_link_that_cannot_be_decoded_is_listed_by_its_index_alone() {
        const IFLA_OPERSTATE: u16 = 16; // a single byte, not four
        let reads = [link(1, 0, 3), link(2, 0, IFLA_OPERSTATE), link(3, 0, 3), frame(NLMSG_DONE, 0, &[0; 4])];
        let found = links(outcome(&reads));
        assert_eq!(found[1], Link { index: 2, ..Link::default() });
        assert_eq!((found[0].name.as_str(), found[2].name.as_str(), found.len()), ("abc", "abc", 3));
    }
}
