//! etcd, version 3: a record is the value of a key below `PREFIX/NETWORK/`, and its version is the key's revision. Writes are one transaction.
//!
//! A call asks one member after the other, each for its part of the time that is left. A write of which a member may have got
//! something is asked of no other one: its outcome is unknown, and the caller finds out by reading.

mod channel;
mod conf;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use cluster_keys::{Endpoint, EtcdConf};
use cni_spec::{CniError, Code};
use prost::Message;
use rustls::ClientConfig;

use super::{Found, Store, Written, decode, encode};
use crate::protocol::{Key, Record, Write};
use channel::{Channel, Failed};
use wire::{
    Compare, DeleteRangeRequest, EQUAL, KeyValue, MOD, Op, PutRequest, RangeRequest, RangeResponse, RequestOp,
    TxnRequest, TxnResponse, Union,
};

/// Methods of the KV service.
const RANGE: &str = "Range";
const TXN: &str = "Txn";
/// Operations of a transaction: a member refuses more than 128.
const OPS_MAX: usize = 100;
/// Records of one answer, which have 64 KiB each at most.
const PAGE: i64 = 500;
/// How long no member is asked after each of them has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A network's records in etcd.
pub struct Etcd {
    conf: EtcdConf,
    /// What the keys begin with.
    prefix: String,
    timeout: Duration,
    /// When the members' time is over: it begins anew with each answer.
    deadline: Cell<Option<Instant>>,
    tls: RefCell<Option<Arc<ClientConfig>>>,
    /// The member that answered last.
    open: RefCell<Option<(usize, Channel)>>,
}

