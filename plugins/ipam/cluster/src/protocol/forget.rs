//! When the addresses of a dead node are free: an operator forgets it, with a wait between the first write and the others.

use std::time::Duration;

use super::{Closed, Draft, Key, Network, Node, Record, claims};

/// Begins to forget a node: from now on it cannot write. `None` if there is no such node.
#[must_use]
pub fn begin_to_forget(node: Option<&Node>) -> Option<Node> {
    Some(Node { leaving: true, ..node?.clone() })
}

/// Begins to free what a node has, after the wait. `begun` is the record by which that began.
#[must_use]
pub fn begin_to_free(begun: &Node) -> Node {
    Node { freeing: true, ..begun.clone() }
}

/// The node may write again, if nothing of it is freed yet; `None`: it is not being forgotten, or not only begun.
#[must_use]
pub fn cancel(node: &Node) -> Option<Node> {
    (node.leaving && !node.freeing).then(|| Node { leaving: false, ..node.clone() })
}

/// Frees what a node has of the records that were read. The caller has waited until the node trusts nothing any more, or knows that it
/// is off; it has read the node's record *after* these, and that is still the one by which it began.
pub fn erase(draft: &mut Draft, name: &str) {
    let owned: Vec<_> = draft.bases().flat_map(|base| draft.shard(base).of(name).collect::<Vec<_>>()).collect();
    owned.into_iter().for_each(|span| draft.release(span, name));
    claims::leave(draft, name, &draft.claims());
}

/// Removes the node itself, after all else, and counts that.
pub fn end_to_forget(draft: &mut Draft, name: &str) {
    if let Some(mut network) = draft.network().cloned() {
        network.forgotten += 1;
        reopen(&mut network, name);
        draft.set(&Key::Network, Some(Record::Network(network)));
    }
    draft.set(&Key::Want(name.to_owned()), None);
    draft.set(&Key::Node(name.to_owned()), None);
}

/// A node has written back, or never will: when all have, the store gives runs again.
pub fn reopen(network: &mut Network, name: &str) {
    if let Some(Closed::Repair(nodes)) = &mut network.closed {
        nodes.remove(name);
        if nodes.is_empty() {
            network.closed = None;
        }
    }
}

/// The time before others may get the node's addresses: until the node trusts no write from before the first one, and a tenth more for
/// clocks that run unevenly.
#[must_use]
pub fn wait_to_forget(begun: &Node) -> Duration {
    Duration::from_secs(u64::from(begun.trust_seconds) + u64::from(begun.trust_seconds) / 10)
}
