//! The DHCPv6 client of one link (RFC 8415, 18.2) without clock, socket or kernel: given the time and a server's messages, it
//! says what to send and what has become of the lease. All messages go to all servers of the link.
//!
//! ```text
//! Soliciting -advertise-> Requesting -reply-> Bound -T1-> Renewing -T2-> Rebinding -end-> Soliciting
//!     ^--------refusal, no answer---------'     ^----------reply----------'
//! ```

use std::time::Duration;

use super::message::{Incoming, MessageType, Outgoing, Refusal};
use super::{Identity, Lease};
use crate::client::{seconds, spread};

/// How often a message is repeated (RFC 8415, 7.6): the first pause and the longest.
const SOLICIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
const REQUEST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
const RENEW: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// How often a server that has advertised is asked (`REQ_MAX_RC`).
const REQUESTS: u32 = 10;
/// The preference of a server that is chosen without waiting for others (RFC 8415, 18.2.1).
const PREFERENCE_MAX: u8 = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The lease is new, or lasts longer.
    Bound,
    /// The lease has ended. A new one is looked for.
    Lost { why: String },
    /// An answer that cannot be used. At most one for each message that is sent: a server may send many.
    Unusable { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actions {
    pub send: Option<Vec<u8>>,
    pub event: Option<Event>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Soliciting { best: Option<Offer> },
    Requesting(Offer),
    Bound,
    Renewing,
    Rebinding,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    lease: Lease,
    preference: u8,
}

/// The client of one link. All times are since the same moment.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    state: State,
    /// The lease, and when it was asked for: it counts from then.
    held: Option<(Lease, Duration)>,
    xid: u32,
    tries: u32,
    /// The pause behind the newest message.
    pause: Duration,
    /// When the exchange began, and when its newest message was sent.
    began: Duration,
    sent: Duration,
    wakes: Duration,
    /// Something unusable was received since then.
    has_unusable: bool,
}

impl Client {
    /// A client that looks for a lease. `random` is new for each.
    pub fn new(identity: Identity, random: u32, now: Duration) -> Self {
        let (state, held, xid) = (State::Soliciting { best: None }, None, random);
        let (tries, pause, began, sent, wakes) = (0, Duration::ZERO, now, now, now);
        Self { identity, state, held, xid, tries, pause, began, sent, wakes, has_unusable: false }
    }

    pub fn resume(identity: Identity, random: u32, lease: Lease, since: Duration) -> Self {
        let wakes = since + seconds(lease.renew_seconds);
        Self { state: State::Bound, held: Some((lease, since)), wakes, ..Self::new(identity, random, since) }
    }

    /// As [`crate::client::Client::spread`].
    pub fn spread(self, now: Duration, random: u32) -> Self {
        let end = self.held.as_ref().map(|(lease, since)| *since + seconds(lease.seconds));
        Self { wakes: spread(self.wakes, end, now, random), ..self }
    }

    /// The lease, and when it was asked for.
    pub fn held(&self) -> Option<(&Lease, Duration)> {
        self.held.as_ref().map(|(lease, since)| (lease, *since))
    }

    /// When [`Client::wake`] is to be called.
    pub fn wakes(&self) -> Duration {
        self.wakes
    }

    pub fn release(&mut self) -> Option<Vec<u8>> {
        let (lease, _) = self.held.take()?;
        self.next_xid(0);
        let message = Outgoing {
            server: Some(&lease.server),
            address: Some(lease.address),
            ..self.outgoing(MessageType::Release, self.began)
        };
        message.encode().ok()
    }

    /// Acts when the time of [`Client::wakes`] has come. `random` is new for each call.
    pub fn wake(&mut self, now: Duration, random: u32) -> Result<Actions, String> {
        let (rebinds, ends) = match &self.held {
            Some((lease, since)) => (*since + seconds(lease.rebind_seconds), *since + seconds(lease.seconds)),
            None => (Duration::MAX, Duration::MAX),
        };
        if now >= ends {
            return Ok(self.lost("no server renewed the lease until its end".to_owned(), now, random));
        }
        match &mut self.state {
            State::Soliciting { best } => {
                if let Some(offer) = best.take() {
                    self.begin(State::Requesting(offer), now, random);
                }
            }
            State::Requesting(_) if self.tries >= REQUESTS => {
                self.begin(State::Soliciting { best: None }, now, random);
            }
            State::Bound | State::Renewing if now >= rebinds => self.begin(State::Rebinding, now, random),
            State::Bound => self.begin(State::Renewing, now, random),
            State::Requesting(_) | State::Renewing | State::Rebinding => (),
        }
        Ok(Actions { send: Some(self.send(now, random)?), event: None })
    }

