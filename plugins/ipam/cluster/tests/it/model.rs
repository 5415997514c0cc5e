//! Every order of events of three machines on one store, with the plugin's own functions: no address is given twice.
//!
//! A machine does what `src/keeper.rs` does, a step at a time; between any two steps anything else may happen: a message
//! arrives late, a process is killed, a machine goes down and is started again, its folder is copied to another machine or
//! emptied, an operator forgets its node. A partition is a message that does not arrive. Time is an event, too: what a
//! machine trusts may expire at any moment.

mod claims;
mod restore;

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocol::{self, Me, Memory, State};
use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

/// Something that happens in a world; `false`: it cannot happen now.
type Event<'a> = &'a dyn Fn(&mut World) -> bool;

/// A deliberate fault, which the search has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// `forget` does not wait for the trust to end.
    ForgetAtOnce,
    /// A machine's Ethernet addresses are not compared.
    AnyMachine,
    /// ADD does not read the view again.
    AddOnce,
    /// A view that is pending is filled from a reading.
    NoWriteWhenPending,
    /// An emptied folder may go on.
    AnyFolder,
    /// A run leaves the view after it has left the store.
    GiveBackFirst,
    /// A claim leaves the view after it has left the store.
    LeaveFirst,
    /// A restored store is used as it is.
    NoRepair,
}

#[derive(Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) machines: usize,
    pub(crate) addresses: u8,
    pub(crate) fault: Fault,
    pub(crate) crashes: u8,
    pub(crate) clones: u8,
    pub(crate) emptied: u8,
    pub(crate) forgets: u8,
    pub(crate) give_backs: u8,
    pub(crate) adds: u8,
    pub(crate) losses: u8,
    pub(crate) claims: u8,
    pub(crate) restores: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    store: State,
    machines: Vec<Machine>,
    mail: Vec<Mail>,
    crashes: u8,
    clones: u8,
    emptied: u8,
    forgets: u8,
    give_backs: u8,
    adds: u8,
    losses: u8,
    claims: u8,
    restores: u8,
    /// A copy of the store.
    copy: Option<State>,
    /// The machines that have to write back, each twice, before anything else is written.
    repairing: BTreeMap<usize, u8>,
    /// A machine whose records were not the ones that it had left.
    stranger: Option<usize>,
}

/// A replacement of the document on its way; `fresh`: the store still has the version that it names; `is_awaited`: the
/// sender waits for the answer.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Mail {
    from: usize,
    next: State,
    fresh: bool,
    is_awaited: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Machine {
    is_up: bool,
    name: usize,
    boot: usize,
    view: Option<View>,
    /// The reservations in the data folder.
    reserved: BTreeSet<u8>,
    /// The addresses of living containers.
    pods: BTreeSet<u8>,
    adding: Option<Adding>,
    /// The addresses of living containers that have the claim.
    claimants: BTreeSet<u8>,
    /// An address that a container got while another one of this machine had it.
    twice: Option<u8>,
    call: Call,
}

