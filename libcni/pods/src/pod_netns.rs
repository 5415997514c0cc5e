//! Inside a pod's network namespace: the caller's part, as this crate knows nothing of networking.

use std::error::Error;
use std::fmt;

/// The cause of a failure, with the namespace.
pub type PodNetnsError = Box<dyn Error + Send + Sync>;

/// The few things that [`crate::Pods`] does in a pod's network namespace, which is given as its path. Each is called on a
/// thread of its own, which may wait and may enter the namespace.
pub trait PodNetns: fmt::Debug + Send + Sync {
    /// Sets `lo` up, and returns whether it was down before: a failed set-up sets it down again only then.
    /// Errors: there is no namespace at the path, or it is the node's own; `lo` is as it was.
    fn set_lo_up(&self, netns: &str) -> Result<bool, PodNetnsError>;

    /// Sets `lo` down, unless another interface of the namespace is up: that is another pod's. Succeeds if the namespace is
    /// gone, and leaves the node's own as it is.
    /// Errors: the kernel refuses.
    fn set_lo_down(&self, netns: &str) -> Result<(), PodNetnsError>;

    /// Whether `lo` is up.
    /// Errors: there is no namespace at the path, or it cannot be entered.
    fn is_lo_up(&self, netns: &str) -> Result<bool, PodNetnsError>;

    /// Whether a link of this name is in the namespace.
    /// Errors: the kernel cannot tell.
    fn has_link(&self, netns: &str, name: &str) -> Result<bool, PodNetnsError>;
}
