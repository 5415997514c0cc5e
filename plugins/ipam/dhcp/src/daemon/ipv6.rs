//! The IPv6 side of one attachment, beside its [`super::lease_task::LeaseTask`]: hears what the routers say, and keeps a DHCPv6 lease
//! where they say that addresses are managed.
//!
//! The kernel has the lifetimes of a leased address, and deletes it at its end whether or not a daemon runs.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::rc::Rc;
use std::time::Duration;

use netops::addr::Lifetimes;
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::net::UdpSocket;

use super::Shared;
use super::clock::{now, sleep_until};
use super::lease_task::random;
use super::open_link::{Heard, LISTENS, LinkError, OpenLink};
use crate::ipv6::client::{Actions, Client, Event};
use crate::ipv6::message::Incoming;
use crate::ipv6::{Given, Identity, Lease};
use crate::lease::{INFINITE, Lease as Lease4};
use crate::lease_files::Subject;

/// All servers and relays of a link, and their port (RFC 8415, 7.1 and 7.2).
const SERVERS: (Ipv6Addr, u16) = (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2), 547);

/// How long routers are listened to before a server is asked without their word: a link's own address takes two seconds, and
/// the kernel asks the routers at once and after four more.
const ROUTERS_WITHIN: Duration = Duration::from_secs(8);

/// How long the interface plugin may take to add the address after ADD of this one.
const ADDED_WITHIN: Duration = Duration::from_secs(60);

/// The largest message that is read, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordOfIpv6 {
    /// The address, or the last one.
    pub given: Given,
    /// The time at which the lease was requested, in seconds since the boot.
    pub since_seconds: u64,
    /// The lease has ended, and another is looked for.
    pub is_lost: bool,
}

/// The link of a lease, and the daemon's state.
pub(super) struct LinkOfLease<'a> {
    pub(super) shared: &'a Rc<Shared>,
    pub(super) subject: &'a Subject,
    pub(super) lease: Option<&'a Lease4>,
}

impl LinkOfLease<'_> {
    pub(super) fn open(&self) -> Result<OpenLink, LinkError> {
        let path = self.shared.flags.on_host(&self.subject.sandbox.path);
        OpenLink::reopen(&path, self.subject, self.lease)
    }
}

pub(super) enum News {
    /// What [`Ipv6::held`] returns is new.
    Changed,
    /// The lease has ended.
    Lost(String),
    /// The lease goes on despite an error.
    Trouble(String),
    Gone(String),
}

enum Phase {
    /// Hears the routers, until a time at the latest.
    Router(Duration),
    /// Has a lease, or looks for one.
    Client,
    /// The kernel keeps the address.
    Slaac,
}

struct Exchange {
    open_link: OpenLink,
    socket: UdpSocket,
}

pub(super) struct Ipv6 {
    identity: Identity,
    client: Client,
    phase: Phase,
    exchange: Option<Exchange>,
    last_sent: Duration,
    held: Option<RecordOfIpv6>,
    /// ADD has returned the address: the link is this one's to change.
    is_attached: bool,
    /// The time until which the daemon waits for the link to have the address. Then it sets the address's lifetimes.
    awaits_address: Option<Duration>,
}

impl Ipv6 {
    pub(super) fn begin(subject: &Subject) -> Self {
        let identity = Identity::of(&subject.names);
        let client = Client::new(identity.clone(), random(), now());
        Self::with(identity, client, Phase::Router(now() + ROUTERS_WITHIN))
    }

    /// Goes on with what an earlier daemon held.
    pub(super) fn resume(subject: &Subject, held: RecordOfIpv6) -> Self {
        let identity = Identity::of(&subject.names);
        let since = Duration::from_secs(held.since_seconds);
        let (phase, client, awaits_address) = match &held.given {
            Given::Slaac(_) => (Phase::Slaac, Client::new(identity.clone(), random(), since), None),
            Given::Leased(_) if held.is_lost => {
                (Phase::Client, Client::new(identity.clone(), random(), now()).spread(now(), random()), None)
            }
            Given::Leased(lease) => {
                let client = Client::resume(identity.clone(), random(), lease.clone(), since).spread(now(), random());
                // The earlier one may have ended before it set them.
                let until = (now() + ADDED_WITHIN).min(client.wakes());
                (Phase::Client, client, Some(until))
            }
        };
        Self { held: Some(held), is_attached: true, awaits_address, ..Self::with(identity, client, phase) }
    }

    fn with(identity: Identity, client: Client, phase: Phase) -> Self {
        let (exchange, last_sent, held) = (None, Duration::ZERO, None);
        Self { identity, client, phase, exchange, last_sent, held, is_attached: false, awaits_address: None }
    }

    /// The lease and its address, or the last ones.
    pub(super) fn held(&self) -> Option<&RecordOfIpv6> {
        self.held.as_ref()
    }

