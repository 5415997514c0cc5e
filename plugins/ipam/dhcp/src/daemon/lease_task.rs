//! Keeps one lease: asks for it, renews it, and gives it back, when [`crate::client`] says so. A task each, on one event loop, whose timer wheel is theirs.

mod conflict;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use cni_spec::{CniError, Code};
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::clock::{now, sleep_until};
use super::ipv6::{Ipv6, LinkOfLease, News};
use super::open_link::{Exchange, LISTENS, LinkError, OpenLink, SERVER_PORT, receive, send_from_node};
use crate::client::{Actions, Client, Event, Identity, To};
use crate::lease::Lease;
use crate::lease_files::{self, LeaseRecord, Subject};
use crate::message::Incoming;
use crate::rpc::Granted;

/// A request of another task to a lease task.
#[derive(Debug)]
pub(super) enum Order {
    /// Give the lease back, and end.
    Release(oneshot::Sender<Result<(), String>>),
    Report(oneshot::Sender<Option<LeaseRecord>>),
    Check(oneshot::Sender<Result<LeaseRecord, String>>),
}

/// The outcome of the first request, for ADD.
pub(super) type First = oneshot::Sender<Result<Granted, CniError>>;

pub(super) struct LeaseTask {
    shared: Rc<Shared>,
    subject: Subject,
    client: Client,
    /// The other family's part, if it was asked for.
    ipv6: Option<Ipv6>,
    exchange: Option<Exchange>,
    last_sent: Duration,
    last_error: String,
    /// The last lease, and when it was asked for.
    last: Option<(Lease, Duration)>,
    /// The lease has ended: the link does not have its address any more.
    is_lost: bool,
    /// The link was set down, as no server renewed the lease.
    is_down: bool,
}

/// Why a lease task ends by itself.
enum End {
    Gone(String),
    NotBound(CniError),
}

pub(super) fn random() -> u32 {
    getrandom::u32().unwrap_or_else(|_| now().subsec_nanos())
}

impl LeaseTask {
    /// Opens the link, sets it up as the reference's daemon does, and begins.
    pub(super) fn begin(shared: Rc<Shared>, mut subject: Subject) -> Result<Self, CniError> {
        let path = shared.flags.on_host(&subject.sandbox.path);
        let invalid = |why: String| CniError::new(Code::INVALID_NETNS, format!("cannot look for a DHCP server: {why}"));
        let open_link =
            OpenLink::open(&path, &subject.sandbox, &subject.names.ifname).map_err(|error| invalid(error.why()))?;
        let mac =
            open_link.link.mac.ok_or_else(|| invalid(format!("{} has no Ethernet address", open_link.link.name)))?;
        let kernel = |error: netops::OpError| CniError::new(Code::KERNEL, error.to_string()).detail(error.details());
        if !open_link.link.up {
            open_link.set_up(true).map_err(kernel)?;
        }
        (subject.mac, subject.index) = (mac.0, open_link.link.index);
        let client = Client::new(identity(&shared, &subject), shared.flags.timing, random(), now());
        let ipv6 = subject.extras.ipv6.then(|| Ipv6::begin(&subject));
        let exchange = Some(Exchange::open(open_link).map_err(kernel)?);
        Ok(Self { exchange, ipv6, ..Self::with(shared, subject, client) })
    }

    /// Goes on with a lease that an earlier daemon held.
    pub(super) fn resume(shared: Rc<Shared>, record: LeaseRecord) -> Self {
        let LeaseRecord { subject, lease, ipv6, since_seconds, is_lost, last_error, .. } = record;
        let since = Duration::from_secs(since_seconds);
        let (identity, timing) = (identity(&shared, &subject), shared.flags.timing);
        let client = match is_lost {
            true => Client::new(identity, timing, random(), now()).wanting(lease.address.ip()),
            false => Client::resume(identity, timing, random(), lease.clone(), since),
        };
        let client = client.spread(now(), random());
        let last = Some((lease, since));
        let ipv6 = ipv6.map(|held| Ipv6::resume(&subject, held));
        let is_down = is_lost && !subject.extras.ipv6;
        Self { last, ipv6, is_lost, is_down, last_error, ..Self::with(shared, subject, client) }
    }

