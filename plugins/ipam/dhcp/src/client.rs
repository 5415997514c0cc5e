//! The DHCP client of one link (RFC 2131, 4.4) without clock, socket or kernel: given the time and a server's messages, it
//! says what to send and what has become of the lease.
//!
//! ```text
//! Selecting -offer-> Requesting -ack-> Bound -T1-> Renewing -T2-> Rebinding -end-> Selecting
//!     ^------------nak, no answer--------'  ^----------ack----------'
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lease::{INFINITE, Lease};
use crate::message::{Incoming, MessageType, Outgoing};
use crate::options::code;

/// How often a client sends again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the server that made an offer may take to acknowledge it.
    pub timeout: Duration,
    pub resend_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), resend_max: Duration::from_secs(62) }
    }
}

/// A link that is new drops frames for some tenths of a second: its port of a bridge does not forward yet.
const NEW_LINK_PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(700)];
/// The next tries come quickly, too.
const FAST_TRIES: u32 = 4;
const FAST_PAUSE: Duration = Duration::from_secs(2);
/// The pause after them, which doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
/// The pause after an address that another station has (RFC 2131, 3.1.5).
const DECLINE_PAUSE: Duration = Duration::from_secs(10);
/// A daemon that starts spreads overdue renewals over this time at most, and over no more than a tenth of what is left of a lease.
const SPREAD_MAX: Duration = Duration::from_secs(10);
const SPREAD_PART: u32 = 10;
const RENEW_PAUSE_MIN: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub mac: [u8; 6],
    pub client_id: Vec<u8>,
    pub options: Vec<(u8, Vec<u8>)>,
    pub request: Vec<u8>,
    /// Whether servers have to broadcast their answers.
    pub broadcast: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The message goes to all servers, from 0.0.0.0: the link has no address yet.
    Anyone,
    /// The message goes to all servers, from the link's address.
    Everyone(Ipv4Addr),
    /// The message goes to one server, from the link's address.
    Server { from: Ipv4Addr, server: Ipv4Addr },
}