impl Etcd {
    /// The records of `network`.
    #[must_use]
    pub fn new(conf: &EtcdConf, network: &str, timeout: Duration) -> Self {
        Self {
            prefix: format!("{}/{network}/", conf.prefix),
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
    async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
        is_write: bool,
    ) -> Result<A, CniError> {
        event_loop().await;
        let tls = self.tls()?;
        let deadline = self.deadline.get().unwrap_or_else(|| Instant::now() + self.timeout);
        self.deadline.set(Some(deadline));
        // What a member said is more than that it said nothing in what was left of the time.
        let mut failures = BTreeMap::new();
        loop {
            for (at, share) in self.turns(deadline) {
                let Some(endpoint) = self.conf.endpoints.get(at) else { continue };
                let is_sent = Cell::new(false);
                let asked = tokio::time::timeout(share, self.ask(at, &tls, method, request, &is_sent)).await;
                match asked {
                    Ok(Ok(answer)) => {
                        self.deadline.set(None);
                        return Ok(answer);
                    }
                    Ok(Err(Failed::Refused(why))) => return Err(self.refused(endpoint, &why)),
                    Ok(Err(Failed::Full(why))) => return Err(full(endpoint, &why)),
                    Ok(Err(Failed::Away(why))) => drop(failures.insert(at, format!("{endpoint}: {why}"))),
                    Err(_elapsed) => {
                        let why = || format!("{endpoint}: no answer within {} ms", share.as_millis());
                        failures.entry(at).or_insert_with(why);
                    }
                }
                self.open.take();
                if is_sent.get() && is_write {
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

    fn unavailable(&self, failures: &BTreeMap<usize, String>) -> CniError {
        let names: Vec<String> = self.conf.endpoints.iter().map(ToString::to_string).collect();
        let text = format!("the store etcd at {} is not available", names.join(", "));
        CniError::new(Code::TRY_AGAIN, text).detail(format!(
            "{}. Look at the members: etcdctl endpoint health. Key ipam.store.endpoints names them.",
            failures.values().map(String::as_str).collect::<Vec<_>>().join("; ")
        ))
    }

    fn refused(&self, endpoint: &Endpoint, why: &str) -> CniError {
        let text = format!("etcd at {endpoint} refuses the keys {}: {why}", self.prefix);
        CniError::new(Code::PERMISSION, text).detail(format!(
            "The user is the common name of the certificate in ipam.store.certFile. Its role needs: etcdctl role \
             grant-permission ROLE readwrite --prefix {}",
            self.prefix
        ))
    }

    fn range(&self, key: &Key) -> RangeRequest {
        RangeRequest { key: self.path(key), ..RangeRequest::default() }
    }

    fn path(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }

    fn record(&self, key: &Key, found: &KeyValue) -> Result<Found, CniError> {
        let record = decode(&format!("key {}{key} of etcd", self.prefix), key, &found.value)?;
        Ok((u64::try_from(found.mod_revision).unwrap_or_default(), Some(record)))
    }
}

/// An answer that no retry and no other member changes.
fn full(endpoint: &Endpoint, why: &str) -> CniError {
    CniError::new(Code::IO, format!("etcd at {endpoint} takes no more: {why}")).detail(match why.contains("space") {
        true => {
            "Its database has the size of --quota-backend-bytes: compact and defragment it, then clear the alarm: etcdctl compact REVISION; etcdctl \
             defrag; etcdctl alarm disarm. Set --auto-compaction-retention."
        }
        false => "A record of 64 KiB needs members with the default of --max-request-bytes, or more.",
    })
}

impl Store for Etcd {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Found>, CniError> {
        let mut found = Vec::new();
        for keys in keys.chunks(OPS_MAX) {
            let ask = |key: &Key| RequestOp { op: Some(Op::Range(self.range(key))) };
            let request = TxnRequest { compare: Vec::new(), success: keys.iter().map(ask).collect() };
            let answer: TxnResponse = self.call(TXN, &request, false).await?;
            for (at, key) in keys.iter().enumerate() {
                let range = answer.responses.get(at).and_then(|response| response.range.as_ref());
                match range.and_then(|range| range.kvs.first()) {
                    Some(value) => found.push(self.record(key, value)?),
                    None => found.push((0, None)),
                }
            }
        }
        Ok(found)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, u64, Record)>, CniError> {
        let first = format!("{}{prefix}", self.prefix).into_bytes();
        // The next key that does not begin so: the prefix ends with a slash.
        let range_end = [&first[..first.len() - 1], &[b'/' + 1]].concat();
        let (mut all, mut from) = (Vec::new(), first);
        loop {
            let request = RangeRequest { key: from, range_end: range_end.clone(), limit: PAGE };
            let answer: RangeResponse = self.call(RANGE, &request, false).await?;
            for found in &answer.kvs {
                let name = std::str::from_utf8(&found.key).ok().and_then(|name| name.strip_prefix(&self.prefix));
                if let Some(key) = name.and_then(Key::parse)
                    && let (version, Some(record)) = self.record(&key, found)?
                {
                    all.push((key, version, record));
                }
            }
            match answer.kvs.last().filter(|_| answer.more) {
                Some(last) => from = [&last.key[..], &[0]].concat(),
                None => return Ok(all),
            }
        }
    }

    /// A transaction for a revision that no key has: members ask for its space and its permissions all the same.
    async fn check_writable(&self) -> Result<(), CniError> {
        let key = self.path(&Key::Network);
        let compare =
            Compare { result: EQUAL, target: MOD, key: key.clone(), union: Some(Union::ModRevision(i64::MAX)) };
        let put = RequestOp { op: Some(Op::Put(PutRequest { key, value: b"{}".to_vec() })) };
        let request = TxnRequest { compare: vec![compare], success: vec![put] };
        self.call::<TxnResponse>(TXN, &request, true).await.map(drop)
    }

    async fn write(&self, writes: &[Write]) -> Result<Written, CniError> {
        let mut is_begun = false;
        for writes in writes.chunks(OPS_MAX) {
            let mut request = TxnRequest::default();
            for write in writes {
                let key = self.path(&write.key);
                let union = Some(Union::ModRevision(i64::try_from(write.version).unwrap_or(i64::MAX)));
                request.compare.push(Compare { result: EQUAL, target: MOD, key: key.clone(), union });
                let op = match &write.record {
                    Some(record) => Op::Put(PutRequest { key, value: encode(&write.key, record)?.into_bytes() }),
                    None => Op::Delete(DeleteRangeRequest { key }),
                };
                request.success.push(RequestOp { op: Some(op) });
            }
            let answer: TxnResponse = self.call(TXN, &request, true).await?;
            if !answer.succeeded {
                return Ok(if is_begun { Written::InPart } else { Written::Nothing });
            }
            is_begun = true;
        }
        Ok(Written::Done)
    }
}

/// Waits for the event loop that sockets need: the first wait of a verb makes it.
pub(crate) async fn event_loop() {
    let is_there = || tokio::runtime::Handle::try_current().is_ok();
    std::future::poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Lets members elect a leader, or start: meanwhile they refuse at once, and they announce nothing.
#[expect(clippy::disallowed_methods, reason = "no event of another machine can be awaited")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
