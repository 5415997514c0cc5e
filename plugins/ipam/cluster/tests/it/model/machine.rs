//! A machine of the model: its view, its containers, and the call that it makes.

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocol::{self, Cards, Draft, Key, Me, Memory, Network, Node, Record, Write, claims};
use host_local::conf::Barred;
use host_local::range::Span;

use super::{ADDRESSES, CLAIM, Fault, Mail, World, address, base, changes, sets};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Claim,
    Tidy,
    Hold,
    Leave,
    Compare,
}

pub(super) enum Call {
    None,
    /// The node's own record and the network's were read.
    Read {
        draft: Draft,
        trust: bool,
        change: Change,
    },
    /// The writes are sent one after the other.
    Writing {
        draft: Draft,
        trust: bool,
        left: Vec<Write>,
        before: Box<View>,
    },
}

#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) memory: Memory,
    store_id: usize,
    network: Network,
    is_recorded: bool,
    is_trusted: bool,
    pub(super) compared: BTreeSet<String>,
    /// How often the view was written.
    number: u64,
}

/// An ADD: the address that it will reserve or has, whether by a claim, and the view that it has read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Adding {
    address: u128,
    by_claim: bool,
    number: u64,
    is_reserved: bool,
}

pub(super) struct Machine {
    pub(super) is_up: bool,
    pub(super) name: usize,
    card: Option<usize>,
    boot: usize,
    pub(super) folder: usize,
    pub(super) view: Option<View>,
    /// The reservations in the data folder.
    pub(super) reserved: BTreeSet<u128>,
    /// The addresses of living containers, and whether each is a claim's.
    pub(super) pods: BTreeMap<u128, bool>,
    pub(super) adding: Option<Adding>,
    /// An address that a container got while another one of this machine had it.
    pub(super) twice: Option<u128>,
    pub(super) call: Call,
    /// The cards that the call compares with those of others.
    comparing: Option<BTreeSet<String>>,
    pub(super) given: usize,
}

impl Machine {
    /// `has_card`: also a card that no other machine has.
    pub(super) fn new(at: usize, has_card: bool) -> Self {
        Self {
            is_up: true,
            name: at,
            card: has_card.then_some(at),
            boot: at,
            folder: at,
            view: None,
            reserved: BTreeSet::new(),
            pods: BTreeMap::new(),
            adding: None,
            twice: None,
            call: Call::None,
            comparing: None,
            given: 0,
        }
    }

    fn has(&self, number: u128, by_claim: bool) -> bool {
        let Some(view) = self.view.as_ref().filter(|view| view.is_trusted && self.is_up) else { return false };
        match by_claim {
            true => view.memory.claims.values().flatten().any(|ip| *ip == address(number).ip()),
            false => view.memory.spans().any(|run| run.contains(address(number))),
        }
    }

    pub(super) fn owns(&self, number: u128) -> bool {
        self.has(number, false)
    }

    pub(super) fn distrust(&mut self) {
        if let Some(view) = &mut self.view {
            (view.is_trusted, view.number) = (false, view.number + 1);
        }
        if let Call::Read { trust, .. } | Call::Writing { trust, .. } = &mut self.call {
            *trust = false;
        }
    }

    pub(super) fn trusts(&self) -> bool {
        let of_call = matches!(self.call, Call::Read { trust: true, .. } | Call::Writing { trust: true, .. });
        of_call || self.view.as_ref().is_some_and(|view| view.is_trusted)
    }

    pub(super) fn go_down(&mut self) {
        self.distrust();
        self.is_up = false;
        self.pods.clear();
        self.adding = None;
    }

    fn me(&self, recorded: Option<&Node>, fault: Fault) -> Me {
        let view = self.view.as_ref().unwrap();
        let mut me = Me {
            name: self.name.to_string(),
            store_id: view.store_id.to_string(),
            is_recorded: view.is_recorded,
            is_copy: false,
            boot: self.boot.to_string(),
            macs: self
                .card
                .map(|card| card.to_string())
                .into_iter()
                .chain(["nat".to_owned(), "usb".to_owned()])
                .collect(),
            shared: BTreeMap::new(),
            trust_seconds: 1,
            now: 0,
        };
        if let (Some(recorded), Fault::AnyMachine) = (recorded, fault) {
            me.macs.clone_from(&recorded.macs);
        }
        if let (Some(recorded), Fault::AnyFolder) = (recorded, fault) {
            (me.store_id, me.is_recorded) = (recorded.store_id.clone(), true);
        }
        me
    }
}

impl World {
    /// A machine's next step: its call goes on, or its containers come and go.
    pub(super) fn live(&mut self, at: usize) {
        if !self.machines[at].is_up {
            self.note(format!("{at} starts"));
            let machine = &mut self.machines[at];
            (machine.is_up, machine.boot) = (true, machine.boot + 10);
            return;
        }
        match self.draw(3) {
            0 => self.call(at),
            1 => self.add(at),
            _ if self.draw(2) == 0 => self.del(at),
            _ => self.call(at),
        }
    }