/// A change of the lease, or an answer that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The lease is new, or lasts longer.
    Bound(Lease),
    /// The lease has ended. A new one is looked for.
    Lost {
        why: String,
        /// A server refused to renew it, and may offer another now; else no server answered until its end.
        is_refused: bool,
    },
    /// An offer or acknowledgement that cannot be used. At most one for each message that is sent: a server may send many.
    Unusable { why: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actions {
    pub send: Option<(To, Vec<u8>)>,
    pub event: Option<Event>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Selecting,
    Requesting { offer: Lease, since: Duration },
    Bound,
    Renewing,
    Rebinding,
}

/// The client of one link. All times are since the same moment.
#[derive(Debug)]
pub struct Client {
    identity: Identity,
    timing: Timing,
    state: State,
    /// The lease, and when it was asked for: it counts from then (RFC 2131, 4.4.1).
    held: Option<(Lease, Duration)>,
    /// An address to ask for again.
    wanted: Option<Ipv4Addr>,
    xid: u32,
    tries: u32,
    /// When the exchange began, and when its newest message was sent.
    began: Duration,
    sent: Duration,
    wakes: Duration,
    /// Something unusable was received since then.
    has_unusable: bool,
}

impl Client {
    /// A client that looks for a lease. `random` is new for each.
    pub fn new(identity: Identity, timing: Timing, random: u32, now: Duration) -> Self {
        let state = State::Selecting;
        let (held, wanted, tries) = (None, None, 0);
        let (xid, began, sent, wakes) = (random, now, now, now);
        Self { identity, timing, state, held, wanted, xid, tries, began, sent, wakes, has_unusable: false }
    }

    pub fn resume(identity: Identity, timing: Timing, random: u32, lease: Lease, since: Duration) -> Self {
        let (wakes, wanted) = (since + seconds(lease.renew_seconds), Some(lease.address.ip()));
        let held = Some((lease, since));
        Self { state: State::Bound, held, wanted, wakes, ..Self::new(identity, timing, random, since) }
    }

    /// Asks for this address first.
    pub(crate) fn wanting(self, address: Ipv4Addr) -> Self {
        Self { wanted: Some(address), ..self }
    }

    /// Begins what is overdue at a random moment soon, not now: a daemon that starts may have a thousand leases.
    pub fn spread(self, now: Duration, random: u32) -> Self {
        let wakes = spread(self.wakes, self.lease().map(|(_, end)| end), now, random);
        Self { wakes, ..self }
    }

    /// The lease, and when it was asked for.
    pub fn held(&self) -> Option<(&Lease, Duration)> {
        self.held.as_ref().map(|(lease, since)| (lease, *since))
    }

    /// The lease, and when it ends.
    pub fn lease(&self) -> Option<(&Lease, Duration)> {
        self.held.as_ref().map(|(lease, since)| (lease, *since + seconds(lease.seconds)))
    }

    /// When [`Client::wake`] is to be called.
    pub fn wakes(&self) -> Duration {
        self.wakes
    }

    /// Whether a server's message may come.
    pub fn listens(&self) -> bool {
        self.state != State::Bound
    }

    pub fn release(&mut self) -> Option<(To, Vec<u8>)> {
        let (lease, _) = self.held.take()?;
        let (from, server) = (lease.address.ip(), lease.server);
        self.next_xid(0);
        let message = Outgoing { ciaddr: from, server: Some(server), ..self.outgoing(MessageType::Release, self.sent) };
        message.encode().ok().map(|bytes| (To::Server { from, server }, bytes))
    }

    /// The refusal of the lease, whose address another station has. A new one is looked for after a pause.
    pub(crate) fn decline(&mut self, now: Duration, random: u32) -> Option<(To, Vec<u8>)> {
        let (lease, _) = self.held.take()?;
        self.begin(State::Selecting, now, random);
        (self.wanted, self.wakes) = (None, now + DECLINE_PAUSE);
        let (requested, server) = (Some(lease.address.ip()), Some(lease.server));
        let message = Outgoing { requested, server, ..self.outgoing(MessageType::Decline, now) };
        message.encode().ok().map(|bytes| (To::Anyone, bytes))
    }

    /// Acts when the time of [`Client::wakes`] has come. `random` is new for each call.
    pub fn wake(&mut self, now: Duration, random: u32) -> Result<Actions, String> {
        if self.lease().is_some_and(|(_, end)| now >= end) {
            let _ended = self.held.take();
            self.begin(State::Selecting, now, random);
            self.wakes = now + jittered(FAST_PAUSE, random);
            let why = "no server renewed the lease until its end".to_owned();
            return Ok(Actions { send: None, event: Some(Event::Lost { why, is_refused: false }) });
        }
        match (&self.state, &self.held) {
            (State::Bound, Some(_)) => self.begin(State::Renewing, now, random),
            (State::Renewing, Some((lease, since))) if now >= *since + seconds(lease.rebind_seconds) => {
                self.begin(State::Rebinding, now, random);
            }
            (State::Requesting { since, .. }, _) if now >= *since + self.timing.timeout => {
                self.begin(State::Selecting, now, random);
            }
            _ => (),
        }
        Ok(Actions { send: Some(self.send(now, random)?), event: None })
    }

    /// A server's message has come.
    pub fn receive(&mut self, message: &Incoming, now: Duration, random: u32) -> Result<Actions, String> {
        if message.xid != self.xid {
            return Ok(Actions::default());
        }
        match (message.kind, &self.state) {
            (MessageType::Offer, State::Selecting) => match Lease::of(message) {
                Ok(offer) => {
                    self.state = State::Requesting { offer, since: now };
                    self.tries = 0;
                    Ok(Actions { send: Some(self.send(now, random)?), event: None })
                }
                Err(why) => Ok(self.unusable(why)),
            },
            (MessageType::Ack, State::Requesting { .. } | State::Renewing | State::Rebinding) => {
                Ok(self.acknowledged(message))
            }
            (MessageType::Nak, State::Requesting { offer, .. })
                if message.address(code::SERVER) == Some(offer.server) =>
            {
                self.wanted = None;
                // Not at once: a server that refuses what it offers would be asked without end.
                self.begin(State::Selecting, now, random);
                self.wakes = now + jittered(FAST_PAUSE, random);
                Ok(Actions::default())
            }
            (MessageType::Nak, State::Renewing | State::Rebinding) => {
                let server = message.address(code::SERVER);
                if self.state == State::Renewing && self.held.as_ref().map(|(lease, _)| lease.server) != server {
                    return Ok(Actions::default()); // only the server that was asked
                }
                let text = message.sentence(code::MESSAGE).unwrap_or_else(|| "no reason given".into());
                let _refused = self.held.take();
                self.wanted = None;
                self.begin(State::Selecting, now, random);
                let why = format!("a server refused to renew the lease: {text}");
                let event = Some(Event::Lost { why, is_refused: true });
                Ok(Actions { send: Some(self.send(now, random)?), event })
            }
            _ => Ok(Actions::default()),
        }
    }

    fn acknowledged(&mut self, message: &Incoming) -> Actions {
        let lease = match Lease::of(message) {
            Ok(lease) => lease,
            Err(why) => return self.unusable(why),
        };
        // Of two servers that answer a request, only the chosen one has the address.
        if matches!(&self.state, State::Requesting { offer, .. } if offer.server != lease.server) {
            return Actions::default();
        }
        self.wanted = Some(lease.address.ip());
        self.wakes = self.sent + seconds(lease.renew_seconds);
        self.held = Some((lease.clone(), self.sent));
        self.state = State::Bound;
        Actions { send: None, event: Some(Event::Bound(lease)) }
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

    /// A late answer to an earlier exchange is none to this one, and stations that saw its number do not know the next.
    fn next_xid(&mut self, random: u32) {
        self.xid = self.xid.wrapping_add(random | 1);
    }

    fn send(&mut self, now: Duration, random: u32) -> Result<(To, Vec<u8>), String> {
        let request = self.outgoing(MessageType::Request, now);
        let (to, message) = match (&self.state, &self.held) {
            (State::Requesting { offer, .. }, _) => {
                let (requested, server) = (Some(offer.address.ip()), Some(offer.server));
                (To::Anyone, Outgoing { requested, server, ..request })
            }
            (State::Renewing | State::Bound, Some((lease, _))) => {
                let from = lease.address.ip();
                (To::Server { from, server: lease.server }, Outgoing { ciaddr: from, broadcast: false, ..request })
            }
            (State::Rebinding, Some((lease, _))) => {
                let from = lease.address.ip();
                (To::Everyone(from), Outgoing { ciaddr: from, ..request })
            }
            _ => {
                let discover = self.outgoing(MessageType::Discover, now);
                (To::Anyone, Outgoing { requested: self.wanted, ..discover })
            }
        };
        let bytes = message.encode()?;
        (self.sent, self.has_unusable) = (now, false);
        self.wakes = now + self.pause(now, random);
        self.tries += 1;
        Ok((to, bytes))
    }

    fn outgoing(&self, kind: MessageType, now: Duration) -> Outgoing<'_> {
        let Identity { mac, client_id, options, request, broadcast } = &self.identity;
        let secs = now.saturating_sub(self.began).as_secs().min(u16::MAX.into());
        Outgoing {
            kind,
            xid: self.xid,
            secs: u16::try_from(secs).unwrap_or(u16::MAX),
            mac: *mac,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            broadcast: *broadcast,
            requested: None,
            server: None,
            client_id,
            options,
            request,
        }
    }

    /// How long the message that is now sent is waited for.
    fn pause(&self, now: Duration, random: u32) -> Duration {
        // RFC 2131, 4.4.5: half of what is left until the next state.
        let until = match (&self.state, &self.held) {
            (State::Renewing, Some((lease, since))) => Some(*since + seconds(lease.rebind_seconds)),
            (State::Rebinding, Some((lease, since))) => Some(*since + seconds(lease.seconds)),
            _ => None,
        };
        if let Some(until) = until {
            let left = until.saturating_sub(now);
            return left.min((left / 2).max(RENEW_PAUSE_MIN));
        }
        let is_new = self.state == State::Selecting && self.wanted.is_none();
        let tries = match usize::try_from(self.tries).ok().and_then(|tries| NEW_LINK_PAUSES.get(tries)) {
            Some(pause) if is_new => return *pause,
            _ if is_new => self.tries.saturating_sub(2),
            _ => self.tries,
        };
        let pause = match tries.checked_sub(FAST_TRIES) {
            None => FAST_PAUSE,
            Some(slow) => FIRST_PAUSE.saturating_mul(2u32.saturating_pow(slow)).min(self.timing.resend_max),
        };
        let pause = jittered(pause, random);
        match &self.state {
            State::Requesting { since, .. } => pause.min((*since + self.timing.timeout).saturating_sub(now)),
            _ => pause,
        }
    }
}

/// A second more or less: clients that started together do not stay in step.
fn jittered(pause: Duration, random: u32) -> Duration {
    (pause + Duration::from_millis(u64::from(random % 2001))).saturating_sub(Duration::from_secs(1))
}

/// The time for an action that is due at `due`: then, or, if it is overdue, within ten seconds, of which it takes no more than a tenth of
/// the time until the lease ends. A lease that has ended is not used for a moment longer.
pub(crate) fn spread(due: Duration, end: Option<Duration>, now: Duration, random: u32) -> Duration {
    if due > now {
        return due;
    }
    let left = end.map_or(Duration::MAX, |end| end.saturating_sub(now));
    now + (left / SPREAD_PART).min(SPREAD_MAX).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A time of a server's. [`INFINITE`] is longer than any client runs.
pub(crate) fn seconds(seconds: u32) -> Duration {
    match seconds {
        INFINITE => Duration::from_secs(u64::MAX >> 8),
        seconds => Duration::from_secs(seconds.into()),
    }
}

#[cfg(test)]
mod tests;
