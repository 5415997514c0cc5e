//! Machines on one store in many orders of events, with the plugin's own functions: no address is given twice, and whoever needs an address of which
//! one is left gets it.
//!
//! A machine does what `src/transaction.rs` does, a step at a time; between any two steps anything else may happen: a write of one record
//! arrives late or never, a process is killed, a machine goes down and is started again, its folder is copied to another machine or
//! emptied, an operator forgets its node or puts an older store in place. A partition is a write that does not arrive. Time is an event, too: what a
//! machine trusts may expire at any moment. Each walk draws its events by a number of its own, which a failure names.

mod liveness;
mod machine;

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocol::{self, Closed, Draft, FORM, Key, Network, Record, Write};
use host_local::address::{Address, Family};
use host_local::range::Span;

use machine::{Call, Change, Machine};

/// A deliberate fault, which the walks have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// `forget` does not wait for the trust to end.
    ForgetAtOnce,
    /// `forget` does not compare the node's record before it frees a run.
    EraseAlways,
    /// A machine's Ethernet addresses are not compared.
    AnyMachine,
    /// Ethernet addresses that several machines have count.
    SharedCards,
    /// The record of Ethernet addresses that several machines have is not read.
    NoCards,
    /// ADD does not compare its view after it has reserved.
    AddOnce,
    /// A record that an earlier write may still reach is not written anew.
    NoForce,
    /// An emptied folder may go on.
    AnyFolder,
    /// A run or a claim leaves the view after it has left the store.
    LeaveLate,
    /// A restored store is open.
    NoRepair,
    /// What an unanswered write has brought counts before the store has confirmed it.
    GainEarly,
}

/// An accident that a walk may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accident {
    Loss,
    Crash,
    Clone,
    Empty,
    /// A machine with its folder in memory goes down.
    Tmpfs,
    Forget,
    Restore,
    /// An operator imports an address of the claim, from before it had the store.
    Import,
}
use Accident::{Clone as Copied, Crash, Empty, Forget, Import, Loss, Restore, Tmpfs};

const MACHINES: usize = 3;
const ADDRESSES: u128 = 3;
const STEPS: usize = 220;
const CLAIM: &str = "db";

fn address(number: u128) -> Address {
    Address { family: Family::V4, bits: 0x0a00_0000 + number }
}

/// The range sets: a claim has an address of each.
fn sets() -> [Span; 2] {
    [
        Span { first: address(0), last: address(ADDRESSES - 2) },
        Span { first: address(ADDRESSES - 1), last: address(ADDRESSES - 1) },
    ]
}

fn base() -> Key {
    Key::Runs(protocol::base_of(address(0)))
}

type Store = BTreeMap<Key, (u64, Option<Record>)>;

/// A write of one record on its way; `is_awaited`: its sender waits for the answer.
#[derive(Debug, Clone)]
struct Mail {
    from: usize,
    write: Write,
    is_awaited: bool,
}

/// An operator's command that forgets a node: the version that the node's record has by it, and what is next.
#[derive(Debug, Clone)]
struct Forgetting {
    name: String,
    version: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    Frees,
    Ends,
}

struct World {
    store: Store,
    /// The last version of any record.
    version: u64,
    /// Whether a record that was removed has no version, as in etcd and Kubernetes; in a folder it goes on from its last one.
    forgets_versions: bool,
    machines: Vec<Machine>,
    mail: Vec<Mail>,
    copy: Option<Store>,
    forgetting: Option<Forgetting>,
    accidents: Vec<Accident>,
    fault: Fault,
    random: u64,
    trail: Vec<String>,
}

impl World {
    fn new(accidents: &[Accident], fault: Fault, seed: u64) -> Self {
        let network = Network { form: FORM, id: "1".to_owned(), ..Network::default() };
        Self {
            store: BTreeMap::from([(Key::Network, (1, Some(Record::Network(network))))]),
            version: 1,
            forgets_versions: seed.is_multiple_of(3),
            machines: (0..MACHINES).map(|at| Machine::new(at, seed.is_multiple_of(2))).collect(),
            mail: Vec::new(),
            copy: None,
            forgetting: None,
            accidents: accidents.to_vec(),
            fault,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            trail: Vec::new(),
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % below as u64).unwrap()
    }