    /// A server's message has come.
    pub fn receive(&mut self, message: Incoming, now: Duration, random: u32) -> Result<Actions, String> {
        let awaits_offers = matches!(self.state, State::Soliciting { .. });
        if message.xid != self.xid & 0x00ff_ffff
            || message.is_advertisement != awaits_offers
            || !self.is_asked(&message)
        {
            return Ok(Actions::default());
        }
        let preference = message.preference;
        match message.lease() {
            Ok(lease) if awaits_offers => self.offered(Offer { lease, preference }, now, random),
            Ok(lease) => {
                self.wakes = self.sent + seconds(lease.renew_seconds);
                self.held = Some((lease, self.sent));
                self.state = State::Bound;
                Ok(Actions { send: None, event: Some(Event::Bound) })
            }
            Err(Refusal::Ended(why)) if self.held.is_some() => Ok(self.lost(why, now, random)),
            // A server that refuses what it advertised is not asked again at once.
            Err(Refusal::Ended(why) | Refusal::Unusable(why)) if matches!(self.state, State::Requesting(_)) => {
                self.solicit_soon(now, random);
                Ok(self.unusable(why))
            }
            Err(refusal) => Ok(self.unusable(refusal.why())),
        }
    }

    /// Whether the newest message was for this server. All may answer a solicitation and a rebinding.
    fn is_asked(&self, message: &Incoming) -> bool {
        match (&self.state, &self.held) {
            (State::Requesting(offer), _) => message.server == offer.lease.server,
            (State::Renewing, Some((lease, _))) => message.server == lease.server,
            (State::Soliciting { .. } | State::Rebinding, _) => true,
            (State::Bound | State::Renewing, _) => false,
        }
    }

    /// The best server of those that answer within the first pause is chosen, and after that the first.
    fn offered(&mut self, offer: Offer, now: Duration, random: u32) -> Result<Actions, String> {
        if offer.preference == PREFERENCE_MAX || self.tries > 1 {
            self.begin(State::Requesting(offer), now, random);
            return Ok(Actions { send: Some(self.send(now, random)?), event: None });
        }
        if let State::Soliciting { best } = &mut self.state
            && best.as_ref().is_none_or(|best| best.preference < offer.preference)
        {
            *best = Some(offer);
        }
        Ok(Actions::default())
    }

    fn lost(&mut self, why: String, now: Duration, random: u32) -> Actions {
        let _ended = self.held.take();
        self.solicit_soon(now, random);
        Actions { send: None, event: Some(Event::Lost { why }) }
    }

    /// After up to a second (`SOL_MAX_DELAY`), as clients that a server refuses do so together.
    fn solicit_soon(&mut self, now: Duration, random: u32) {
        self.begin(State::Soliciting { best: None }, now, random);
        self.wakes = now + Duration::from_millis(500 + u64::from(random % 500));
    }

    fn unusable(&mut self, why: String) -> Actions {
        let is_first = !std::mem::replace(&mut self.has_unusable, true);
        Actions { send: None, event: is_first.then_some(Event::Unusable { why }) }
    }

    fn begin(&mut self, state: State, now: Duration, random: u32) {
        self.state = state;
        self.next_xid(random);
        (self.tries, self.began, self.wakes) = (0, now, now);
    }

    /// A late answer to an earlier exchange is none to this one.
    fn next_xid(&mut self, random: u32) {
        self.xid = self.xid.wrapping_add(random | 1);
    }

    fn send(&mut self, now: Duration, random: u32) -> Result<Vec<u8>, String> {
        let (kind, times, server, address) = match (&self.state, &self.held) {
            (State::Soliciting { .. } | State::Bound | State::Renewing | State::Rebinding, None)
            | (State::Soliciting { .. }, Some(_)) => (MessageType::Solicit, SOLICIT, None, None),
            (State::Requesting(Offer { lease, .. }), _) => {
                (MessageType::Request, REQUEST, Some(&*lease.server), Some(lease.address))
            }
            (State::Bound | State::Renewing, Some((lease, _))) => {
                (MessageType::Renew, RENEW, Some(&*lease.server), Some(lease.address))
            }
            (State::Rebinding, Some((lease, _))) => (MessageType::Rebind, RENEW, None, Some(lease.address)),
        };
        let bytes = Outgoing { server, address, ..self.outgoing(kind, now) }.encode()?;
        self.pause = self.next_pause(times, random);
        (self.sent, self.has_unusable) = (now, false);
        self.tries += 1;
        self.wakes = (now + self.pause).min(self.until(now));
        Ok(bytes)
    }

