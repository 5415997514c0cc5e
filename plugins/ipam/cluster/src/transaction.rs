//! Transactions with the store, one at a time on a node, and the view that they leave. PROTOCOL.md has the order of the steps.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cni_spec::{CniError, Code};
use host_local::address::Address;
use host_local::conf::Barred;
use host_local::inventory::Held;
use host_local::range::Span;
use netops::lock::Lock;

use crate::node_view::{self, View};
use crate::protocol::{
    self, CLAIMS, Draft, FORM, Key, Me, Memory, NODES, Network, Node, RUNS, Record, Refusal, Room, Shards, WHOLE,
    base_of, size,
};
use crate::reservations::held;
use crate::store::{self, AnyStore, Store, Written};
use crate::this_node::{self, identify, refused};
use crate::view_age;
use cluster_keys::Conf;

/// How long a transaction begins anew because another node wrote first; one that can wait, how often.
const ATTEMPTS_TIME: Duration = Duration::from_secs(5);
const RENEWALS_MAX: u32 = 4;
/// The first pause before that, and the longest; each is drawn anew below its bound, which doubles.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// How long a call waits for another one of this node that speaks with the store, beside the store's timeout.
const PATIENCE: Duration = Duration::from_secs(15);
/// How many shards a node looks through for a whole run before it is content with less.
const SHARDS_MAX: usize = 128;

/// The store, locked for the other calls of this node and network.
pub struct LockedStore<'a> {
    conf: &'a Conf,
    store: AnyStore,
    _lock: Lock,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Runs and claims.
    Plain,
    /// A look into the store, which a closed one does not refuse.
    Renew,
    /// What the folder holds of an earlier plugin.
    Adopt,
    /// To write back, after the store was restored.
    Repair,
    /// To give all back.
    Leave,
}

/// A transaction in the making.
pub(crate) struct Work<'a> {
    pub(crate) conf: &'a Conf,
    pub(crate) store: &'a AnyStore,
    pub(crate) me: Me,
    pub(crate) view: View,
    pub(crate) draft: Draft,
    /// Host-local's lock, until the view is without the addresses that leave.
    pub(crate) guard: Option<Lock>,
    /// Whether an earlier write without an answer has brought more than the view had.
    pub(crate) has_gained: bool,
    /// The network's record, which is in the view when the store has confirmed the node's.
    network: Network,
    /// Whether this machine may not write under its name, so the view is trusted no longer.
    is_refused: bool,
    /// Whether the node has no record: it is new, or was forgotten.
    is_absent: bool,
    /// Whether the node has ended with its earlier boot, and begins without what it had.
    is_anew: bool,
    /// Whether the room that is left was found out.
    has_looked: bool,
    /// The cards that were compared with those of all nodes, and are to be in the view.
    compared: Option<BTreeSet<String>>,
}

