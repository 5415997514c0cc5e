//! The error type.

use netops::OpError;

/// Result of an operation on slots.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a slot or a pool is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused, or the node is not in the state that is needed. [`OpError::details`] has more.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The description of the pool has a value that cannot be.
    #[error("cannot use {key} {value:?} of a pool: {wanted}")]
    Spec {
        /// The name of the method of [`crate::Spec`].
        key: &'static str,
        /// The value as given.
        value: String,
        /// The values that are possible.
        wanted: &'static str,
    },
    /// Another process, or a slot of this one, has a pool of this name open.
    #[error("cannot open pool {name}: {holder} has it open")]
    Open {
        /// The pool's name.
        name: String,
        /// The process, as far as the kernel names it.
        holder: String,
    },
    /// All slots that the pool may have are taken.
    #[error("cannot take a slot: all {0} are taken")]
    Exhausted(u32),
    /// Something of what should be destroyed is still there. [`crate::reconcile`] finds it again.
    #[error("{} of what should be destroyed is left: {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    Left(Vec<OpError>),
}

impl Error {
    pub(crate) fn left(errors: Vec<OpError>) -> Result<()> {
        if errors.is_empty() { Ok(()) } else { Err(Self::Left(errors)) }
    }
}
