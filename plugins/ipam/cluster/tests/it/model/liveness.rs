//! Exact fit: as many containers as addresses, however they arrive, and all get one.

use std::collections::{BTreeMap, BTreeSet};

use cluster::protocol::{self, Draft, Key, Write};
use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

use super::{Store, address};

const MOST: u32 = 32;
/// How often a runtime tries in 30 s, at the least.
const TRIES: usize = 2;

/// Nodes whose calls come one after the other.
struct Cluster {
    set: Span,
    store: Store,
    nodes: Vec<Node>,
}

#[derive(Clone)]
struct Node {
    held: BTreeSet<Address>,
    keeps: u128,
    wants: bool,
}

impl Cluster {
    fn new(nodes: usize, addresses: u128) -> Self {
        let node = Node { held: BTreeSet::new(), keeps: 0, wants: false };
        Self {
            set: Span { first: address(10), last: address(9 + addresses) },
            store: BTreeMap::new(),
            nodes: vec![node; nodes],
        }
    }

    fn draft(&self) -> Draft {
        let mut draft = Draft::default();
        for base in protocol::bases_of(self.set, usize::MAX) {
            let (version, record) = self.store.get(&Key::Runs(base)).cloned().unwrap_or_default();
            draft.load(Key::Runs(base), version, record);
        }
        draft
    }

    fn write(&mut self, draft: &Draft) {
        for Write { key, version, record } in draft.writes() {
            self.store.insert(key, (version + 1, record));
        }
    }

    fn own(&self, at: usize) -> BTreeSet<Address> {
        let draft = self.draft();
        let each =
            |run: Span| std::iter::successors(Some(run.first), move |at| at.next().filter(|next| *next <= run.last));
        let runs = draft.bases().flat_map(|base| draft.shard(base).of(&at.to_string()).collect::<Vec<_>>());
        runs.flat_map(each).collect()
    }

    /// As `Work::find_room` does.
    fn find_room(&mut self, at: usize) -> Option<Span> {
        let draft = self.draft();
        let mut room = protocol::Room::default();
        for base in draft.bases() {
            room.add(protocol::room(base, &draft.shard(base), &[self.set], MOST.into(), &Barred::default()));
        }
        room.nodes.insert(at.to_string());
        self.nodes[at].keeps = protocol::size(room.left, room.nodes.len(), MOST);
        protocol::cut(room.best?.1, self.nodes[at].keeps.max(1), &Barred::default())
    }

    fn add(&mut self, at: usize) -> bool {
        if self.own(at).is_subset(&self.nodes[at].held) {
            let Some(span) = self.find_room(at) else {
                self.nodes[at].wants = true;
                return false;
            };
            let mut draft = self.draft();
            draft.take(span, &at.to_string()).unwrap();
            self.write(&draft);
            self.nodes[at].wants = false;
        }
        let free = self.own(at).difference(&self.nodes[at].held).next().copied();
        self.nodes[at].held.extend(free);
        self.look(at, false);
        free.is_some()
    }

    /// What follows a call, as `upkeep` does it; `is_due`: it looks into the store whatever it has.
    fn look(&mut self, at: usize, is_due: bool) {
        let free = self.own(at).len() - self.nodes[at].held.len();
        if !is_due && !protocol::is_high(self.nodes[at].keeps, free as u128) {
            return;
        }
        self.find_room(at);
        let is_wanted = self.nodes.iter().enumerate().any(|(other, node)| other != at && node.wants);
        let keeps = if is_wanted { 0 } else { self.nodes[at].keeps };
        let mut draft = self.draft();
        protocol::give_back(&mut draft, &at.to_string(), &[self.set], &self.nodes[at].held, keeps, &Barred::default());
        self.write(&draft);
    }

    /// A container arrives on a node; whether it is refused, after others had a call each between the tries.
    fn is_refused(&mut self, at: usize) -> bool {
        for _ in 0..TRIES {
            if self.add(at) {
                return false;
            }
            (0..self.nodes.len()).for_each(|other| self.look(other, true));
        }
        !self.add(at)
    }

    fn del(&mut self, at: usize) {
        let first = self.nodes[at].held.pop_first();
        assert!(first.is_some());
        self.look(at, false);
    }
}

fn random(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % below
}

/// The node of the container with a number, by a seed.
type Place = fn(usize, &mut u64) -> usize;

/// 1,000 addresses and 1,000 containers.
#[test]
fn as_many_containers_as_addresses_get_one_each_however_they_arrive() {
    let mut seed = 7;
    let rows: [(&str, usize, Place); 8] = [
        ("10 in turns", 10, |k, _| k % 10),
        ("10, four at a time", 10, |k, _| k / 4 % 10),
        ("20 in turns", 20, |k, _| k % 20),
        ("40 in turns", 40, |k, _| k % 40),
        ("50 in turns", 50, |k, _| k % 50),
        ("one node after the other", 10, |k, _| k / 100),
        ("at random", 20, |_, seed| random(seed, 20)),
        ("half of the nodes first", 20, |k, seed| random(seed, if k < 500 { 10 } else { 20 })),
    ];
    for (label, nodes, place) in rows {
        let mut cluster = Cluster::new(nodes, 1000);
        let refused = (0..1000).filter(|k| cluster.is_refused(place(*k, &mut seed))).count();
        assert_eq!(refused, 0, "{label}");
    }
}

/// 61 to 94 % of the addresses are in use.
#[test]
fn containers_that_come_and_go_are_refused_less_than_once_in_a_hundred() {
    let (mut cluster, mut seed, mut refused) = (Cluster::new(10, 125), 11, 0);
    for _ in 0..8000 {
        let at = random(&mut seed, 10);
        let held: usize = cluster.nodes.iter().map(|node| node.held.len()).sum();
        match (held, random(&mut seed, 2)) {
            (0..77, _) | (77..118, 0) => refused += usize::from(cluster.is_refused(at)),
            _ if cluster.nodes[at].held.is_empty() => {}
            _ => cluster.del(at),
        }
    }
    assert!(refused < 40, "{refused} of about 4,000");
}

/// Nodes are replaced one by one; nodes that are empty keep nothing that is wanted.
#[test]
fn nodes_that_are_replaced_one_by_one_leave_their_addresses_to_the_new_ones() {
    let mut cluster = Cluster::new(12, 130);
    (0..120).for_each(|k| assert!(!cluster.is_refused(k % 6)));
    for (old, new) in (0..6).zip(6..12) {
        for _ in 0..20 {
            cluster.del(old);
            assert!(!cluster.is_refused(new), "{old} to {new}");
        }
    }
}

/// A one-address pool moves; a run of which one address is used is given back around it.
#[test]
fn what_is_free_in_a_run_that_is_used_in_part_goes_to_whoever_wants_it() {
    let mut one = Cluster::new(2, 1);
    assert!(!one.is_refused(0));
    one.del(0);
    assert!(!one.is_refused(1));
    let mut cluster = Cluster::new(2, 40);
    (0..20).for_each(|_| assert!(!cluster.is_refused(0)));
    let (first, last) = (*cluster.nodes[0].held.first().unwrap(), *cluster.nodes[0].held.last().unwrap());
    cluster.nodes[0].held = BTreeSet::from([first, last]);
    assert_eq!((0..38).filter(|_| cluster.is_refused(1)).count(), 0);
    assert!(cluster.is_refused(1), "all 40 are used");
}
