//! `lo` of a pod: it is set up before the networks and down after them.

use crate::error::Error;
use libcni::{NetworkConf, aside};
use std::fmt;
use std::sync::Arc;

/// The component that sets a pod's `lo` up.
#[derive(Debug, Clone, Default)]
pub enum Loopback {
    /// The plugin `loopback`, as network `cni-loopback` and interface `lo`, cached like any other: as with dockershim and
    /// containerd. Its DEL cannot know whether `lo` was up before, and sets it down if no other interface is up.
    #[default]
    Plugin,
    /// The caller, without a process for it. After a failed set-up `lo` is as it was, and a set-up also finds out whether the
    /// interfaces of the cache are still there.
    By(Arc<dyn PodNetns>),
    /// Another component.
    None,
}

/// The cause of a failure, with the namespace.
pub type PodNetnsError = Box<dyn std::error::Error + Send + Sync>;

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

/// The network of [`Loopback::Plugin`], by the name that dockershim and containerd gave it.
pub(crate) const NETWORK: &str = "cni-loopback";
pub(crate) const IFNAME: &str = "lo";

pub(crate) fn network() -> Result<NetworkConf, cni_spec::CniError> {
    // The first version with CHECK, so that executables of any age work.
    NetworkConf::parse(br#"{"cniVersion":"0.4.0","name":"cni-loopback","plugins":[{"type":"loopback"}]}"#)
}

/// Sets `lo` up. Returns whether it was down.
pub(crate) async fn up(pod_netns: &Arc<dyn PodNetns>, netns: &str) -> Result<bool, Error> {
    call(pod_netns, "set up", netns, |pod_netns, netns| pod_netns.set_lo_up(netns)).await
}

/// Sets `lo` down.
pub(crate) async fn down(pod_netns: &Arc<dyn PodNetns>, netns: &str) -> Result<(), Error> {
    call(pod_netns, "set down", netns, |pod_netns, netns| pod_netns.set_lo_down(netns)).await
}

/// Checks that `lo` is up.
pub(crate) async fn check(pod_netns: &Arc<dyn PodNetns>, netns: &str) -> Result<(), Error> {
    let check = |pod_netns: &dyn PodNetns, netns: &str| match pod_netns.is_lo_up(netns)? {
        true => Ok(()),
        false => Err(format!("in {netns} it is down").into()),
    };
    call(pod_netns, "use", netns, check).await
}

/// Whether a link of this name is in the namespace; `None` if it cannot be determined.
pub(crate) async fn has_link(pod_netns: &Arc<dyn PodNetns>, netns: &str, name: &str) -> Option<bool> {
    let name = name.to_owned();
    call(pod_netns, "use", netns, move |pod_netns, netns| pod_netns.has_link(netns, &name)).await.ok()
}

async fn call<T: Send + 'static>(
    pod_netns: &Arc<dyn PodNetns>,
    verb: &'static str,
    netns: &str,
    work: impl FnOnce(&dyn PodNetns, &str) -> Result<T, PodNetnsError> + Send + 'static,
) -> Result<T, Error> {
    let (pod_netns, path) = (Arc::clone(pod_netns), netns.to_owned());
    // A thread has to enter the namespace for a moment.
    let done = aside(move || work(&*pod_netns, &path).map_err(|error| error.to_string())).await;
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(|reason| Error::Loopback { verb, reason })
}
