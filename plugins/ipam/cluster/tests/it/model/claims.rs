//! A claim in the model: nodes hold it, containers have its address, and an operator releases it.

use std::collections::BTreeSet;

use cluster::protocol::{State, claims};
use host_local::conf::Barred;
use host_local::range::Span;

use super::{Adding, Bounds, Change, Event, Fault, Machine, Memory, View, World, address, number};

const CLAIM: &str = "c";

pub(super) fn held(state: &State, node: &str) -> Option<BTreeSet<u8>> {
    let own = claims::of(state, node).remove(CLAIM)?;
    Some(own.into_iter().map(|ip| number(ip.into())).collect())
}

pub(super) fn hold(state: &State, node: &str, bounds: &Bounds) -> State {
    let set = vec![Span { first: address(0), last: address(bounds.addresses - 1) }];
    claims::hold(state, node, CLAIM, &[], &[set], &Barred::default()).unwrap_or_else(|_refused| state.clone())
}

pub(super) fn leave(state: &State, node: &str) -> State {
    claims::leave(state, node, &[CLAIM.to_owned()])
}

impl View {
    pub(super) fn memory(&self) -> Memory {
        let claim = self
            .claim
            .iter()
            .map(|own| (CLAIM.to_owned(), own.iter().map(|number| address(*number).ip()).collect::<BTreeSet<_>>()));
        let runs = self.runs.iter().map(|run| (address(run.0).ip(), address(run.1).ip()));
        Memory { runs: runs.collect(), claims: claim.collect() }
    }
}

impl Machine {
    fn claimed(&self) -> Option<u8> {
        let view = self.view.as_ref().filter(|view| self.is_up && view.is_trusted)?;
        view.claim.as_ref()?.first().copied()
    }
}

impl World {
    /// A claim's address is on two machines at most, and no container without the claim has it.
    pub(super) fn fault_of_claims(&self) -> Option<String> {
        for claimed in self.machines.iter().flat_map(|machine| &machine.claimants) {
            let with = self.machines.iter().filter(|machine| machine.claimants.contains(claimed)).count();
            if with > 2 {
                return Some(format!("{with} machines have a container with the claim's address {claimed}"));
            }
            let others = |machine: &Machine| machine.pods.contains(claimed) || machine.owns(*claimed);
            if let Some(at) = self.machines.iter().position(others) {
                return Some(format!("{at} gives the claim's address {claimed}"));
            }
        }
        None
    }

    pub(super) fn operate_claims(&self, all: &mut Vec<(String, World)>) {
        if let Some(Ok(next)) = claims::release(&self.store, CLAIM) {
            let mut world = self.clone();
            world.write(next);
            all.push(("the operator releases the claim".to_owned(), world));
        }
    }

    pub(super) fn calls_for_claims(&self, at: usize, bounds: &Bounds, step: &mut dyn FnMut(&str, Event<'_>)) {
        let machine = &self.machines[at];
        if self.claims > 0 && machine.claimed().is_none() {
            step("reads, to hold the claim", &|world| {
                world.claims -= 1;
                world.begin(at, Change::Hold)
            });
        }
        let own = machine.view.as_ref().and_then(|view| view.claim.as_ref());
        if own.is_some_and(|own| own.is_disjoint(&machine.reserved)) {
            step("holds the claim for no container", &|world| {
                let view = world.machines[at].view.as_mut().unwrap();
                if bounds.fault != Fault::LeaveFirst {
                    view.claim = None;
                    (view.is_pending, view.is_open) = (true, true);
                }
                world.begin(at, Change::Leave)
            });
        }
    }

    pub(super) fn adds_with_claims(&self, at: usize, step: &mut dyn FnMut(&str, Event<'_>)) {
        let machine = &self.machines[at];
        match machine.adding {
            None if !self.repairing.is_empty() => {}
            None => {
                if let Some(own) = machine.claimed().filter(|own| !machine.reserved.contains(own)) {
                    step("reads its view, for the claim", &|world| {
                        world.machines[at].adding = Some(Adding::Claimed(own));
                        true
                    });
                }
            }
            Some(Adding::Claimed(own)) => step("reserves for the claim", &|world| {
                world.machines[at].adding = Some(Adding::ReservedAsClaimed(own));
                world.machines[at].reserved.insert(own)
            }),
            Some(Adding::ReservedAsClaimed(own)) => step("ends ADD with the claim", &|world| {
                let machine = &mut world.machines[at];
                machine.adding = None;
                match machine.claimed() == Some(own) {
                    true => machine.claimants.insert(own),
                    false => machine.reserved.remove(&own),
                }
            }),
            Some(Adding::Chosen(_) | Adding::Reserved(_)) => {}
        }
    }
}