    /// ADD returns the address, which an interface plugin adds to the link then.
    pub(super) fn attached(&mut self) {
        self.is_attached = true;
        if self.client.held().is_some() {
            self.awaits_address = Some((now() + ADDED_WITHIN).min(self.client.wakes()));
        }
    }

    /// Waits until something happens, and carries on with it. It may be dropped at any time and called again.
    pub(super) async fn next(&mut self, place: &LinkOfLease<'_>) -> News {
        loop {
            let news = match (&self.phase, self.awaits_address) {
                (Phase::Slaac, _) => std::future::pending().await,
                (Phase::Router(until), _) => self.hear_routers(place, *until).await,
                (Phase::Client, Some(until)) => self.set_lifetimes(place, until).await,
                (Phase::Client, None) => self.talk(place).await,
            };
            if let Some(news) = news {
                return news;
            }
        }
    }

    async fn hear_routers(&mut self, place: &LinkOfLease<'_>, until: Duration) -> Option<News> {
        let open_link = match opened(place.open()) {
            Ok(open_link) => open_link,
            Err(news) => return self.after(news).await,
        };
        let names = &place.subject.names;
        match open_link.hear_routers(until.saturating_sub(now())).await {
            Ok(Heard::Own(addresses)) => {
                tracing::info!(?names, ?addresses, "the kernel has made an address of a router's prefix");
                let since_seconds = now().as_secs();
                self.held = Some(RecordOfIpv6 { given: Given::Slaac(addresses), since_seconds, is_lost: false });
                self.phase = Phase::Slaac;
                Some(News::Changed)
            }
            Ok(Heard::Managed) => {
                self.phase = Phase::Client;
                None
            }
            Ok(Heard::Nothing) => {
                tracing::info!(?names, "no router says how addresses are given; a DHCPv6 server is asked");
                self.phase = Phase::Client;
                None
            }
            Err(error) => {
                self.phase = Phase::Router(now() + ROUTERS_WITHIN);
                self.after(News::Trouble(error.to_string())).await
            }
        }
    }

    /// Trouble that comes again at once would keep the daemon busy.
    async fn after(&mut self, news: News) -> Option<News> {
        if let News::Trouble(_) = &news {
            sleep_until(now() + Duration::from_secs(1)).await;
        }
        Some(news)
    }

    async fn set_lifetimes(&mut self, place: &LinkOfLease<'_>, until: Duration) -> Option<News> {
        let Some((lease, since)) = self.client.held().map(|(lease, since)| (lease.clone(), since)) else {
            self.awaits_address = None;
            return None;
        };
        let open_link = match opened(place.open()) {
            Ok(open_link) => open_link,
            Err(news) => {
                self.awaits_address = None;
                return Some(news);
            }
        };
        let found = open_link.await_address(lease.network(), until.saturating_sub(now())).await;
        self.awaits_address = None;
        let set = found.and_then(|()| open_link.keep(lease.network(), lifetimes(&lease, since)));
        set.err().map(|error| News::Trouble(error.to_string()))
    }

    /// A step of the conversation with the servers.
    async fn talk(&mut self, place: &LinkOfLease<'_>) -> Option<News> {
        let (wakes, closes) = (self.client.wakes(), self.last_sent + LISTENS);
        tokio::select! {
            () = sleep_until(wakes) => (now() >= wakes).then(|| self.wake(place))?,
            () = sleep_until(closes), if self.exchange.is_some() => {
                if now() >= closes {
                    self.exchange = None;
                }
                None
            }
            received = receive(self.exchange.as_ref(), &self.identity) => match received {
                Ok(message) => {
                    let actions = self.client.receive(message, now(), random());
                    self.perform(actions, place)
                }
                Err(error) => {
                    tracing::debug!(%error, "the link does not receive");
                    self.exchange = None;
                    None
                }
            },
        }
    }

    fn wake(&mut self, place: &LinkOfLease<'_>) -> Option<News> {
        let mut trouble = None;
        if self.exchange.is_none() {
            match opened(place.open().and_then(Exchange::open)) {
                Ok(exchange) => self.exchange = Some(exchange),
                Err(News::Gone(why)) => return Some(News::Gone(why)),
                Err(news) => trouble = Some(news),
            }
        }
        let actions = self.client.wake(now(), random());
        self.last_sent = now();
        let news = self.perform(actions, place);
        match trouble {
            Some(trouble) if !matches!(news, Some(News::Lost(_))) => Some(trouble),
            _ => news,
        }
    }