    fn call(&mut self, at: usize) {
        match std::mem::replace(&mut self.machines[at].call, Call::None) {
            Call::None => {
                let change = changes()[self.draw(5)];
                self.note(format!("{at} reads, to {change:?}"));
                let mut draft = Draft::default();
                for key in [Key::Network, Key::Node(self.machines[at].name.to_string())] {
                    self.read(&mut draft, &key);
                }
                self.machines[at].call = Call::Read { draft, trust: true, change };
            }
            Call::Read { draft, trust, change } => self.send(at, draft, trust, change),
            writing @ Call::Writing { .. } => self.machines[at].call = writing,
        }
    }

    /// Reads the other records, and sends the first write; as `Work` does.
    fn send(&mut self, at: usize, mut draft: Draft, trust: bool, change: Change) {
        let fault = self.fault;
        let folder = self.machines[at].folder;
        let network = draft.network().unwrap().clone();
        let new = View {
            memory: Memory::default(),
            store_id: folder,
            network: network.clone(),
            is_recorded: false,
            is_trusted: false,
            compared: BTreeSet::new(),
            number: 0,
        };
        self.machines[at].view.get_or_insert(new);
        let (claim, name) = (Key::Claim(CLAIM.to_owned()), self.machines[at].name.to_string());
        self.read(&mut draft, &base());
        self.read(&mut draft, &claim);
        self.read(&mut draft, &Key::Cards);
        let noted = if fault == Fault::NoCards { Cards::default() } else { draft.cards() };
        let all = self.store.iter().filter_map(|(key, (_, record))| Some((key, record.as_ref()?)));
        let machine = &mut self.machines[at];
        machine.comparing = (change == Change::Compare).then(|| protocol::compare(&mut draft, &name, all.clone()));
        let recorded = draft.node(&name).cloned();
        let mut me = machine.me(recorded.as_ref(), fault);
        let compared = &machine.view.as_ref().unwrap().compared;
        let is_proven = recorded.as_ref().is_some_and(|node| protocol::is_proven(node, &me, compared, &noted));
        if !is_proven && fault != Fault::SharedCards {
            me.shared = protocol::shared(all, &name);
        }
        let before = machine.view.clone().unwrap();
        let view = machine.view.as_mut().unwrap();
        let repairs = matches!(&network.closed, Some(protocol::Closed::Repair(nodes)) if nodes.contains(&name));
        let is_gone = recorded.is_none() && view.is_recorded && network.forgotten <= view.network.forgotten;
        let recalled = recorded.as_ref().filter(|_| view.is_recorded && !repairs && fault != Fault::NoRepair);
        let recalled = recalled.map_or(Ok(()), |node| protocol::recall(node, &view.memory));
        let entered = protocol::enter(recorded.as_ref(), &me);
        let (Ok(node), Ok(()), false) = (entered, recalled, is_gone && !repairs) else { return machine.distrust() };
        if network.closed.is_some() && !repairs {
            return;
        }
        if repairs || recorded.is_none() {
            view.compared.clear();
        }
        let held: Vec<_> = machine.reserved.iter().map(|number| address(*number)).collect();
        let highest = node.changes.max(view.memory.changes);
        view.memory.changes = if repairs { highest } else { node.changes };
        let mut node = Node { changes: view.memory.changes, ..node };
        if fault != Fault::NoForce {
            view.memory.pending.iter().filter_map(|key| Key::parse(key)).for_each(|key| draft.force(&key));
        }
        if repairs {
            let conflicts = protocol::restore(&mut draft, &name, &view.memory, &held);
            if conflicts.is_empty() && !draft.changes_runs() {
                let mut network = network.clone();
                protocol::reopen(&mut network, &name);
                draft.set(&Key::Network, Some(Record::Network(network)));
            }
        } else {
            if recorded.as_ref().is_some_and(|recorded| recorded.store_id != me.store_id) {
                protocol::erase(&mut draft, &name);
            }
            draft.fill(&mut view.memory, &name);
            if recorded.is_none() {
                let memory = std::mem::take(&mut view.memory);
                if view.is_recorded {
                    protocol::come_back(&mut draft, &name, &memory, &held);
                }
            }
            apply(change, &mut draft, &name, &machine.reserved);
        }
        let is_changed = !draft.writes().is_empty();
        node.changes += u64::from(is_changed);
        let key = Key::Node(name.clone());
        draft.set(&key, Some(Record::Node(node)));
        draft.force(&key);
        if !repairs && fault != Fault::LeaveLate {
            draft.leave(&mut view.memory, &name);
            if fault != Fault::GainEarly {
                protocol::keep(&mut view.memory, &before.memory);
            }
        } else if fault == Fault::LeaveLate {
            view.memory.runs.clone_from(&before.memory.runs);
            view.memory.claims.clone_from(&before.memory.claims);
        }
        let left = draft.writes();
        view.memory.pending.extend(
            left.iter()
                .filter(|write| !matches!(write.key, Key::Node(_) | Key::Network))
                .map(|write| write.key.to_string()),
        );
        (view.network, view.number) = (Network { closed: None, ..network }, view.number + 1);
        self.mail.push(Mail { from: at, write: left[0].clone(), is_awaited: true });
        self.machines[at].call = Call::Writing { draft, trust, left, before: Box::new(before) };
    }