impl<'a> LockedStore<'a> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// Code 11: another call had it all the time. Codes of files.
    pub fn lock(conf: &'a Conf) -> Result<Self, CniError> {
        View::make_folder(conf.folder())?;
        let lock = Lock::take(&View::lock(conf.folder()), 0o600, conf.timeout + PATIENCE);
        Ok(Self { conf, store: store::open(conf), _lock: lock.map_err(|error| node_view::fault(&error))? })
    }

    /// Reads the node's records, applies `change`, writes what is new, the node's own record last, and fills the view.
    ///
    /// # Errors
    /// Why this machine gets nothing under its name; the error of `change`; code 11: the store is away.
    pub(crate) async fn transact(
        &self,
        purpose: Purpose,
        change: impl AsyncFn(&mut Work<'_>) -> Result<(), CniError>,
    ) -> Result<View, CniError> {
        let mut done = self.try_to(purpose, change).await;
        if let Ok(view) = &done
            && view.standing.is_recorded
            && !view.is_compared
            && purpose != Purpose::Leave
        {
            match self.try_to(Purpose::Renew, async |work| work.compare_cards().await).await {
                Ok(view) => done = Ok(view),
                Err(error) => tracing::info!(%error, "cards are compared with those of other nodes later"),
            }
        }
        // A folder that is away says so at once; it may be one that a new node's operator makes next.
        let is_noted = || self.store.folder().is_none() || View::path(self.conf.folder()).exists();
        if let (Err(error), true) = (&done, self.store.is_away() && is_noted()) {
            View::note_away(self.conf, error)?;
        }
        done
    }

    async fn try_to(
        &self,
        purpose: Purpose,
        change: impl AsyncFn(&mut Work<'_>) -> Result<(), CniError>,
    ) -> Result<View, CniError> {
        let folder = self.conf.folder();
        let (begin, mut attempt, mut is_unanswered) = (Instant::now(), 0, false);
        while begin.elapsed() < ATTEMPTS_TIME && (purpose != Purpose::Renew || attempt < RENEWALS_MAX) {
            if attempt > 0 {
                pause(attempt).await?;
            }
            attempt += 1;
            let read_at_ms = view_age::now_ms()?;
            let mut work = Work::begin(self.conf, &self.store).await?;
            let before = work.view.clone();
            let admitted = work.admit(purpose).await;
            if work.is_refused && work.me.is_recorded && work.view.read_at_ms.take().is_some() {
                work.view.write(folder)?;
            }
            admitted?;
            if matches!(purpose, Purpose::Plain | Purpose::Renew) {
                work.come_back().await?;
            }
            change(&mut work).await?;
            let writes = work.prepare(purpose, &before.memory)?;
            // The store may get it although no answer comes, and `forget` waits as long as the store says.
            work.view.standing.trust_seconds = work.view.standing.trust_seconds.min(work.me.trust_seconds);
            let is_renewal = matches!(writes.as_slice(), [only] if only.key == Key::Node(work.me.name.clone()));
            if !is_renewal
                || !work.view.standing.is_recorded
                || (&work.view.memory, &work.view.compared) != (&before.memory, &before.compared)
                || work.view.standing.trust_seconds != before.standing.trust_seconds
            {
                work.view.write(folder)?;
            }
            drop(work.guard.take());
            match self.store.write(&writes).await {
                Ok(Written::Done) => {
                    work.fill(read_at_ms, writes.len() > 1)?;
                    if purpose == Purpose::Leave && work.draft.node(&work.me.name).is_none() {
                        View::remove(folder)?;
                    } else {
                        work.view.write(folder)?;
                    }
                    return Ok(work.view);
                }
                Ok(Written::Nothing) => {
                    // Other nodes wrote first. Nothing of this is on its way.
                    if !is_unanswered {
                        work.view.memory = before.memory;
                        work.view.write(folder)?;
                    }
                }
                Ok(Written::InPart) => {}
                Err(error) if error.code == Code::TRY_AGAIN && !is_unanswered => is_unanswered = true,
                Err(error) => return Err(error),
            }
        }
        Err(CniError::new(Code::TRY_AGAIN, format!("other nodes wrote first, {attempt} times")))
    }
}

impl<'a> Work<'a> {
    /// Reads the network's record and the node's.
    pub(crate) async fn begin(conf: &'a Conf, store: &'a AnyStore) -> Result<Self, CniError> {
        let (me, view) = identify(conf)?;
        let mut work = Self {
            conf,
            store,
            me,
            draft: Draft::default(),
            guard: None,
            has_gained: false,
            network: view.network.clone(),
            view,
            is_refused: false,
            is_absent: false,
            is_anew: false,
            has_looked: false,
            compared: None,
        };
        let name = work.me.name.clone();
        work.load([Key::Network, Key::Want(name.clone()), Key::Cards, Key::Node(name.clone())]).await?;
        let is_certain = |node: &Node| {
            (&node.boot, &node.macs) == (&work.me.boot, &work.me.macs)
                || protocol::is_proven(node, &work.me, &work.view.compared, &work.draft.cards())
        };
        if work.draft.node(&name).is_some_and(|node| !is_certain(node)) {
            let all = work.store.list(NODES).await?;
            work.me.shared = protocol::shared(all.iter().map(|(key, _, record)| (key, record)), &name);
        }
        Ok(work)
    }

    /// Compares the cards of the node's record with those of all others.
    async fn compare_cards(&mut self) -> Result<(), CniError> {
        let all = self.store.list(NODES).await?;
        let all = all.iter().map(|(key, _, record)| (key, record));
        self.compared = Some(protocol::compare(&mut self.draft, &self.me.name, all));
        Ok(())
    }

    /// Reads records that were not read yet.
    pub(crate) async fn load(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<(), CniError> {
        let new: BTreeSet<Key> = keys.into_iter().filter(|key| !self.draft.has(key)).collect();
        let new: Vec<Key> = new.into_iter().collect();
        if new.is_empty() {
            return Ok(());
        }
        let found = self.store.read(&new).await?;
        for (key, (version, record)) in new.into_iter().zip(found) {
            self.draft.load(key, version, record);
        }
        Ok(())
    }

    /// Reads all records of a kind.
    pub(crate) async fn load_all(&mut self, prefix: &str) -> Result<(), CniError> {
        for (key, version, record) in self.store.list(prefix).await? {
            self.draft.load(key, version, Some(record));
        }
        Ok(())
    }

    /// Reads the shards of addresses.
    pub(crate) async fn load_shards(&mut self, addresses: impl IntoIterator<Item = Address>) -> Result<(), CniError> {
        self.load(addresses.into_iter().map(|address| Key::Runs(base_of(address)))).await
    }

    /// The draft with this machine in it; what a write without an answer left is read, and is written anew.
    pub(crate) async fn admit(&mut self, purpose: Purpose) -> Result<(), CniError> {
        let admitted = self.enter(purpose);
        self.is_refused = admitted.is_err();
        admitted?;
        // Meanwhile the node gives what it has.
        if let (Some(closed), Purpose::Plain) =
            (self.draft.network().and_then(|network| network.closed.as_ref()), purpose)
        {
            return Err(this_node::closed(self.conf, closed));
        }
        let pending: Vec<Key> = self.view.memory.pending.iter().filter_map(|key| Key::parse(key)).collect();
        self.load(pending.clone()).await?;
        let of_claims =
            pending.iter().filter_map(|key| if let Key::Claim(claim) = key { self.draft.claim(claim) } else { None });
        let of_claims: Vec<Address> = of_claims.flat_map(|claim| &claim.addresses).map(|ip| (*ip).into()).collect();
        self.load_shards(of_claims).await?;
        if self.is_anew {
            self.load_all(RUNS).await?;
            self.load_all(CLAIMS).await?;
            protocol::erase(&mut self.draft, &self.me.name);
        }
        pending.iter().for_each(|key| self.draft.force(key));
        if !pending.is_empty() && purpose != Purpose::Repair {
            let before = self.view.memory.clone();
            self.draft.fill(&mut self.view.memory, &self.me.name);
            self.has_gained = before.spans().map(count).sum::<u128>() < self.view.memory.spans().map(count).sum();
        }
        Ok(())
    }

    /// Whether the machine may write under its name, and to this store.
    fn enter(&mut self, purpose: Purpose) -> Result<(), CniError> {
        let (name, is_repair) = (self.me.name.clone(), purpose == Purpose::Repair);
        let sharing =
            self.me.shared.iter().filter(|(mac, _)| self.me.macs.contains(*mac)).map(|(_, node)| node.clone());
        let sharing: BTreeSet<String> = sharing.collect();
        let refuse = |refusal| refused(self.conf, &name, refusal, &sharing);
        let network = match self.draft.network() {
            Some(network) if network.form == FORM => network.clone(),
            Some(network) => return Err(other_form(network.form)),
            None if self.store.folder().is_some() => return Err(uninitialised(self.conf)),
            None if self.view.standing.is_recorded && !is_repair => return Err(refuse(Refusal::Restored)),
            None => {
                let network = Network { form: FORM, id: this_node::random()?, ..Network::default() };
                self.draft.set(&Key::Network, Some(Record::Network(network.clone())));
                network
            }
        };
        let recorded = self.draft.node(&name).cloned();
        let own = &self.view.network;
        let is_forgotten = recorded.is_none() && self.view.standing.is_recorded;
        if !is_repair && self.view.standing.is_recorded {
            // A node that is not recorded was forgotten, if the store has counted that; or the store was there before it.
            if network.id != own.id || is_forgotten && network.forgotten <= own.forgotten {
                return Err(refuse(Refusal::Restored));
            }
            if let Some(recorded) = &recorded {
                protocol::enter(Some(recorded), &self.me).map_err(refuse)?;
                protocol::recall(recorded, &self.view.memory).map_err(refuse)?;
            }
        }
        let mut node = protocol::enter(recorded.as_ref(), &self.me).map_err(refuse)?;
        if is_repair {
            // Not the store went back, but the folder: a repair would free what the node has claimed since.
            let is_newer = |node: &Node| protocol::recall(node, &self.view.memory) == Err(Refusal::OtherFolder);
            if network.id == own.id && recorded.as_ref().is_some_and(is_newer) {
                return Err(refuse(Refusal::OtherFolder));
            }
            node.changes = node.changes.max(self.view.memory.changes);
        }
        self.is_absent = recorded.is_none();
        if self.is_absent || is_repair {
            // Others that have compared theirs since did not see this one's.
            self.view.compared.clear();
        }
        self.is_anew = recorded.is_some_and(|recorded| recorded.store_id != node.store_id);
        self.view.memory.changes = node.changes;
        self.draft.set(&Key::Node(name), Some(Record::Node(node)));
        self.network = Network { closed: None, ..network };
        Ok(())
    }

    /// What a node without a record holds: after it was forgotten, its own again if no other has it; before its first claim, nothing that an earlier plugin gave.
    pub(crate) async fn come_back(&mut self) -> Result<(), CniError> {
        if !self.is_absent && self.view.standing.is_recorded {
            return Ok(());
        }
        let held = held(self.conf)?;
        let addresses: Vec<Address> = held.iter().map(|held| held.address.into()).collect();
        if !self.view.standing.is_recorded {
            if held.is_empty() {
                return Ok(());
            }
            let text = format!("this node holds {} addresses that were given without this store", held.len());
            return Err(CniError::new(Code::STATE, text).detail(format!(
                "Other nodes may hold some, too. Before the first ADD run, once: cnitool cluster adopt {0} --begin; on each node: cnitool cluster adopt \
                 {0}; and at last, once: cnitool cluster adopt {0} --end.",
                self.conf.network
            )));
        }
        let memory = std::mem::take(&mut self.view.memory);
        let of_claims = memory.claims.values().flatten().map(|ip| Address::from(*ip));
        self.load(memory.claims.keys().cloned().map(Key::Claim)).await?;
        self.load_shards(addresses.iter().copied().chain(of_claims)).await?;
        let conflicts = protocol::come_back(&mut self.draft, &self.me.name, &memory, &addresses);
        if !conflicts.is_empty() {
            let names = name_conflicts(&held, &conflicts).join(", ");
            tracing::error!("addresses moved while this node was away: {names}; delete these containers");
        }
        Ok(())
    }

    /// Room for a run of at most `most` addresses: in the first shard that has enough for whole runs; where none has, the longest row. `None`: none is left.
    pub(crate) async fn find_room(&mut self, set: &[Span], most: u32) -> Result<Option<Span>, CniError> {
        let most = most.min(WHOLE);
        let (cursor, barred) = (self.view.cursor.map(Address::from), self.conf.local.barred.clone());
        let mut shards = Shards::new(set, &self.me.name, cursor);
        let (mut all, mut read, mut batch) = (Room::default(), 0, 1);
        loop {
            let bases: Vec<Address> = shards.by_ref().take(batch).collect();
            if bases.is_empty() || read >= SHARDS_MAX && all.left > 0 {
                break;
            }
            self.load(bases.iter().copied().map(Key::Runs)).await?;
            for base in &bases {
                let mut room = protocol::room(*base, &self.draft.shard(*base), set, most.max(1).into(), &barred);
                room.nodes.insert(self.me.name.clone());
                let is_ample = size(room.left, room.nodes.len(), most) >= most.into();
                let here = (room.left, room.nodes.len());
                all.add(room.clone());
                if is_ample {
                    self.note_room(here.0, here.1, most);
                    return Ok(self.chosen(&room, most, &barred));
                }
            }
            read += bases.len();
            batch = (batch * 4).min(SHARDS_MAX);
        }
        self.note_room(all.left, all.nodes.len(), most);
        let size = u32::try_from(size(all.left, all.nodes.len(), most).max(1)).unwrap_or(most);
        Ok(self.chosen(&all, size, &barred))
    }

    /// Of several sets the one that has least counts.
    fn note_room(&mut self, left: u128, nodes: usize, most: u32) {
        if !self.has_looked || size(left, nodes, most) < size(self.view.left, self.view.sharers, most) {
            (self.view.left, self.view.sharers, self.has_looked) = (left, nodes, true);
        }
    }

    fn chosen(&mut self, room: &Room, size: u32, barred: &Barred) -> Option<Span> {
        let span = protocol::cut(room.best?.1, size.into(), barred)?;
        self.view.cursor = Some(base_of(span.first).ip());
        Some(span)
    }

    /// The writes, and the view without what leaves.
    fn prepare(&mut self, purpose: Purpose, before: &Memory) -> Result<Vec<protocol::Write>, CniError> {
        let key = Key::Node(self.me.name.clone());
        let changes = self.draft.writes().iter().filter(|write| is_own(&write.key)).count();
        if changes > 0
            && let Some(node) = self.draft.node(&self.me.name).cloned()
        {
            let node = Node { changes: node.changes + 1, ..node };
            self.draft.set(&key, Some(Record::Node(node)));
        }
        self.draft.force(&key);
        let writes = self.draft.writes();
        if purpose != Purpose::Repair {
            self.draft.leave(&mut self.view.memory, &self.me.name);
            protocol::keep(&mut self.view.memory, before);
        }
        let own = writes.iter().map(|write| &write.key).filter(|key| is_own(key));
        self.view.memory.pending.extend(own.map(ToString::to_string));
        Ok(writes)
    }

    /// The view after all was written.
    fn fill(&mut self, read_at_ms: u64, is_changed: bool) -> Result<(), CniError> {
        self.draft.fill(&mut self.view.memory, &self.me.name);
        self.view.memory.pending.clear();
        self.view.network = self.network.clone();
        self.view.memory.changes = self.draft.node(&self.me.name).map_or(0, |node| node.changes);
        (self.view.standing.is_recorded, self.view.is_copy) = (true, false);
        self.view.compared = self.compared.take().unwrap_or(std::mem::take(&mut self.view.compared));
        self.view.is_compared = self.me.macs.is_subset(&self.view.compared);
        (self.view.boot, self.view.standing.trust_seconds) = (self.me.boot.clone(), self.me.trust_seconds);
        (self.view.read_at_ms, self.view.standing.read_at_s) = (Some(read_at_ms), self.me.now);
        (self.view.checked_at_ms, self.view.standing.away_until_ms) = (read_at_ms, 0);
        if is_changed {
            self.view.changed_at_ms = view_age::now_ms()?;
        }
        Ok(())
    }
}

/// Whether a record has runs or claims.
fn is_own(key: &Key) -> bool {
    matches!(key, Key::Runs(_) | Key::Claim(_))
}

fn count(span: Span) -> u128 {
    span.last.bits - span.first.bits + 1
}

fn other_form(form: u32) -> CniError {
    CniError::new(Code::STATE, format!("the store has records of form {form}, and this release writes form {FORM}"))
        .detail("Upgrade this node.")
}

fn uninitialised(conf: &Conf) -> CniError {
    CniError::new(Code::STATE, format!("the store has no records of network {}", conf.network)).detail(format!(
        "If a shared file system is to be there, mount it. If the network is new, run once: cnitool cluster init {}.",
        conf.network
    ))
}

/// A sentence for each address that the node holds and another owner has.
pub(crate) fn name_conflicts(held: &[Held], conflicts: &[(Address, String)]) -> Vec<String> {
    let name = |(address, owner): &(Address, String)| {
        let of = held.iter().find(|held| Address::from(held.address) == *address).and_then(Held::holder);
        let container = of.map_or("an operator".to_owned(), |(container, _)| format!("container {container}"));
        format!("{address} of {container} belongs to {owner}")
    };
    conflicts.iter().map(name).collect()
}

/// Waits for a time below a bound that doubles with each attempt, so that nodes which met once do not meet again.
pub(crate) async fn pause(attempt: u32) -> Result<(), CniError> {
    let bound = PAUSE.saturating_mul(1 << attempt.min(8)).min(PAUSE_MAX);
    let until = Instant::now() + bound.mul_f64(this_node::random_part()?);
    store::event_loop().await;
    tokio::time::sleep_until(until.into()).await;
    Ok(())
}

/// All that a claim's addresses are in: those of its record.
pub(crate) async fn load_claim(work: &mut Work<'_>, claim: &str) -> Result<(), CniError> {
    work.load([Key::Claim(claim.to_owned())]).await?;
    let addresses = work.draft.claim(claim).map(|record| record.addresses.clone()).unwrap_or_default();
    work.load_shards(addresses.into_iter().map(Address::from)).await
}
