//! When the addresses of a dead node are free: an operator forgets it, in two writes with a wait between them.

use std::time::Duration;

use super::{Member, State};

/// Begins to forget a node: from now on nothing is confirmed to it. `None` if there is no such node.
#[must_use]
pub fn begin_to_forget(state: &State, name: &str) -> Option<State> {
    let mut next = state.clone();
    next.nodes.get_mut(name)?.leaving = true;
    Some(next)
}

/// Ends what [`begin_to_forget`] has begun: the node's runs are free. `None` if the record is not the one of which that was begun: the node was
/// forgotten by another command, and may be back. The caller has waited until the node trusts nothing any more, or knows that it is off.
#[must_use]
pub fn end_forgetting(state: &State, name: &str, begun: &Member) -> Option<State> {
    state.nodes.get(name).filter(|member| member.leaving && *member == begun)?;
    let mut next = state.clone();
    next.nodes.remove(name);
    next.runs.retain(|run| run.node != name);
    for holders in next.claims.values_mut() {
        holders.remove(name);
    }
    Some(next)
}

/// The time between the two writes: until the node trusts nothing that it has read before the first, and a tenth more for clocks that run
/// unevenly.
#[must_use]
pub fn wait_to_forget(begun: &Member) -> Duration {
    Duration::from_secs(u64::from(begun.trust_seconds) + u64::from(begun.trust_seconds) / 10)
}