    /// The store has answered a write.
    pub(super) fn answered(&mut self, at: usize, is_applied: bool) {
        let machine = &mut self.machines[at];
        let Call::Writing { draft, trust, mut left, before } = std::mem::replace(&mut machine.call, Call::None) else {
            return;
        };
        let view = machine.view.as_mut().unwrap();
        if !is_applied {
            if left.len() == draft.writes().len() {
                // Nothing was written.
                view.memory = before.memory;
                view.number += 1;
            }
            return;
        }
        left.remove(0);
        if let Some(write) = left.first() {
            self.mail.push(Mail { from: at, write: write.clone(), is_awaited: true });
            machine.call = Call::Writing { draft, trust, left, before };
            return;
        }
        let name = machine.name.to_string();
        draft.fill(&mut view.memory, &name);
        view.memory.pending.clear();
        view.memory.changes = draft.node(&name).unwrap().changes;
        view.compared = machine.comparing.take().unwrap_or(std::mem::take(&mut view.compared));
        (view.is_recorded, view.is_trusted, view.number) = (true, trust, view.number + 1);
    }

    fn add(&mut self, at: usize) {
        let is_checked = self.fault != Fault::AddOnce;
        let machine = &mut self.machines[at];
        let number = machine.view.as_ref().map_or(0, |view| view.number);
        match machine.adding.take() {
            None => {
                let free = (0..ADDRESSES).find(|free| {
                    !machine.reserved.contains(free) && (machine.has(*free, false) || machine.has(*free, true))
                });
                machine.adding = free.map(|address| {
                    let by_claim = machine.has(address, true);
                    Adding { address, by_claim, number, is_reserved: false }
                });
            }
            Some(adding) if !adding.is_reserved => {
                if machine.reserved.insert(adding.address) {
                    machine.adding = Some(Adding { is_reserved: true, ..adding });
                }
            }
            Some(adding) => {
                let is_current = adding.number == number && machine.has(adding.address, adding.by_claim);
                if is_current || !is_checked {
                    machine.given += 1;
                    if machine.pods.insert(adding.address, adding.by_claim).is_some() {
                        machine.twice = Some(adding.address);
                    }
                } else {
                    machine.reserved.remove(&adding.address);
                }
                self.note(format!("{at} ends ADD of {}: {is_current}", adding.address));
            }
        }
    }

    fn del(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let adding = machine.adding.filter(|adding| adding.is_reserved).map(|adding| adding.address);
        if let Some(address) = machine.reserved.iter().copied().find(|address| Some(*address) != adding) {
            machine.reserved.remove(&address);
            machine.pods.remove(&address);
            self.note(format!("{at} DEL {address}"));
        }
    }
}

/// A change, by the plugin's functions.
fn apply(change: Change, draft: &mut Draft, name: &str, reserved: &BTreeSet<u128>) {
    let held = reserved.iter().map(|number| address(*number)).collect();
    let room = |draft: &Draft, set: Span| {
        let Key::Runs(at) = base() else { return None };
        protocol::room(at, &draft.shard(at), &[set], 1, &Barred::default()).best
    };
    match change {
        Change::Claim => {
            if let Some((_, span)) = sets().into_iter().find_map(|set| room(draft, set)) {
                draft.take(span, name).unwrap();
            }
        }
        Change::Compare => {}
        Change::Tidy => {
            for set in sets() {
                protocol::give_back(draft, name, &[set], &held, 0, &Barred::default());
            }
        }
        Change::Hold => {
            let Ok(own) = claims::hold(draft, name, CLAIM, true) else { return };
            for set in sets() {
                if !own.iter().any(|ip| set.contains((*ip).into()))
                    && let Some((_, span)) = room(draft, set)
                {
                    claims::grant(draft, CLAIM, span.first).unwrap();
                }
            }
        }
        Change::Leave => {
            let own = draft.claim(CLAIM).map(|claim| claim.addresses.clone()).unwrap_or_default();
            if own.iter().all(|ip| !held.contains(&(*ip).into())) {
                claims::leave(draft, name, &[CLAIM.to_owned()]);
            }
        }
    }
}
