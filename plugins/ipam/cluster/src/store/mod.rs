//! Where the records of all nodes are: two operations, so that other stores can follow.

mod folder;

pub use folder::Folder;

use cni_spec::CniError;

use crate::protocol::State;

/// A version of the document, which only the store understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(Vec<u8>);

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