/// An ADD that has read the view: the address that it will reserve, or has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Adding {
    Chosen(u8),
    Reserved(u8),
    Claimed(u8),
    ReservedAsClaimed(u8),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct View {
    store_id: usize,
    runs: Vec<(u8, u8)>,
    is_trusted: bool,
    is_pending: bool,
    /// Whether a write without an answer may have added to the records.
    is_open: bool,
    is_new: bool,
    /// The claim's addresses, if the node holds it.
    claim: Option<BTreeSet<u8>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Call {
    None,
    Read { state: State, fresh: bool, trust: bool, change: Change },
    Sent { trust: bool },
    Answered { next: Option<State>, trust: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Change {
    Claim,
    GiveBack(u8),
    Hold,
    Leave,
}

const BASE: u128 = 0x0a00_0000;

fn address(number: u8) -> Address {
    Address { family: host_local::address::Family::V4, bits: BASE + u128::from(number) }
}

fn number(address: Address) -> u8 {
    u8::try_from(address.bits - BASE).unwrap()
}

impl Machine {
    fn me(&self, at: usize, state: &State, fault: Fault) -> Me {
        let view = self.view.as_ref().unwrap();
        let recorded = state.nodes.get(&self.name.to_string());
        let mut me = Me {
            name: self.name.to_string(),
            store_id: view.store_id.to_string(),
            is_known: !view.is_new,
            boot: self.boot.to_string(),
            macs: BTreeSet::from([at.to_string()]),
            trust_seconds: 1,
        };
        if let Some(recorded) = recorded {
            if fault == Fault::AnyMachine {
                me.macs.clone_from(&recorded.macs);
            }
            if fault == Fault::AnyFolder {
                (me.store_id, me.is_known) = (recorded.store_id.clone(), true);
            }
        }
        me
    }

    fn owns(&self, address: u8) -> bool {
        let has = |view: &View| view.is_trusted && view.runs.iter().any(|run| (run.0..=run.1).contains(&address));
        self.is_up && self.view.as_ref().is_some_and(has)
    }

    fn distrust(&mut self) {
        if let Some(view) = &mut self.view {
            view.is_trusted = false;
        }
        match &mut self.call {
            Call::Read { trust, .. } | Call::Sent { trust, .. } | Call::Answered { trust, .. } => *trust = false,
            Call::None => {}
        }
    }

    fn trusts(&self) -> bool {
        let of_call = match &self.call {
            Call::Read { trust, .. } | Call::Sent { trust, .. } | Call::Answered { trust, .. } => *trust,
            Call::None => false,
        };
        of_call || self.view.as_ref().is_some_and(|view| view.is_trusted)
    }

    fn go_down(&mut self) {
        self.distrust();
        self.is_up = false;
        self.pods.clear();
        self.claimants.clear();
        self.adding = None;
        self.call = Call::None;
    }

    /// The view after an answered or needless write.
    fn fill(&mut self, state: &State, trust: bool) {
        let name = self.name.to_string();
        let own = state.runs.iter().filter(|run| run.node == name);
        let runs = own.map(|run| (number(run.span().first), number(run.span().last))).collect();
        let view = self.view.as_mut().unwrap();
        (view.runs, view.is_trusted, view.is_pending, view.is_new) = (runs, trust, false, false);
        (view.is_open, view.claim) = (false, claims::held(state, &name));
        self.call = Call::None;
    }
}

impl World {
    pub(crate) fn new(scene: &Scene) -> Self {
        let machine = |name: usize| Machine {
            // The last machine of a scene with a clone is off until it becomes one.
            is_up: scene.clones == 0 || name + 1 < scene.machines,
            name,
            boot: name,
            view: None,
            reserved: BTreeSet::new(),
            pods: BTreeSet::new(),
            adding: None,
            claimants: BTreeSet::new(),
            twice: None,
            call: Call::None,
        };
        Self {
            store: State::default(),
            machines: (0..scene.machines).map(machine).collect(),
            mail: Vec::new(),
            crashes: scene.crashes,
            clones: scene.clones,
            emptied: scene.emptied,
            forgets: scene.forgets,
            give_backs: scene.give_backs,
            adds: scene.adds,
            losses: scene.losses,
            claims: scene.claims,
            restores: scene.restores,
            copy: None,
            repairing: BTreeMap::new(),
            stranger: None,
        }
    }

    /// The store has a new document: whatever names the old version is late.
    fn write(&mut self, next: State) {
        self.store = next;
        for mail in &mut self.mail {
            (mail.fresh, mail.next) = (false, State::default());
        }
        self.drop_mail();
        for machine in &mut self.machines {
            if let Call::Read { fresh, .. } = &mut machine.call {
                *fresh = false;
            }
        }
    }

    /// A late letter for which no one waits has no effect.
    fn drop_mail(&mut self) {
        self.mail.retain(|mail| mail.fresh || mail.is_awaited);
    }

    fn give_up(&mut self, at: usize) {
        self.machines[at].call = Call::None;
        self.mail.iter_mut().filter(|mail| mail.from == at).for_each(|mail| mail.is_awaited = false);
        self.drop_mail();
    }

    /// The sentence about an address that is given twice.
    pub(crate) fn fault(&self) -> Option<String> {
        for (at, one) in self.machines.iter().enumerate() {
            if let Some(twice) = one.twice {
                return Some(format!("two containers of {at} have address {twice}"));
            }
            for (beside, other) in self.machines.iter().enumerate().skip(at + 1) {
                if let Some(twice) = one.pods.intersection(&other.pods).next() {
                    return Some(format!("containers of {at} and {beside} have address {twice}"));
                }
                if let Some(twice) = (0..9).find(|address| one.owns(*address) && other.owns(*address)) {
                    return Some(format!("{at} and {beside} both give address {twice}"));
                }
            }
        }
        if let (Some(at), true) = (self.stranger, self.copy.is_none()) {
            return Some(format!("{at} takes its own records for another history"));
        }
        self.fault_of_claims().or_else(|| protocol::faults(&self.store).pop())
    }

    pub(crate) fn next(&self, scene: &Scene) -> Vec<(String, World)> {
        let mut all = Vec::new();
        for at in 0..self.machines.len() {
            self.steps_of(at, scene, &mut all);
        }
        for at in 0..self.mail.len() {
            let mut world = self.clone();
            let mail = world.mail.remove(at);
            let applied = mail.fresh.then(|| mail.next.clone());
            if let Some(next) = applied.clone() {
                world.write(next);
            }
            let sender = &mut world.machines[mail.from];
            if let (true, Call::Sent { trust }) = (mail.is_awaited, &sender.call) {
                sender.call = Call::Answered { next: applied, trust: *trust };
            }
            all.push((format!("the store gets a write of {}", mail.from), world));
        }
        self.operator(scene, &mut all);
        self.operate_claims(&mut all);
        self.restore(scene, &mut all);
        all
    }

    fn operator(&self, scene: &Scene, all: &mut Vec<(String, World)>) {
        for (name, member) in &self.store.nodes {
            let of_name = |machine: &&Machine| machine.name.to_string() == *name;
            if self.forgets > 0 && !member.leaving {
                let mut world = self.clone();
                world.forgets -= 1;
                world.write(protocol::begin_to_forget(&self.store, name).unwrap());
                all.push((format!("the operator begins to forget {name}"), world));
            }
            let is_over = self.machines.iter().filter(of_name).all(|machine| !machine.trusts());
            let has_lost = self.machines.iter().filter(of_name).any(|m| m.view.is_none() && !m.pods.is_empty());
            if member.leaving && !has_lost && (is_over || scene.fault == Fault::ForgetAtOnce) {
                let mut world = self.clone();
                world.write(protocol::end_forgetting(&self.store, name).unwrap());
                // The operator's decision: what still runs there keeps its addresses, and others may get them.
                world.machines.iter_mut().filter(|machine| of_name(&&**machine)).for_each(|machine| {
                    machine.pods.clear();
                    machine.claimants.clear();
                });
                all.push((format!("the operator ends forgetting {name}"), world));
            }
        }
    }

    fn steps_of(&self, at: usize, scene: &Scene, all: &mut Vec<(String, World)>) {
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
                self.calls_for_claims(at, scene, &mut step);
                // A machine that has all it can have only reads the same again.
                let is_served = machine.view.as_ref().is_some_and(|view| view.is_trusted && !view.is_pending);
                let is_room =
                    self.store.runs.iter().map(|run| run.span().last.bits - run.span().first.bits + 1).sum::<u128>()
                        < u128::from(scene.addresses);
                let needs_runs = scene.claims == 0 || scene.adds > 0;
                if needs_runs && (!is_served || is_room && self.adds > 0) {
                    step("reads, to claim", &|world| world.begin(at, Change::Claim));
                }
                let runs = machine.view.iter().flat_map(|view| &view.runs);
                for (first, last) in runs.filter(|run| machine.reserved.range(run.0..=run.1).next().is_none()) {
                    step(&format!("finds run {first} empty"), &|world| {
                        let view = world.machines[at].view.as_mut().unwrap();
                        if scene.fault != Fault::GiveBackFirst {
                            view.runs.retain(|run| *run != (*first, *last));
                            (view.is_pending, view.is_open) = (true, true);
                        }
                        let is_left = world.give_backs > 0;
                        world.give_backs = world.give_backs.saturating_sub(1);
                        is_left && world.begin(at, Change::GiveBack(*first))
                    });
                }
            }
            Call::Read { .. } => step("goes on", &|world| world.send(at, scene)),
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
        self.life_of(at, scene, &mut step);
    }

    /// Containers come and go; accidents.
    fn life_of(&self, at: usize, scene: &Scene, step: &mut dyn FnMut(&str, Event<'_>)) {
        let machine = &self.machines[at];
        match machine.adding {
            None if !self.repairing.is_empty() => {}
            None => {
                let free = (0..scene.addresses).find(|free| machine.owns(*free) && !machine.reserved.contains(free));
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
                match machine.owns(address) || scene.fault == Fault::AddOnce {
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
    fn begin(&mut self, at: usize, change: Change) -> bool {
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

    fn send(&mut self, at: usize, scene: &Scene) -> bool {
        let machine = &mut self.machines[at];
        let Call::Read { state, fresh, trust, change } = machine.call.clone() else { return false };
        let me = machine.me(at, &state, scene.fault);
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
            next = protocol::adopt(&next, &me.name, &held).0;
        }
        match change {
            Change::Claim => {
                let set = [Span { first: address(0), last: address(scene.addresses - 1) }];
                next = protocol::claim(&next, &me.name, &set, 2, &Barred::default()).map_or(next, |(next, _)| next);
            }
            Change::GiveBack(first) => next = protocol::give_back(&next, &me.name, address(first).ip()),
            Change::Hold => next = claims::hold(&next, &me.name, scene),
            Change::Leave => next = claims::leave(&next, &me.name),
        }
        let view = machine.view.as_mut().unwrap();
        if is_absent {
            (view.runs, view.claim) = (Vec::new(), None);
        }
        if next == state && (!view.is_pending || scene.fault == Fault::NoWriteWhenPending) {
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
