//! etcd, version 3: the document is the value of one key for each network, and its version is the key's revision.
//!
//! A call asks one member after the other, each for its part of the time that is left. A write of which a member may have got
//! something is asked of no other one: its outcome is unknown, and the caller finds out by reading.

mod channel;
mod conf;
mod wire;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use cluster_keys::{Endpoint, EtcdConf};
use cni_spec::{CniError, Code};
use prost::Message;
use rustls::ClientConfig;

use super::{Store, Version, decode};
use crate::protocol::State;
use channel::{Channel, Failed};
use wire::{Compare, EQUAL, MOD, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, Union};

/// Methods of the KV service.
const RANGE: &str = "Range";
const TXN: &str = "Txn";
/// How long no member is asked after each of them has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A network's document in etcd.
pub struct Etcd {
    conf: EtcdConf,
    key: String,
    timeout: Duration,
    /// When the members' time is over: it begins anew with each answer.
    deadline: Cell<Option<Instant>>,
    tls: RefCell<Option<Arc<ClientConfig>>>,
    /// The member that answered last.
    open: RefCell<Option<(usize, Channel)>>,
}

impl Etcd {
    /// The document of `network`.
    #[must_use]
    pub fn new(conf: &EtcdConf, network: &str, timeout: Duration) -> Self {
        Self {
            key: format!("{}/{network}", conf.prefix),
            conf: conf.clone(),
            timeout,
            deadline: Cell::new(None),
            tls: RefCell::new(None),
            open: RefCell::new(None),
        }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, CniError> {
        let mut tls = self.tls.borrow_mut();
        match &*tls {
            Some(tls) => Ok(Arc::clone(tls)),
            None => Ok(Arc::clone(tls.insert(conf::tls(&self.conf)?))),
        }
    }

    /// Asks members, round after round, until one answers or the time is over. A write that was sent is not sent again.
    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, CniError> {
        event_loop().await;
        let tls = self.tls()?;
        let deadline = self.deadline.get().unwrap_or_else(|| Instant::now() + self.timeout);
        self.deadline.set(Some(deadline));
        loop {
            let mut failures = Vec::new();
            for (at, share) in self.turns(deadline) {
                let Some(endpoint) = self.conf.endpoints.get(at) else { continue };
                let is_sent = Cell::new(false);
                let asked = tokio::time::timeout(share, self.ask(at, &tls, method, request, &is_sent)).await;
                let why = match asked {
                    Ok(Ok(answer)) => {
                        self.deadline.set(None);
                        return Ok(answer);
                    }
                    Ok(Err(Failed::Refused(why))) => return Err(self.refused(endpoint, &why)),
                    Ok(Err(Failed::Away(why))) => why,
                    Err(_elapsed) => format!("no answer within {} ms", share.as_millis()),
                };
                self.open.take();
                failures.push(format!("{endpoint}: {why}"));
                if is_sent.get() && method == TXN {
                    return Err(self.unavailable(&failures));
                }
            }
            if deadline.saturating_duration_since(Instant::now()) <= PAUSE {
                return Err(self.unavailable(&failures));
            }
            pause().await;
        }
    }

    /// The members in the order of this round, the one that answered last first; each with its part of the time that is left.
    fn turns(&self, deadline: Instant) -> impl Iterator<Item = (usize, Duration)> {
        let count = self.conf.endpoints.len();
        let first = match &*self.open.borrow() {
            Some((at, _)) => *at,
            // Nodes and calls begin with different ones.
            None => usize::try_from(std::process::id()).unwrap_or_default(),
        };
        (0..count).map(move |turn| {
            let left = deadline.saturating_duration_since(Instant::now());
            ((first + turn) % count, left / u32::try_from(count - turn).unwrap_or(1))
        })
    }

    async fn ask<A: Message + Default>(
        &self,
        at: usize,
        tls: &Arc<ClientConfig>,
        method: &str,
        request: &impl Message,
        is_sent: &Cell<bool>,
    ) -> Result<A, Failed> {
        let channel = match (self.open.take(), self.conf.endpoints.get(at)) {
            (Some((of, channel)), _) if of == at => channel,
            (_, Some(endpoint)) => Channel::open(endpoint, Arc::clone(tls)).await?,
            (_, None) => return Err(Failed::Away("no such endpoint".to_owned())),
        };
        let answer = channel.call(method, request, is_sent).await?;
        self.open.replace(Some((at, channel)));
        Ok(answer)
    }

    fn unavailable(&self, failures: &[String]) -> CniError {
        let names: Vec<String> = self.conf.endpoints.iter().map(ToString::to_string).collect();
        let text = format!("the store etcd at {} is not available", names.join(", "));
        CniError::new(Code::TRY_AGAIN, text).detail(format!(
            "{}. Look at the members: etcdctl endpoint health. Key ipam.store.endpoints names them.",
            failures.join("; ")
        ))
    }

    fn refused(&self, endpoint: &Endpoint, why: &str) -> CniError {
        let text = format!("etcd at {endpoint} refuses key {}: {why}", self.key);
        CniError::new(Code::PERMISSION, text).detail(format!(
            "The user is the common name of the certificate in ipam.store.certFile. Its role needs: etcdctl role \
             grant-permission ROLE readwrite {}",
            self.key
        ))
    }
}

impl Store for Etcd {
    async fn read(&self) -> Result<(State, Version), CniError> {
        let request = RangeRequest { key: self.key.clone().into_bytes() };
        let answer: RangeResponse = self.call(RANGE, &request).await?;
        let Some(found) = answer.kvs.first() else { return Ok((State::default(), Version::revision(0))) };
        let state = decode(&format!("key {} of etcd", self.key), &found.value)?;
        Ok((state, Version::revision(found.mod_revision)))
    }

    async fn replace(&self, version: &Version, next: &State) -> Result<bool, CniError> {
        let key = self.key.clone().into_bytes();
        let union = Some(Union::ModRevision(version.as_revision()));
        // Without spaces: each write sends the whole document, and etcd keeps its earlier states.
        let value = serde_json::to_vec(next)
            .map_err(|error| CniError::new(Code::STATE, format!("cannot write key {} of etcd: {error}", self.key)))?;
        let put = PutRequest { key: key.clone(), value };
        let request = TxnRequest {
            compare: vec![Compare { result: EQUAL, target: MOD, key, union }],
            success: vec![RequestOp { put: Some(put) }],
        };
        let answer: TxnResponse = self.call(TXN, &request).await?;
        Ok(answer.succeeded)
    }
}

/// Waits for the event loop that sockets need: the first wait of a verb makes it.
async fn event_loop() {
    let is_there = || tokio::runtime::Handle::try_current().is_ok();
    std::future::poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Lets members elect a leader, or start: meanwhile they refuse at once, and they announce nothing.
#[expect(clippy::disallowed_methods, reason = "no event of another machine can be awaited")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
