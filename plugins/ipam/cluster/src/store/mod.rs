//! Where the records of all nodes are: keys with versions, and three operations, so that other stores can follow.

mod etcd;
mod folder;
#[cfg_attr(not(feature = "kubernetes"), path = "without_kubernetes.rs")]
mod kubernetes;

use std::cell::Cell;

use cluster_keys::{Conf, StoreConf};
use cni_spec::{CniError, Code};

use crate::protocol::{Key, Record, Shard, Write};
pub use etcd::Etcd;
pub(crate) use etcd::event_loop;
pub use folder::Folder;
pub use kubernetes::Kubernetes;

/// A record with its version, which each write of the key makes higher; 0: the key was never written.
pub type Found = (u64, Option<Record>);

/// What became of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All are done.
    Done,
    /// None is: a record has another version.
    Nothing,
    /// The writes before one whose record has another version are done.
    InPart,
}

/// A store of one network's records.
pub trait Store {
    /// The records of these keys, in their order.
    ///
    /// # Errors
    /// Code 11: the store does not answer in time. Code 106: a record cannot be used. Codes 102 and 5: the store refuses.
    fn read(&self, keys: &[Key]) -> impl Future<Output = Result<Vec<Found>, CniError>>;

    /// All records whose key begins with this, of which there may be many.
    ///
    /// # Errors
    /// As [`Store::read`].
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<(Key, u64, Record)>, CniError>>;

    /// Whether the store takes writes; nothing in it is changed.
    ///
    /// # Errors
    /// As [`Store::write`].
    fn check_writable(&self) -> impl Future<Output = Result<(), CniError>>;

    /// Writes records in this order, each if it still has its version; at the first that has not, it stops. A store may do all or none.
    ///
    /// # Errors
    /// As [`Store::read`]; with code 11 it is unknown how many were done, and one may be done later.
    fn write(&self, writes: &[Write]) -> impl Future<Output = Result<Written, CniError>>;
}

/// The store of one network.
#[must_use]
pub fn open(conf: &Conf) -> AnyStore {
    let kind = match &conf.store {
        StoreConf::Folder(folder) => Kind::Folder(Folder::new(folder, &conf.network)),
        StoreConf::Etcd(etcd) => Kind::Etcd(Box::new(Etcd::new(etcd, &conf.network, conf.timeout))),
        StoreConf::Kubernetes(kubernetes) => {
            Kind::Kubernetes(Box::new(Kubernetes::new(kubernetes, &conf.network, conf.timeout)))
        }
    };
    AnyStore { kind, is_away: Cell::new(false) }
}

enum Kind {
    Folder(Folder),
    Etcd(Box<Etcd>),
    Kubernetes(Box<Kubernetes>),
}

/// A store of any kind.
pub struct AnyStore {
    kind: Kind,
    /// Whether the store did not answer the last question.
    is_away: Cell<bool>,
}

impl AnyStore {
    /// The folder, if it is one: that of a missing mount cannot be told from a new one, so an operator makes a network's first record.
    #[must_use]
    pub fn folder(&self) -> Option<&Folder> {
        if let Kind::Folder(folder) = &self.kind { Some(folder) } else { None }
    }

    /// Whether the store did not answer the last question.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away.get()
    }

    fn noted<T>(&self, answer: Result<T, CniError>) -> Result<T, CniError> {
        self.is_away.set(answer.as_ref().is_err_and(|error| error.code == Code::TRY_AGAIN));
        answer
    }
}

/// The answer of the store, whichever it is.
macro_rules! answer {
    ($self:ident, $store:ident => $call:expr) => {
        $self.noted(match &$self.kind {
            Kind::Folder($store) => $call.await,
            Kind::Etcd($store) => $call.await,
            Kind::Kubernetes($store) => $call.await,
        })
    };
}

impl Store for AnyStore {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Found>, CniError> {
        answer!(self, store => store.read(keys))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, u64, Record)>, CniError> {
        answer!(self, store => store.list(prefix))
    }

    async fn check_writable(&self) -> Result<(), CniError> {
        answer!(self, store => store.check_writable())
    }

    async fn write(&self, writes: &[Write]) -> Result<Written, CniError> {
        answer!(self, store => store.write(writes))
    }
}

/// Reads a record. `place` names it.
fn decode(place: &str, key: &Key, bytes: &[u8]) -> Result<Record, CniError> {
    fn json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
    let record = match key {
        Key::Network => json(bytes).map(Record::Network),
        Key::Claim(_) => json(bytes).map(Record::Claim),
        Key::Runs(base) => Shard::decode(*base, bytes).map(Record::Runs),
        Key::Want(_) => json(bytes).map(Record::Want),
        Key::Cards => json(bytes).map(Record::Cards),
        Key::Node(_) => json(bytes).map(Record::Node),
    };
    record.map_err(|why| {
        CniError::new(Code::STATE, format!("cannot use the store, {place}: {why}")).detail(
            "If a newer release has written it, upgrade this node. Else put back an undamaged copy of the whole store, as README.md says.",
        )
    })
}

fn encode(key: &Key, record: &Record) -> Result<String, CniError> {
    let text = match (key, record) {
        (Key::Runs(base), Record::Runs(shard)) => shard.encode(*base),
        (_, Record::Runs(_)) => Err("runs have another key".to_owned()),
        (_, Record::Network(record)) => serde_json::to_string(record).map_err(|error| error.to_string()),
        (_, Record::Claim(record)) => serde_json::to_string(record).map_err(|error| error.to_string()),
        (_, Record::Want(record)) => serde_json::to_string(record).map_err(|error| error.to_string()),
        (_, Record::Cards(record)) => serde_json::to_string(record).map_err(|error| error.to_string()),
        (_, Record::Node(record)) => serde_json::to_string(record).map_err(|error| error.to_string()),
    };
    text.map_err(|why| CniError::new(Code::INTERNAL, format!("cannot write record {key}: {why}")))
}