    fn read(&self, draft: &mut Draft, key: &Key) {
        let (version, record) = self.store.get(key).cloned().unwrap_or_default();
        draft.load(key.clone(), version, record);
    }

    /// Applies a write, if its record has the version.
    fn apply(&mut self, write: &Write) -> bool {
        let version = self.store.get(&write.key).map_or(0, |found| found.0);
        let is_fresh = version == write.version;
        if is_fresh {
            self.version += 1;
            match &write.record {
                None if self.forgets_versions => drop(self.store.remove(&write.key)),
                record => drop(self.store.insert(write.key.clone(), (self.version, record.clone()))),
            }
        }
        is_fresh
    }

    fn edit(&mut self, keys: &[Key], change: impl FnOnce(&mut Draft)) {
        let mut draft = Draft::default();
        keys.iter().for_each(|key| self.read(&mut draft, key));
        change(&mut draft);
        draft.writes().iter().for_each(|write| assert!(self.apply(write)));
    }

    fn note(&mut self, event: String) {
        self.trail.push(event);
    }

    fn step(&mut self) {
        let drawn = self.draw(8);
        let accident = self.accidents.get(drawn).copied();
        let at = self.draw(MACHINES);
        match self.draw(10) {
            0..4 if !self.mail.is_empty() => self.deliver(),
            4 if accident.is_some() => self.happen(at, accident),
            5 => self.operate(),
            6 if self.machines[at].view.is_some() && self.draw(3) == 0 => {
                self.note(format!("{at} trusts no longer"));
                self.machines[at].distrust();
            }
            _ => self.live(at),
        }
    }

    fn deliver(&mut self) {
        let chosen = self.draw(self.mail.len());
        let mail = self.mail.remove(chosen);
        let is_applied = self.apply(&mail.write);
        self.note(format!("the store gets {} of {}: {is_applied}", mail.write.key, mail.from));
        if mail.is_awaited {
            self.answered(mail.from, is_applied);
        }
    }

    fn happen(&mut self, at: usize, accident: Option<Accident>) {
        let is_up = self.machines[at].is_up;
        match accident {
            Some(Loss) if matches!(self.machines[at].call, Call::Writing { .. }) => {
                self.note(format!("{at} gives up"));
                self.give_up(at);
            }
            Some(Crash) if is_up => {
                self.note(format!("{at} goes down"));
                self.give_up(at);
                self.machines[at].go_down();
            }
            // Cards that several machines have are known by a second record, whose node has compared them.
            Some(Copied) if at > 0 && is_up && self.is_ripe_to_copy(at) => {
                self.note(format!("{at} becomes a clone of 0"));
                self.give_up(at);
                let original = &self.machines[0];
                let (view, name, held) = (original.view.clone(), original.name, original.reserved.clone());
                let machine = &mut self.machines[at];
                (machine.view, machine.name, machine.reserved) = (view, name, held);
                machine.distrust();
            }
            Some(Empty | Tmpfs) if is_up && self.machines[at].view.is_some() => {
                self.note(format!("the folder of {at} is emptied: {accident:?}"));
                self.give_up(at);
                if accident == Some(Tmpfs) {
                    self.machines[at].go_down();
                }
                let machine = &mut self.machines[at];
                (machine.view, machine.adding) = (None, None);
                machine.reserved.clear();
                machine.folder += 10;
            }
            Some(Restore) => self.restore(),
            Some(Import) => {
                self.note("an address is imported".to_owned());
                self.edit(&[base(), Key::Claim(CLAIM.to_owned())], |draft| {
                    let is_held = draft.claim(CLAIM).is_some_and(|claim| !claim.holders.is_empty());
                    let free = (0..ADDRESSES).map(address).find(|free| draft.find(*free).is_none());
                    if let Some(free) = free.filter(|_| !is_held) {
                        protocol::claims::grant(draft, CLAIM, free).unwrap();
                    }
                });
            }
            _ => {}
        }
    }

