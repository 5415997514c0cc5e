//! Where the records of all nodes are: two operations, so that other stores can follow.

mod etcd;
mod folder;

use cluster_keys::{Conf, StoreConf};
use cni_spec::{CniError, Code};

use crate::protocol::{self, State};
pub use etcd::Etcd;
pub use folder::Folder;

/// A version of the document, which only the store understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(Vec<u8>);

impl Version {
    fn revision(revision: i64) -> Self {
        Self(revision.to_be_bytes().to_vec())
    }

    fn as_revision(&self) -> i64 {
        self.0.as_slice().try_into().map(i64::from_be_bytes).unwrap_or_default()
    }
}

/// A store of one network's document.
pub trait Store {
    /// The document with its version. Sees every [`Store::replace`] that was answered before.
    ///
    /// # Errors
    /// Code 11: the store does not answer in time. Code 106: the document cannot be used.
    fn read(&self) -> impl Future<Output = Result<(State, Version), CniError>>;

    /// Replaces the document if it still has that version; `false`: it has another one.
    ///
    /// # Errors
    /// As [`Store::read`]; whether the document was replaced is unknown then, and may be decided later.
    fn replace(&self, version: &Version, next: &State) -> impl Future<Output = Result<bool, CniError>>;
}

/// The store of one network.
#[must_use]
pub fn open(conf: &Conf) -> AnyStore {
    match &conf.store {
        StoreConf::Folder(folder) => AnyStore::Folder(Folder::new(folder, &conf.network, conf.timeout)),
        StoreConf::Etcd(etcd) => AnyStore::Etcd(Box::new(Etcd::new(etcd, &conf.network, conf.timeout))),
    }
}

/// A store of either kind.
pub enum AnyStore {
    /// A folder.
    Folder(Folder),
    /// etcd.
    Etcd(Box<Etcd>),
}

impl Store for AnyStore {
    async fn read(&self) -> Result<(State, Version), CniError> {
        match self {
            Self::Folder(store) => store.read().await,
            Self::Etcd(store) => store.read().await,
        }
    }

    async fn replace(&self, version: &Version, next: &State) -> Result<bool, CniError> {
        match self {
            Self::Folder(store) => store.replace(version, next).await,
            Self::Etcd(store) => store.replace(version, next).await,
        }
    }
}

/// The document, without fault.
fn decode(place: &str, bytes: &[u8]) -> Result<State, CniError> {
    let damaged = |why: &str| {
        CniError::new(Code::STATE, format!("cannot use the store, {place}: {why}"))
            .detail("If a newer release has written it, upgrade this node. Else put back an undamaged copy that no ADD has followed, or \
                     make the store anew as README.md says.")
    };
    let state: State = serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
    match protocol::faults(&state).first() {
        Some(fault) => Err(damaged(fault)),
        None => Ok(state),
    }
}
