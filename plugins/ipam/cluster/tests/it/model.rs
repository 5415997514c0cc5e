//! Every order of events of three machines on one store, with the plugin's own functions: no address is given twice.
//!
//! A machine does what `src/transaction.rs` does, a step at a time; between any two steps anything else may happen: a message
//! arrives late, a process is killed, a machine goes down and is started again, its folder is copied to another machine or
//! emptied, an operator forgets its node. A partition is a message that does not arrive. Time is an event, too: what a
//! machine trusts may expire at any moment.

mod claims;
mod restore;
mod search;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocol::{self, Me, Memory, State};
use host_local::address::Address;

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
pub(crate) struct Bounds {
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
            is_copy: false,
            boot: self.boot.to_string(),
            macs: BTreeSet::from([at.to_string()]),
            trust_seconds: 1,
            now: 0,
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
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let machine = |name: usize| Machine {
            // The last machine of a search with a clone is off until it becomes one.
            is_up: bounds.clones == 0 || name + 1 < bounds.machines,
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
            machines: (0..bounds.machines).map(machine).collect(),
            mail: Vec::new(),
            crashes: bounds.crashes,
            clones: bounds.clones,
            emptied: bounds.emptied,
            forgets: bounds.forgets,
            give_backs: bounds.give_backs,
            adds: bounds.adds,
            losses: bounds.losses,
            claims: bounds.claims,
            restores: bounds.restores,
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

    pub(crate) fn next(&self, bounds: &Bounds) -> Vec<(String, World)> {
        let mut all = Vec::new();
        for at in 0..self.machines.len() {
            self.steps_of(at, bounds, &mut all);
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
        self.operator(bounds, &mut all);
        self.operate_claims(&mut all);
        self.restore(bounds, &mut all);
        all
    }

    fn operator(&self, bounds: &Bounds, all: &mut Vec<(String, World)>) {
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
            if member.leaving && !has_lost && (is_over || bounds.fault == Fault::ForgetAtOnce) {
                let mut world = self.clone();
                world.write(protocol::end_forgetting(&self.store, name, member).unwrap());
                // The operator's decision: what still runs there keeps its addresses, and others may get them.
                world.machines.iter_mut().filter(|machine| of_name(&&**machine)).for_each(|machine| {
                    machine.pods.clear();
                    machine.claimants.clear();
                });
                all.push((format!("the operator ends forgetting {name}"), world));
            }
        }
    }
}