    fn is_ripe_to_copy(&self, at: usize) -> bool {
        let mut draft = Draft::default();
        self.read(&mut draft, &Key::Cards);
        let is_known = |view: &machine::View| view.compared.is_empty() || !draft.cards().shared.is_empty();
        let original = &self.machines[0].view;
        original.as_ref().is_some_and(is_known) && self.machines[at].pods.is_empty() && self.names().len() > 1
    }

    fn give_up(&mut self, at: usize) {
        self.machines[at].call = Call::None;
        self.mail.iter_mut().filter(|mail| mail.from == at).for_each(|mail| mail.is_awaited = false);
    }

    /// The operator copies the store, or puts the copy back, which is closed until all nodes have written back.
    fn restore(&mut self) {
        let Some(copy) = self.copy.take() else {
            self.note("the store is copied".to_owned());
            self.copy = Some(self.store.clone());
            return;
        };
        // Store and operator are stopped meanwhile, and forgotten nodes do not come back by it.
        if self.forgetting.is_some() || self.names() != names_of(&copy) {
            return;
        }
        self.note("the store goes back to the copy".to_owned());
        self.mail.clear();
        (0..MACHINES).for_each(|at| self.give_up(at));
        self.version += 1;
        self.store = copy.into_iter().map(|(key, (_, record))| (key, (self.version, record))).collect();
        if self.fault != Fault::NoRepair {
            let names = self.names();
            self.edit(&[Key::Network], |draft| {
                let closed = Some(Closed::Repair(names.clone())).filter(|_| !names.is_empty());
                let network = Network { closed, ..draft.network().unwrap().clone() };
                draft.set(&Key::Network, Some(Record::Network(network)));
            });
        }
        self.accidents.retain(|accident| *accident != Restore);
    }

    fn names(&self) -> BTreeSet<String> {
        names_of(&self.store)
    }

    /// The operator forgets a node, a step at a time.
    fn operate(&mut self) {
        if let Some(command) = self.forgetting.clone() {
            self.go_on_forgetting(command);
        } else if self.accidents.contains(&Forget) && self.draw(4) == 0 {
            let names: Vec<String> = self.names().into_iter().collect();
            if names.is_empty() {
                return;
            }
            let name = names[self.draw(names.len())].clone();
            self.note(format!("the operator begins to forget {name}"));
            let key = Key::Node(name.clone());
            self.edit(std::slice::from_ref(&key), |draft| {
                let begun = protocol::begin_to_forget(draft.node(&name));
                draft.set(&key, begun.map(Record::Node));
            });
            // Another operator may do the same.
            if self.draw(4) > 0 {
                self.forgetting = Some(Forgetting { version: self.store[&key].0, name, stage: Stage::Waits });
            }
        }
    }

    fn go_on_forgetting(&mut self, Forgetting { name, version, stage }: Forgetting) {
        let key = Key::Node(name.clone());
        let trusts = self.machines.iter().any(|machine| machine.name.to_string() == name && machine.trusts());
        let (found, record) = self.store.get(&key).cloned().unwrap_or_default();
        let is_same = found == version;
        let kept = match &record {
            Some(Record::Node(node)) if is_same => protocol::cancel(node),
            _ => None,
        };
        if let (Some(kept), 0) = (kept, self.draw(4)) {
            self.note(format!("the operator cancels to forget {name}"));
            return self.edit(std::slice::from_ref(&key), |draft| draft.set(&key, Some(Record::Node(kept))));
        }
        if stage == Stage::Waits && trusts && self.fault != Fault::ForgetAtOnce {
            return;
        }
        // A second command, which does the same later.
        let is_second = self.draw(4) == 0 && !trusts;
        self.note(format!("the operator goes on forgetting {name}, {stage:?}: {is_same}"));
        self.forgetting = None;
        let next = match (stage, record) {
            (Stage::Waits, Some(Record::Node(node))) if is_same => {
                let freeing = Some(Record::Node(protocol::begin_to_free(&node)));
                self.edit(std::slice::from_ref(&key), |draft| draft.set(&key, freeing));
                Stage::Frees
            }
            (Stage::Frees, _) if is_same || self.fault == Fault::EraseAlways => {
                self.edit(&[base(), Key::Claim(CLAIM.to_owned())], |draft| protocol::erase(draft, &name));
                // The operator's decision: what still runs there keeps its addresses, and others may get them.
                let of_name = |machine: &&mut Machine| machine.name.to_string() == name;
                self.machines.iter_mut().filter(of_name).filter(|_| is_same).for_each(|machine| machine.pods.clear());
                Stage::Ends
            }
            (Stage::Ends, _) if is_same => {
                self.edit(&[Key::Network, Key::Want(name.clone()), key.clone()], |draft| {
                    protocol::end_to_forget(draft, &name);
                });
                return self.forgetting = is_second.then_some(Forgetting { name, version, stage: Stage::Frees });
            }
            _ => return,
        };
        let version = self.store.get(&key).map_or(0, |found| found.0);
        self.forgetting = Some(Forgetting { version, name, stage: next }).filter(|_| is_same);
    }

