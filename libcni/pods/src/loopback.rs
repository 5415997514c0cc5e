//! `lo` of a pod: it is set up before the networks and down after them.

use crate::error::{Error, RequestError};
use crate::pod::Pod;
use crate::pod_attachments;
use cni_spec::{CniError, IfName};
use libcni::{AttachmentId, Cached, NetworkConf, RuntimeConf};

/// The component that sets a pod's `lo` up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loopback {
    /// The plugin `loopback`, as network `cni-loopback` and interface `lo`, cached like any other: as with dockershim and
    /// containerd. Its DEL cannot know whether `lo` was up before, and sets it down if no other interface is up.
    #[default]
    Plugin,
    /// Another component.
    None,
}

/// The network of [`Loopback::Plugin`], by the name that dockershim and containerd gave it.
const NETWORK: &str = "cni-loopback";

pub(crate) fn network() -> Result<NetworkConf, CniError> {
    // The first version with CHECK, so that executables of any age work.
    NetworkConf::parse(br#"{"cniVersion":"0.4.0","name":"cni-loopback","plugins":[{"type":"loopback"}]}"#)
}

pub(crate) fn is_loopback(cached: &Cached) -> bool {
    cached.network.as_str() == NETWORK
}

/// The attachment of a pod's `lo`, with its network.
pub(crate) fn attachment(pod: &Pod) -> Result<(NetworkConf, RuntimeConf), Error> {
    let made = || -> Result<_, CniError> {
        let id = AttachmentId { container_id: pod.id.sandbox.clone(), ifname: IfName::parse("lo")? };
        let mut attachment = RuntimeConf::from(id).netns(&pod.netns);
        for (key, value) in pod_attachments::pod_args(&pod.id) {
            attachment.args.push(key, &value)?;
        }
        Ok((network()?, attachment))
    };
    made().map_err(|error| Error::Request(RequestError::Argument(error)))
}

pub(crate) fn failed(verb: &'static str, error: &libcni::Error) -> Error {
    Error::Loopback { verb, reason: error.with_causes() }
}
