//! The command that removes one attachment, and nothing of any other; and why that is not done unasked.

use cni_filter::By;
use libcni::inventory::Life;
use libcni::{AttachmentId, NetworkConf, Runtime};
use on_node::Seen;

use crate::doctor::network_files::Makes;
use crate::doctor::remedy::{Step, tool};

/// Stands for a namespace that has no path any more.
const NOWHERE: &str = "/run/netns/gone";

/// `cnitool del` of an attachment. `netns` is the path of its namespace; empty: none is known.
#[must_use]
pub fn removal(network: &str, id: &AttachmentId, netns: &str) -> Step {
    let AttachmentId { container_id, ifname } = id;
    let netns = if netns.is_empty() { NOWHERE } else { netns };
    tool(["del", network, netns, "--container-id", container_id.as_str(), "--ifname", ifname.as_str()])
}

/// The commands that remove the masquerade of a container that is gone, if nothing else of it is left, and a plugin of the network is
/// of another make: the reference's DEL finds the rules by the addresses in the namespace, and it has no GC.
pub(crate) fn removal_by_hand(
    runtime: &Runtime,
    search_path: &str,
    network: &NetworkConf,
    found: &Seen,
) -> Option<Vec<Step>> {
    let Seen { id, links, reserved, rules, others, life, .. } = found;
    let is_alone = links.is_empty() && reserved.is_empty() && others.is_empty() && !rules.is_empty();
    let is_it = is_alone && rules.iter().all(|rule| rule.masquerades_by == Some(By::Iptables));
    let id = id.as_ref().filter(|_| *life == Life::Gone && is_it)?;
    if Makes::are_own(runtime, network) {
        return None;
    }
    let commands = cni_filter::masquerade_removal(&network.name, id.container_id.as_str(), search_path).ok()?;
    (!commands.is_empty()).then(|| commands.into_iter().map(Step::from).collect())
}

/// Why it is unknown whether the namespace of an attachment exists, at whose path is an empty file.
#[must_use]
pub fn unmounted(netns: &str) -> String {
    format!("{netns} is an empty file, so its namespace is gone, or is mounted in another mount namespace")
}