    /// The sentence about an address that is given twice.
    fn fault(&self) -> Option<String> {
        for (at, one) in self.machines.iter().enumerate() {
            if let Some(twice) = one.twice {
                return Some(format!("two containers of {at} have address {twice}"));
            }
            for (beside, other) in self.machines.iter().enumerate().skip(at + 1) {
                let both = one
                    .pods
                    .iter()
                    .find(|(address, claim)| other.pods.get(address).is_some_and(|of| !(*of && **claim)));
                if let Some((twice, _)) = both {
                    return Some(format!("containers of {at} and {beside} have address {twice}"));
                }
                if let Some(twice) = (0..ADDRESSES).find(|address| one.owns(*address) && other.owns(*address)) {
                    return Some(format!("{at} and {beside} both give address {twice}"));
                }
            }
        }
        None
    }
}

fn names_of(store: &Store) -> BTreeSet<String> {
    let name = |(key, found): (&Key, &(u64, Option<Record>))| match key {
        Key::Node(name) if found.1.is_some() => Some(name.clone()),
        _ => None,
    };
    store.iter().filter_map(name).collect()
}

/// Walks so often; how many claims of runs came to their end, or the events that lead to a fault.
fn walk(accidents: &[Accident], fault: Fault, walks: u64) -> Result<usize, String> {
    let mut done = 0;
    for seed in 0..walks {
        let mut world = World::new(accidents, fault, seed);
        for _ in 0..STEPS {
            world.step();
            if let Some(fault) = world.fault() {
                return Err(format!("walk {seed}: {fault}\n{}", world.trail.join("\n")));
            }
        }
        done += world.machines.iter().map(|machine| machine.given).sum::<usize>();
    }
    Ok(done)
}

#[test]
fn no_order_of_events_gives_an_address_twice() {
    for accidents in [
        &[Loss][..],
        &[Loss, Crash],
        &[Loss, Crash, Forget],
        &[Copied, Crash],
        &[Empty, Forget],
        &[Loss, Tmpfs, Forget],
        &[Loss, Restore],
        &[Loss, Crash, Forget, Restore],
        &[Loss, Import, Forget],
    ] {
        match walk(accidents, Fault::None, 4000) {
            Ok(done) => assert!(done > 2000, "{accidents:?}: only {done} containers got an address"),
            Err(events) => panic!("{accidents:?}: {events}"),
        }
    }
}

#[test]
fn each_seeded_fault_is_found() {
    for (fault, accidents) in [
        (Fault::ForgetAtOnce, &[Forget][..]),
        (Fault::EraseAlways, &[Forget]),
        (Fault::AnyMachine, &[Copied]),
        (Fault::SharedCards, &[Copied]),
        (Fault::NoCards, &[Copied]),
        (Fault::AddOnce, &[Loss]),
        (Fault::NoForce, &[Loss]),
        (Fault::AnyFolder, &[Empty]),
        (Fault::LeaveLate, &[Loss]),
        (Fault::NoRepair, &[Loss, Restore]),
        (Fault::GainEarly, &[Loss]),
    ] {
        let found = walk(accidents, fault, 40_000);
        assert!(found.is_err(), "{fault:?} was not found");
    }
}

/// A step's change, for a machine to begin with.
fn changes() -> [Change; 5] {
    [Change::Claim, Change::Tidy, Change::Hold, Change::Leave, Change::Compare]
}
