//! The state of a sandbox in the cache, as a set-up finds it.

use crate::error::Error;
use crate::loopback::{self, Loopback};
use crate::pod::Pod;
use crate::pod_attachments::Planned;
use crate::status::Status;
use libcni::{Attachment, Cached, Namespace};
use std::collections::BTreeMap;

pub(crate) enum SandboxState {
    /// The sandbox has no network.
    Nothing,
    /// The sandbox has the requested networks.
    Up(Status),
    /// A set-up began and did not finish, or its objects are gone.
    Unfinished,
}

/// Compares the request with the cache. The networks' configuration does not count: a pod keeps its network when the
/// file changes.
pub(crate) async fn of(
    pod: &Pod,
    planned: &[Planned<'_>],
    cached: &[Cached],
    loopback: &Loopback,
) -> Result<SandboxState, Error> {
    if cached.is_empty() {
        return Ok(SandboxState::Nothing);
    }
    let networks: Vec<_> = cached.iter().filter(|cached| cached.network.as_str() != loopback::NETWORK).collect();
    if cached.iter().any(|cached| !cached.is_complete()) || networks.is_empty() {
        return Ok(SandboxState::Unfinished);
    }
    let already = |difference| Error::AlreadyUp { difference };
    for cached in &networks {
        let is_it = |planned: &&Planned| is_same(planned, cached);
        let (network, ifname) = (&cached.network, &cached.attachment.id.ifname);
        match planned.iter().find(is_it).map(|planned| difference(&planned.attachment, &cached.attachment)) {
            None => return Err(already(format!("on network {network} as {ifname}, which is not asked for"))),
            Some(Some(difference)) => return Err(already(format!("{difference} of network {network} is another"))),
            Some(None) => {}
        }
    }
    let is_there = |planned: &Planned| networks.iter().any(|cached| is_same(planned, cached));
    if !planned.iter().all(is_there) {
        return Ok(SandboxState::Unfinished);
    }
    // The same path may now lead to another namespace.
    let is_elsewhere = |cached: &&Cached| cached.namespace() == Namespace::Gone;
    if Namespace::of(&pod.netns) == Namespace::Present && networks.iter().any(is_elsewhere) {
        return Ok(SandboxState::Unfinished);
    }
    let status = Status::of_cached(networks.iter().copied())?;
    let Loopback::By(pod_netns) = loopback else { return Ok(SandboxState::Up(status)) };
    for network in &status.networks {
        let result = network.result.as_ref();
        let is_in_pod = result.is_some_and(|result| result.find_in_sandbox(network.ifname.as_str()).is_some());
        if is_in_pod && loopback::has_link(pod_netns, &pod.netns, network.ifname.as_str()).await == Some(false) {
            return Ok(SandboxState::Unfinished);
        }
    }
    Ok(SandboxState::Up(status))
}

fn is_same(planned: &Planned<'_>, cached: &Cached) -> bool {
    planned.network == cached.network && planned.attachment.id == cached.attachment.id
}

/// The arguments that differ.
fn difference(wanted: &Attachment, had: &Attachment) -> Option<&'static str> {
    let capabilities = |attachment: &Attachment| -> BTreeMap<String, String> {
        attachment.capability_args.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    if wanted.netns != had.netns {
        return Some("the network namespace");
    }
    if wanted.args != had.args {
        return Some("an argument (CNI_ARGS)");
    }
    (capabilities(wanted) != capabilities(had)).then_some("a capability argument")
}