    fn outgoing(&self, kind: MessageType, now: Duration) -> Outgoing<'_> {
        let hundredths = now.saturating_sub(self.began).as_millis() / 10;
        Outgoing {
            kind,
            xid: self.xid,
            hundredths: u16::try_from(hundredths).unwrap_or(u16::MAX),
            identity: &self.identity,
            server: None,
            address: None,
        }
    }

    /// RFC 8415, 15: the first pause, then twice the one before, up to the longest, each a tenth more or less. The first
    /// behind a solicitation is not shorter.
    fn next_pause(&self, (first, longest): (Duration, Duration), random: u32) -> Duration {
        let jittered = |pause: Duration, thousandths: u32| pause * 9 / 10 + pause * thousandths / 1000;
        let random = random % 201;
        match self.tries {
            0 if matches!(self.state, State::Soliciting { .. }) => jittered(first, 101 + random % 100),
            0 => jittered(first, random),
            _ if self.pause * 2 > longest => jittered(longest, random),
            // RT = 2*RTprev + RAND*RTprev.
            _ => self.pause * 19 / 10 + self.pause * random / 1000,
        }
    }

    /// When the state ends at the latest: a renewal at T2, and a rebinding with the lease.
    fn until(&self, now: Duration) -> Duration {
        match (&self.state, &self.held) {
            (State::Renewing, Some((lease, since))) => (*since + seconds(lease.rebind_seconds)).max(now),
            (State::Rebinding, Some((lease, since))) => (*since + seconds(lease.seconds)).max(now),
            _ => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{address, association, identity, option, said};
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A lease of 200 s, T1 after 50 and T2 after 80.
    fn gives(last: u16) -> Vec<u8> {
        association(50, 80, &address(last, 100, 200))
    }

    /// A server's answer to what was sent.
    fn answer(kind: u8, to: &[u8], server: u8, more: &[u8]) -> Incoming {
        let xid = u32::from_be_bytes([0, to[1], to[2], to[3]]);
        Incoming::decode(&said(kind, xid, server, more), &identity()).unwrap()
    }

    fn wake(client: &mut Client, now: u64) -> Vec<u8> {
        client.wake(at(now), 100).unwrap().send.unwrap()
    }

    #[test]
    fn best_server_of_the_first_second_is_requested() {
        let mut client = Client::new(identity(), 7, at(0));
        let solicit = wake(&mut client, 0);
        assert_eq!(solicit[0], 1);
        let preferred = [gives(6), option(7, &[20])].concat();
        for (server, more) in [(1, gives(5)), (2, preferred), (3, gives(7))] {
            assert_eq!(client.receive(answer(2, &solicit, server, &more), at(0), 0).unwrap(), Actions::default());
        }
        assert!(client.wakes() > at(1));
        let request = wake(&mut client, 2);
        assert_eq!(client.receive(answer(7, &request, 1, &gives(5)), at(2), 0).unwrap(), Actions::default());
        client.receive(answer(7, &request, 2, &gives(6)), at(2), 0).unwrap();
        assert_eq!(client.held().unwrap().0.server, [0, 3, 2]);

        let mut client = Client::new(identity(), 7, at(0));
        let solicit = wake(&mut client, 0);
        let highest = [gives(6), option(7, &[255])].concat();
        assert!(client.receive(answer(2, &solicit, 2, &highest), at(0), 0).unwrap().send.is_some(), "at once");
    }

    #[test]
    fn refusal_of_an_advertised_address_is_reported_and_solicited_again() {
        let mut client = Client::new(identity(), 7, at(0));
        let solicit = wake(&mut client, 0);
        let none = option(13, &[0, 2]);
        let refused = client.receive(answer(2, &solicit, 1, &none), at(0), 0).unwrap();
        assert!(matches!(refused.event, Some(Event::Unusable { .. })));
        assert_eq!(client.receive(answer(2, &solicit, 1, &none), at(0), 0).unwrap(), Actions::default(), "once");
        client.receive(answer(2, &solicit, 1, &gives(5)), at(0), 0).unwrap();
        let request = wake(&mut client, 1);
        let refused = client.receive(answer(7, &request, 1, &none), at(1), 0).unwrap();
        assert!(matches!(refused.event, Some(Event::Unusable { .. })));
        assert_eq!(wake(&mut client, 2)[0], 1);
    }

    #[test]
    fn pauses_double_with_jitter_up_to_the_longest() {
        let mut client = Client::new(identity(), 7, at(0));
        let mut pauses = Vec::new();
        let mut now = at(0);
        for random in [0, 200, 0, 200, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100] {
            client.wake(now, random).unwrap();
            pauses.push((client.wakes() - now).as_millis());
            now = client.wakes();
        }
        assert!(pauses[0] > 1000 && pauses[0] <= 1100, "{pauses:?}");
        for pair in pauses[..11].windows(2) {
            assert!(pair[1] * 10 >= pair[0] * 18 && pair[1] * 10 <= pair[0] * 22, "{pauses:?}");
        }
        assert!(pauses.iter().all(|&pause| pause <= 3_960_000) && *pauses.last().unwrap() >= 3_240_000, "{pauses:?}");
    }

    #[test]
    fn servers_that_do_not_answer_a_request_are_solicited_again() {
        let mut client = Client::new(identity(), 7, at(0));
        let solicit = wake(&mut client, 0);
        client.receive(answer(2, &solicit, 1, &gives(5)), at(0), 0).unwrap();
        let kinds: Vec<u8> = (0..11).map(|now| wake(&mut client, now * 40)[0]).collect();
        assert_eq!(kinds, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
    }
}
