//! A machine's next steps: its calls, and what may happen to it.

use std::collections::BTreeSet;

use cluster::protocol::{self, State};
use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

use super::{Adding, Bounds, Call, Change, Event, Fault, Machine, Mail, View, World, address, claims};

impl World {
    pub(super) fn steps_of(&self, at: usize, bounds: &Bounds, all: &mut Vec<(String, World)>) {
        let mut step = |label: &str, change: Event<'_>| {
            let mut world = self.clone();
            if change(&mut world) {
                all.push((format!("{at}: {label}"), world));
            }
        };
        let machine = &self.machines[at];
        if !machine.is_up {
            if self.clones == 0 || machine.name != at || machine.view.is_some() {
                step("starts", &|world| {
                    let machine = &mut world.machines[at];
                    (machine.is_up, machine.boot) = (true, machine.boot + 10);
                    true
                });
            } else {
                for from in 0..at {
                    step(&format!("becomes a clone of {from}"), &|world| {
                        let original = world.machines[from].clone();
                        let (is_up, pods, adding, call) = (true, BTreeSet::new(), None, Call::None);
                        let claimants = BTreeSet::new();
                        world.machines[at] = Machine { is_up, boot: at, pods, claimants, adding, call, ..original };
                        world.machines[at].distrust();
                        world.clones -= 1;
                        world.machines[at].view.is_some()
                    });
                }
            }
            return;
        }
        match &machine.call {
            Call::None if !self.repairing.is_empty() => {}
            Call::None => {
                self.calls_for_claims(at, bounds, &mut step);
                // A machine that has all it can have only reads the same again.
                let is_served = machine.view.as_ref().is_some_and(|view| view.is_trusted && !view.is_pending);
                let is_room =
                    self.store.runs.iter().map(|run| run.span().last.bits - run.span().first.bits + 1).sum::<u128>()
                        < u128::from(bounds.addresses);
                let needs_runs = bounds.claims == 0 || bounds.adds > 0;
                if needs_runs && (!is_served || is_room && self.adds > 0) {
                    step("reads, to claim", &|world| world.begin(at, Change::Claim));
                }
                let runs = machine.view.iter().flat_map(|view| &view.runs);
                for (first, last) in runs.filter(|run| machine.reserved.range(run.0..=run.1).next().is_none()) {
                    step(&format!("finds run {first} empty"), &|world| {
                        let view = world.machines[at].view.as_mut().unwrap();
                        if bounds.fault != Fault::GiveBackFirst {
                            view.runs.retain(|run| *run != (*first, *last));
                            (view.is_pending, view.is_open) = (true, true);
                        }
                        let is_left = world.give_backs > 0;
                        world.give_backs = world.give_backs.saturating_sub(1);
                        is_left && world.begin(at, Change::GiveBack(*first))
                    });
                }
            }
            Call::Read { .. } => step("goes on", &|world| world.send(at, bounds)),
            Call::Sent { .. } => {}
            Call::Answered { next, trust } => step("writes its view", &|world| {
                let machine = &mut world.machines[at];
                match next {
                    Some(next) => machine.fill(next, *trust),
                    None => {
                        machine.view.as_mut().unwrap().is_pending = false;
                        machine.call = Call::None;
                    }
                }
                true
            }),
        }
        if self.losses > 0 && matches!(machine.call, Call::Sent { .. } | Call::Answered { .. }) {
            step("gives up the call", &|world| {
                world.losses -= 1;
                world.give_up(at);
                true
            });
        }
        self.life_of(at, bounds, &mut step);
    }

    /// Containers come and go; accidents.
    fn life_of(&self, at: usize, bounds: &Bounds, step: &mut dyn FnMut(&str, Event<'_>)) {
        let machine = &self.machines[at];
        match machine.adding {
            None if !self.repairing.is_empty() => {}
            None => {
                let free = (0..bounds.addresses).find(|free| machine.owns(*free) && !machine.reserved.contains(free));
                if let Some(free) = free.filter(|_| self.adds > 0) {
                    step("reads its view", &|world| {
                        world.adds -= 1;
                        world.machines[at].adding = Some(Adding::Chosen(free));
                        true
                    });
                }
            }
            Some(Adding::Claimed(_) | Adding::ReservedAsClaimed(_)) => {}
            Some(Adding::Chosen(address)) => step("reserves", &|world| {
                let machine = &mut world.machines[at];
                machine.adding = Some(Adding::Reserved(address));
                machine.reserved.insert(address)
            }),
            Some(Adding::Reserved(address)) => step("ends ADD", &|world| {
                let machine = &mut world.machines[at];
                machine.adding = None;
                match machine.owns(address) || bounds.fault == Fault::AddOnce {
                    true if machine.pods.insert(address) => {}
                    true => machine.twice = Some(address),
                    false => drop(machine.reserved.remove(&address)),
                }
                true
            }),
        }
        for address in &machine.reserved {
            if ![Some(Adding::Reserved(*address)), Some(Adding::ReservedAsClaimed(*address))].contains(&machine.adding)
            {
                step("DEL", &|world| {
                    world.machines[at].pods.remove(address);
                    world.machines[at].claimants.remove(address);
                    world.machines[at].reserved.remove(address)
                });
            }
        }
        self.adds_with_claims(at, step);
        // Elsewhere trust that lasts is the harder case.
        if machine.trusts() && self.store.nodes.values().any(|member| member.leaving) {
            step("trusts no longer", &|world| {
                world.machines[at].distrust();
                true
            });
        }
        if self.crashes > 0 {
            step("goes down", &|world| {
                world.crashes -= 1;
                world.machines[at].go_down();
                world.give_up(at);
                true
            });
        }
        if self.emptied > 0 && machine.view.is_some() {
            step("its folder is emptied", &|world| {
                world.emptied -= 1;
                world.give_up(at);
                let machine = &mut world.machines[at];
                machine.distrust();
                (machine.view, machine.call, machine.adding) = (None, Call::None, None);
                machine.reserved.clear();
                true
            });
        }
    }

    /// The number of the folder is there before the store is asked.
    pub(super) fn begin(&mut self, at: usize, change: Change) -> bool {
        let machine = &mut self.machines[at];
        let store_id = at + 10 * usize::from(self.emptied);
        machine.view.get_or_insert(View {
            store_id,
            runs: Vec::new(),
            is_trusted: false,
            is_pending: false,
            is_open: false,
            is_new: true,
            claim: None,
        });
        machine.call = Call::Read { state: self.store.clone(), fresh: true, trust: true, change };
        true
    }

    fn send(&mut self, at: usize, bounds: &Bounds) -> bool {
        let machine = &mut self.machines[at];
        let Call::Read { state, fresh, trust, change } = machine.call.clone() else { return false };
        let me = machine.me(at, &state, bounds.fault);
        let (entered, is_absent) = match protocol::enter(&state, &me) {
            Ok(entered) => (entered, !state.nodes.contains_key(&me.name)),
            Err(_refused) => {
                machine.distrust();
                machine.call = Call::None;
                // A number that never was the store's is made anew.
                machine.view = machine.view.take().filter(|view| !view.is_new);
                return true;
            }
        };
        let view = machine.view.as_ref().unwrap();
        if protocol::recall(&state, &me.name, &view.memory(), view.is_open).is_err() {
            machine.distrust();
            machine.call = Call::None;
            self.stranger = Some(at);
            return true;
        }
        let mut next = entered.unwrap_or_else(|| state.clone());
        if is_absent {
            let held: Vec<Address> = machine.reserved.iter().copied().map(address).collect();
            next = protocol::come_back(&next, &me.name, &view.memory(), &held).0;
        }
        match change {
            Change::Claim => {
                let set = [Span { first: address(0), last: address(bounds.addresses - 1) }];
                next = protocol::claim(&next, &me.name, &set, 2, &Barred::default()).map_or(next, |(next, _)| next);
            }
            Change::GiveBack(first) => next = protocol::give_back(&next, &me.name, address(first).ip()),
            Change::Hold => next = claims::hold(&next, &me.name, bounds),
            Change::Leave => next = claims::leave(&next, &me.name),
        }
        let view = machine.view.as_mut().unwrap();
        if is_absent {
            view.runs.clear();
            view.claim = view.claim.take().filter(|own| claims::held(&next, &me.name).as_ref() == Some(own));
        }
        if next == state && (!view.is_pending || bounds.fault == Fault::NoWriteWhenPending) {
            machine.fill(&next, trust);
            return true;
        }
        (view.is_pending, view.is_open, view.is_new) = (true, true, false);
        machine.call = Call::Sent { trust };
        let next = if fresh { next } else { State::default() };
        self.mail.push(Mail { from: at, next, fresh, is_awaited: true });
        true
    }
}