    fn perform(&mut self, actions: Result<Actions, String>, place: &LinkOfLease<'_>) -> Option<News> {
        let Actions { send, event } = match actions {
            Ok(actions) => actions,
            Err(why) => return Some(News::Trouble(why)),
        };
        let mut news = None;
        if let (Some(bytes), Some(exchange)) = (send, &self.exchange) {
            self.last_sent = now();
            news = exchange.send(&bytes).err().map(News::Trouble);
        }
        match event {
            None => news,
            Some(Event::Bound) => Some(self.bound(place)),
            Some(Event::Lost { why }) => Some(self.lost(why, place)),
            Some(Event::Unusable { why }) => Some(News::Trouble(why)),
        }
    }

    fn bound(&mut self, place: &LinkOfLease<'_>) -> News {
        let Some((lease, since)) = self.client.held().map(|(lease, since)| (lease.clone(), since)) else {
            return News::Changed;
        };
        let names = &place.subject.names;
        tracing::info!(?names, address = %lease.address, seconds = lease.seconds, "bound by DHCPv6");
        let old = self.held.replace(RecordOfIpv6 {
            given: Given::Leased(lease.clone()),
            since_seconds: since.as_secs(),
            is_lost: false,
        });
        let exchange = self.exchange.take();
        let (true, Some(Exchange { open_link, .. })) = (self.is_attached, exchange) else { return News::Changed };
        let set = open_link.keep(lease.network(), lifetimes(&lease, since)).and_then(|()| match old {
            Some(RecordOfIpv6 { given: Given::Leased(old), .. }) if old.address != lease.address => {
                tracing::warn!(?names, old = %old.address, new = %lease.address, "the link gets another IPv6 address");
                open_link.remove_address(old.network())
            }
            _ => Ok(()),
        });
        set.map_or_else(|error| News::Trouble(error.to_string()), |()| News::Changed)
    }

    fn lost(&mut self, why: String, place: &LinkOfLease<'_>) -> News {
        tracing::error!(names = ?place.subject.names, why, "the IPv6 lease has ended, and the link loses the address");
        let Some(held) = &mut self.held else { return News::Lost(why) };
        held.is_lost = true;
        if let (Some(Exchange { open_link, .. }), Given::Leased(lease), true) =
            (&self.exchange, &held.given, self.is_attached)
            && let Err(error) = open_link.remove_address(lease.network())
        {
            return News::Lost(format!("{why}; {error}"));
        }
        News::Lost(why)
    }

    /// Releases the lease, if there is one. The message is sent once: the link is about to go.
    pub(super) fn give_back(&mut self, place: &LinkOfLease<'_>) {
        self.exchange = None;
        let Some(lease) = self.client.held().map(|(lease, _)| lease.clone()) else { return };
        let Some(bytes) = self.client.release() else { return };
        let sent = place.open().map_err(LinkError::why).and_then(|open_link| {
            // RFC 8415, 18.2.7: the client stops using the address before it sends Release.
            if self.is_attached {
                open_link.remove_address(lease.network()).map_err(|error| error.to_string())?;
            }
            Exchange::open(open_link).map_err(LinkError::why)?.send(&bytes)
        });
        if let Err(why) = sent {
            let names = &place.subject.names;
            tracing::warn!(
                ?names,
                why,
                "the DHCPv6 server does not learn that the lease is released, and keeps it until it ends"
            );
        }
    }
}

impl Exchange {
    fn open(open_link: OpenLink) -> Result<Self, LinkError> {
        let socket = open_link.dhcpv6().map_err(LinkError::Failed)?;
        Ok(Self { open_link, socket })
    }

    fn send(&self, bytes: &[u8]) -> Result<(), String> {
        let (servers, port) = SERVERS;
        let to = SocketAddrV6::new(servers, port, 0, self.open_link.link.index);
        let sent = SockRef::from(&self.socket).send_to(bytes, &to.into());
        sent.map(drop)
            .map_err(|error| format!("cannot send to the DHCPv6 servers of {}: {error}", self.open_link.link.name))
    }
}

/// The next message for the client.
async fn receive(exchange: Option<&Exchange>, identity: &Identity) -> std::io::Result<Incoming> {
    let Some(Exchange { socket, .. }) = exchange else { return std::future::pending().await };
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(message) = buffer.get(..length).and_then(|bytes| Incoming::decode(bytes, identity)) {
            return Ok(message);
        }
    }
}

fn opened<T>(opened: Result<T, LinkError>) -> Result<T, News> {
    opened.map_err(|error| match error {
        LinkError::Gone(why) => News::Gone(why),
        LinkError::Failed(why) => News::Trouble(why),
    })
}

/// The times that a lease has left.
fn lifetimes(lease: &Lease, since: Duration) -> Lifetimes {
    let passed = u32::try_from(now().saturating_sub(since).as_secs()).unwrap_or(INFINITE);
    let left = |seconds: u32| if seconds == INFINITE { INFINITE } else { seconds.saturating_sub(passed) };
    // The kernel takes no 0: the lease ends within this second.
    Lifetimes { preferred: left(lease.preferred_seconds), valid: left(lease.seconds).max(1) }
}