    fn with(shared: Rc<Shared>, subject: Subject, client: Client) -> Self {
        let (last_sent, last_error) = (Duration::ZERO, String::new());
        let (ipv6, exchange, last, is_lost, is_down) = (None, None, None, false, false);
        Self { shared, subject, client, ipv6, exchange, last_sent, last_error, last, is_lost, is_down }
    }

    /// Keeps the lease until it is released, or its link is gone. `first` gets the first lease, or the reason why there is
    /// none within the time for it; then the lease task ends.
    pub(super) async fn keep(mut self, mut orders: mpsc::Receiver<Order>, mut first: Option<First>) {
        let gives_up = now() + self.shared.flags.resend_timeout;
        let end = loop {
            let until = match &first {
                Some(_) => self.client.wakes().min(gives_up),
                None => self.client.wakes(),
            };
            let step = tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Release(done)) => {
                        // The lease is given back even if the caller is gone.
                        drop(done.send(self.give_back()));
                        return;
                    }
                    Some(Order::Report(answer)) => {
                        drop(answer.send(self.record()));
                        continue;
                    }
                    Some(Order::Check(answer)) => {
                        drop(answer.send(self.check()));
                        continue;
                    }
                    None => return, // the daemon ends; leases stay for the next one
                },
                () = closed(&mut first) => {
                    tracing::info!(names = ?self.subject.names, "the plugin ended before its lease came");
                    drop(self.give_back());
                    return;
                }
                () = sleep_until(until) => {
                    if first.is_some() && now() >= gives_up {
                        Err(End::NotBound(self.no_server()))
                    } else if now() >= self.client.wakes() {
                        self.wake()
                    } else {
                        Ok(None)
                    }
                }
                received = receive(self.exchange.as_ref(), self.last_sent + LISTENS, self.subject.mac) => {
                    self.take(received)
                }
                news = news(self.ipv6.as_mut(), &self.shared, &self.subject, self.last.as_ref()) => {
                    self.heard(news, &mut first).map(|()| None)
                }
            };
            match step {
                Ok(None) => (),
                Ok(Some(event)) => {
                    let event = self.probed(event).await;
                    if let Err(end) = self.happened(event, &mut first) {
                        break end;
                    }
                }
                Err(end) => break end,
            }
        };
        let error = match end {
            End::NotBound(error) => error,
            End::Gone(why) => {
                tracing::info!(names = ?self.subject.names, why, "the link is gone, and its lease is given back");
                CniError::new(Code::INVALID_NETNS, format!("cannot keep the lease: {why}"))
            }
        };
        drop(self.give_back());
        if let Some(first) = first.take() {
            drop(first.send(Err(error)));
        }
    }

    fn wake(&mut self) -> Result<Option<Event>, End> {
        self.open()?;
        let actions = self.client.wake(now(), random());
        self.perform(actions)
    }

    fn take(&mut self, received: Option<Incoming>) -> Result<Option<Event>, End> {
        match received {
            Some(message) => {
                let actions = self.client.receive(&message, now(), random());
                self.perform(actions)
            }
            // Nothing came in time, or the link went down: nothing is kept open until the next message.
            None => {
                self.close();
                Ok(None)
            }
        }
    }

    /// Opens the link for an exchange, if it is not open.
    fn open(&mut self) -> Result<(), End> {
        if self.exchange.is_some() {
            return Ok(());
        }
        let opened = self.reopen().and_then(|open_link| {
            if self.is_down {
                open_link.set_up(true).map_err(|error| LinkError::Failed(error.to_string()))?;
            }
            Exchange::open(open_link).map_err(|error| LinkError::Failed(error.to_string()))
        });
        match opened {
            Ok(exchange) => self.exchange = Some(exchange),
            Err(LinkError::Gone(why)) => return Err(End::Gone(why)),
            Err(LinkError::Failed(why)) => self.trouble(why),
        }
        Ok(())
    }

    fn reopen(&self) -> Result<OpenLink, LinkError> {
        place(&self.shared, &self.subject, self.last.as_ref()).open()
    }

    /// Applies news of the IPv6 address to the record and ADD.
    fn heard(&mut self, news: News, first: &mut Option<First>) -> Result<(), End> {
        match news {
            News::Changed => {
                if self.record().and_then(LeaseRecord::granted).is_some() {
                    self.last_error.clear();
                }
                self.answer(first)
            }
            News::Lost(why) => {
                self.last_error = why;
                self.save();
                Ok(())
            }
            News::Trouble(why) => {
                self.trouble(why);
                // The lease may be new nevertheless: only the link could not be changed.
                if first.is_none() {
                    self.save();
                }
                Ok(())
            }
            News::Gone(why) => Err(End::Gone(why)),
        }
    }

    fn close(&mut self) {
        let Some(Exchange { open_link, .. }) = self.exchange.take() else { return };
        if self.is_down
            && let Err(error) = open_link.set_up(false)
        {
            self.trouble(error.to_string());
        }
    }

    fn perform(&mut self, actions: Result<Actions, String>) -> Result<Option<Event>, End> {
        let Actions { send, event } = actions.map_err(|why| End::NotBound(CniError::new(Code::INVALID_CONFIG, why)))?;
        if let Some((to, bytes)) = send {
            self.last_sent = now();
            if let Err(why) = self.send(to, &bytes) {
                self.trouble(why);
            }
        }
        Ok(event)
    }

    fn send(&mut self, to: To, bytes: &[u8]) -> Result<(), String> {
        self.exchange.as_mut().ok_or("the link is not open")?.send(to, bytes)
    }

    /// Applies an event to the link, the record and ADD.
    fn happened(&mut self, event: Event, first: &mut Option<First>) -> Result<(), End> {
        match event {
            Event::Bound(lease) => self.bound(lease, first),
            Event::Unusable { why } => {
                self.trouble(why);
                Ok(())
            }
            Event::Lost { why, is_refused } => {
                let names = &self.subject.names;
                tracing::error!(?names, why, "the lease has ended, and the link loses its address");
                self.last_error = why;
                // IPv6 goes on where it was asked for.
                (self.is_lost, self.is_down) = (true, !is_refused && !self.subject.extras.ipv6);
                let address = self.last.as_ref().map(|(lease, _)| lease.address);
                if let (Some(exchange), Some(address)) = (&self.exchange, address)
                    && let Err(error) = exchange.open_link.remove_address(address.into())
                {
                    self.trouble(error.to_string());
                }
                if self.is_down {
                    self.close();
                }
                self.save();
                Ok(())
            }
        }
    }

    fn bound(&mut self, lease: Lease, first: &mut Option<First>) -> Result<(), End> {
        let names = &self.subject.names;
        tracing::info!(?names, address = %lease.address, server = %lease.server, seconds = lease.seconds, "bound");
        self.last_error.clear();
        let old = self.last.as_ref().map(|(lease, _)| lease.address).filter(|_| first.is_none());
        if let (Some(old), Some(exchange)) = (old, &self.exchange)
            && (self.is_lost || old != lease.address)
        {
            tracing::warn!(?names, %old, new = %lease.address, "the link gets the address of the new lease");
            let removed = if old == lease.address { Ok(()) } else { exchange.open_link.remove_address(old.into()) };
            if let Err(error) = removed.and_then(|()| exchange.open_link.configure(&lease, self.subject.priority)) {
                self.trouble(error.to_string());
            }
        }
        if let (true, Some(exchange), Some(mtu)) = (self.subject.extras.use_mtu, &self.exchange, lease.mtu_bytes)
            && let Err(error) = exchange.open_link.lower_mtu(mtu)
        {
            self.trouble(error.to_string());
        }
        (self.is_lost, self.is_down) = (false, false);
        self.last = self.client.held().map(|(lease, since)| (lease.clone(), since));
        self.close();
        self.answer(first)
    }

    /// Saves what there is, and gives it to ADD if that is all that was asked for.
    fn answer(&mut self, first: &mut Option<First>) -> Result<(), End> {
        let saved = self.save();
        let Some(granted) = self.record().and_then(LeaseRecord::granted) else { return Ok(()) };
        let Some(first) = first.take() else { return Ok(()) };
        if !saved {
            let msg = format!("cannot keep the lease {}: {}", granted.lease.address, self.last_error);
            drop(first.send(Err(CniError::new(Code::STATE, msg))));
            return Err(End::NotBound(CniError::new(Code::STATE, "not saved")));
        }
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.attached();
        }
        match first.send(Ok(granted)) {
            Ok(()) => Ok(()),
            Err(_) => Err(End::Gone("the plugin ended before its lease came".into())),
        }
    }

    /// Releases the lease, if there is one, and forgets it.
    fn give_back(&mut self) -> Result<(), String> {
        if let Some((To::Server { from, server }, bytes)) = self.client.release() {
            let names = &self.subject.names;
            match self.send_release(from, server, &bytes) {
                Ok(()) => tracing::info!(?names, address = %from, %server, "the lease is released"),
                Err(why) => tracing::warn!(
                    ?names,
                    why,
                    "the server does not learn that the lease is released, and keeps it until it ends"
                ),
            }
        }
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.give_back(&place(&self.shared, &self.subject, self.last.as_ref()));
        }
        self.close();
        lease_files::remove(&self.shared.folder, &self.subject.names)
    }

    /// Sends to all stations of a link with the server, as the link may be gone before ARP has an answer; else by the
    /// namespace's routes; for a link that is gone by the node's.
    fn send_release(&self, from: Ipv4Addr, server: Ipv4Addr, bytes: &[u8]) -> Result<(), String> {
        let is_near = self.last.as_ref().is_some_and(|(lease, _)| lease.address.contains(server));
        match self.reopen() {
            Ok(open_link) if is_near => open_link
                .listen()
                .and_then(|udp| udp.send(from, SocketAddrV4::new(server, SERVER_PORT), bytes))
                .map_err(|error| error.to_string()),
            Ok(open_link) => open_link.send(from, server, bytes).map(drop),
            Err(error) => {
                send_from_node(server, bytes).map_err(|sent| format!("{}; from the node: {sent}", error.why()))
            }
        }
    }

    fn check(&self) -> Result<LeaseRecord, String> {
        let record = self.record().filter(|record| record.clone().granted().is_some());
        let record = record.ok_or_else(|| match &*self.last_error {
            "" => "no server has given one yet".to_owned(),
            error => error.to_owned(),
        })?;
        self.reopen().map_err(LinkError::why)?;
        Ok(record)
    }

    fn record(&self) -> Option<LeaseRecord> {
        let (lease, since) = self.last.clone()?;
        Some(LeaseRecord {
            subject: self.subject.clone(),
            lease,
            ipv6: self.ipv6.as_ref().and_then(|ipv6| ipv6.held().cloned()),
            since_seconds: since.as_secs(),
            boot: self.shared.boot.clone(),
            is_lost: self.is_lost,
            last_error: self.last_error.clone(),
            is_released: false,
        })
    }

    fn save(&mut self) -> bool {
        let Some(record) = self.record() else { return false };
        match lease_files::write(&self.shared.folder, &record) {
            Ok(()) => true,
            Err(why) => {
                self.trouble(why);
                false
            }
        }
    }

    fn trouble(&mut self, why: String) {
        tracing::warn!(names = ?self.subject.names, why, "the lease is in trouble");
        self.last_error = why;
    }

    fn no_server(&self) -> CniError {
        let within = self.shared.flags.resend_timeout.as_secs();
        let server = match self.last {
            None => "no DHCP server",
            Some(_) => "no DHCPv6 server or router",
        };
        let why = if self.last_error.is_empty() { String::new() } else { format!(": {}", self.last_error) };
        let msg = format!("{server} gave {} an address within {within} s{why}", self.subject.names.ifname);
        CniError::new(Code::NO_ADDRESS, msg)
            .detail("Look at the server's log for the client identifier, and whether the link reaches the server.")
    }
}

fn identity(shared: &Shared, subject: &Subject) -> Identity {
    Identity {
        mac: subject.mac,
        client_id: subject.client_id.clone(),
        options: subject.provide.clone(),
        request: subject.request.clone(),
        broadcast: shared.flags.broadcast,
    }
}

/// The other family's news; never any if it was not asked for.
async fn news(
    ipv6: Option<&mut Ipv6>,
    shared: &Rc<Shared>,
    subject: &Subject,
    last: Option<&(Lease, Duration)>,
) -> News {
    match ipv6 {
        Some(ipv6) => ipv6.next(&place(shared, subject, last)).await,
        None => std::future::pending().await,
    }
}

fn place<'a>(shared: &'a Rc<Shared>, subject: &'a Subject, last: Option<&'a (Lease, Duration)>) -> LinkOfLease<'a> {
    LinkOfLease { shared, subject, lease: last.map(|(lease, _)| lease) }
}

/// Waits until the plugin that waits for the first lease has ended.
async fn closed(first: &mut Option<First>) {
    match first {
        Some(first) => first.closed().await,
        None => std::future::pending().await,
    }
}
