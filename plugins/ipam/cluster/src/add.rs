//! ADD: host-local's, inside the node's runs; a run is claimed before where that is needed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use cni_spec::{AddResult, Attachment, CniError, Code};
use host_local::address::Address;
use host_local::conf as local;
use host_local::range::{RangeSet, Span};

use crate::node_view::{OpenView, View};
use crate::protocol::{Key, Record, Run, Want, claims};
use crate::reservations;
use crate::transaction::{LockedStore, Purpose, Work, load_claim};
use crate::view_age::now_ms;
use cluster_keys::Conf;

/// How often ADD begins anew: each time, other calls have used up what was claimed.
const ATTEMPTS_MAX: usize = 16;

/// An ADD in progress.
struct Adding<'a> {
    conf: &'a Conf,
    owner: &'a Attachment,
    /// Whether a reservation is of this ADD: with `reuseAddress` host-local gives what one before has reserved, which is not undone.
    is_new: bool,
}

/// The result of an ADD, the view by which it is the node's, and how many addresses of each set are left in its runs, where that was counted.
pub(crate) struct Given {
    pub(crate) result: AddResult,
    pub(crate) view: View,
    pub(crate) left: Option<Vec<usize>>,
}

/// What a try to reserve came to.
enum Tried {
    /// An address of each set.
    Given(Box<Given>),
    /// A set is full, as host-local says.
    Full(CniError),
    /// The view was replaced meanwhile.
    Moved,
}

/// ADD.
pub(crate) async fn add(conf: &Conf, owner: &Attachment) -> Result<Given, CniError> {
    let is_new = !conf.local.reuse_address || !reservations::holds(conf, owner)?;
    let adding = Adding { conf, owner, is_new };
    if let Some(view) = usable(conf)?
        && let Tried::Given(given) = adding.reserve(view, false).await?
    {
        return Ok(*given);
    }
    adding.claim_and_reserve().await
}

impl Adding<'_> {
    /// Reserves what host-local chooses, if the view is the same after. `yields`: also what cools down.
    async fn reserve(&self, open: OpenView, yields: bool) -> Result<Tried, CniError> {
        let within = match &self.conf.claim {
            Some(claim) => of_claim(self.conf, &open.view, claim)?,
            None => match open.view.within(self.conf) {
                Some(within) => local::Conf { yields: within.yields && yields, ..within },
                None => return Ok(Tried::Moved),
            },
        };
        match host_local::add_and_count(&within, self.owner, open.view.counts(self.conf)).await {
            Ok((result, left)) if open.is_current()? => {
                let left = left.filter(|_| self.conf.claim.is_none());
                Ok(Tried::Given(Box::new(Given { result, view: open.view, left })))
            }
            Ok(_) => {
                tracing::info!("the node's runs changed meanwhile: ADD begins anew");
                self.undo().await?;
                Ok(Tried::Moved)
            }
            Err(full) if self.conf.claim.is_none() && [Code::NO_ADDRESS, Code::TRY_AGAIN].contains(&full.code) => {
                Ok(Tried::Full(full))
            }
            Err(error) => Err(error),
        }
    }

    /// Releases what this ADD has reserved.
    async fn undo(&self) -> Result<(), CniError> {
        let removal = local::Removal { place: self.conf.local.place.clone(), cool_down: Duration::ZERO };
        if self.is_new { host_local::del(&removal, self.owner).await } else { Ok(()) }
    }

    /// Claims what is needed. Meanwhile no other call of the node gives back what this one has claimed.
    async fn claim_and_reserve(&self) -> Result<Given, CniError> {
        let conf = self.conf;
        let store = LockedStore::lock(conf)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut full = None;
            if let Some(view) = usable(conf)? {
                match self.reserve(view, false).await? {
                    Tried::Given(given) => return Ok(*given),
                    Tried::Full(error) => full = Some(error),
                    Tried::Moved => continue,
                }
            }
            let view = View::read(conf.folder())?.unwrap_or_default();
            let set = match (&full, view.within(conf)) {
                (Some(_), Some(within)) => host_local::find_full(&local::Conf { yields: false, ..within })?,
                _ => None,
            };
            let claimed = match view.check_away() {
                Ok(()) => store.transact(Purpose::Plain, async |work| need(work, set, &view).await).await,
                Err(away) => Err(away),
            };
            let Err(none) = claimed else { continue };
            if full.is_some()
                && conf.local.yields
                && let Some(open) = usable(conf)?
                && let Tried::Given(given) = self.reserve(open, true).await?
            {
                return Ok(*given);
            }
            return Err(self.refusal(&store, none, full, &view).await);
        }
        Err(CniError::new(Code::TRY_AGAIN, "other calls took each address that this ADD found"))
    }

    /// The error of an ADD that got nothing. If the range is used up, or the requested address another's, other nodes are told.
    async fn refusal(&self, store: &LockedStore<'_>, none: CniError, full: Option<CniError>, view: &View) -> CniError {
        match none.code {
            Code::NO_ADDRESS | Code::EXISTS => {
                let firsts = self.conf.local.sets.iter().filter_map(|set| Some(set.ranges().first()?.first.ip()));
                let sets: BTreeSet<IpAddr> = match none.code {
                    Code::NO_ADDRESS => firsts.collect(),
                    _ => wanted(self.conf).map(|address| address.ip()).collect(),
                };
                if sets.is_empty() {
                    return none;
                }
                let told = store.transact(Purpose::Renew, async |work| {
                    let want = Want { sets: sets.clone(), at: work.me.now };
                    work.draft.set(&Key::Want(work.me.name.clone()), Some(Record::Want(want)));
                    work.view.wants_at_ms = now_ms()?;
                    Ok(())
                });
                if let Err(error) = told.await {
                    tracing::warn!(%error, "other nodes are not told that an address is wanted");
                }
                // What cools down here is the nearest.
                full.filter(|full| full.code == Code::TRY_AGAIN && !self.conf.local.yields).unwrap_or(none)
            }
            Code::TRY_AGAIN => {
                let rooms = (0..self.conf.local.sets.len()).map(|index| reservations::room(self.conf, index, view));
                let (held, all) = rooms.max_by_key(|(held, _)| *held).unwrap_or_default();
                none.detail(format!("Of this node's runs {held} of {all} addresses are reserved."))
            }
            _ => none,
        }
    }
}

/// host-local's keys for a container with a claim: the claim's addresses are the requested ones.
fn of_claim(conf: &Conf, view: &View, claim: &str) -> Result<local::Conf, CniError> {
    let own = view.memory.claims.get(claim).into_iter().flatten().copied().map(Address::from);
    let requested: Vec<Address> = own.filter(|address| conf.is_in_a_set(*address)).collect();
    match wanted(conf).find(|address| !requested.contains(address)) {
        None => Ok(local::Conf { requested, ..conf.local.clone() }),
        Some(other) => {
            let own = requested.iter().map(Address::to_string).collect::<Vec<_>>().join(", ");
            let text = format!("requested IP address {other} is not that of claim {claim}, which has {own}");
            Err(CniError::new(Code::EXISTS, text)
                .detail("Request none, or release the claim first: cnitool cluster release NETWORK CLAIM."))
        }
    }
}

/// The view, if host-local can work with it.
fn usable(conf: &Conf) -> Result<Option<OpenView>, CniError> {
    let Some(open) = View::open(conf.folder())? else { return Ok(None) };
    let view = &open.view;
    let has_all = match &conf.claim {
        Some(claim) => {
            let own = view.memory.claims.get(claim);
            let has = |set: &RangeSet| own.into_iter().flatten().any(|ip| set.find((*ip).into()).is_some());
            conf.local.sets.iter().all(has)
        }
        None => {
            let has_runs = conf.local.sets.iter().all(|set| !view.owned(set).is_empty());
            has_runs && wanted(conf).all(|address| view.owns(address))
        }
    };
    // A node with another name is refused with a reason.
    let is_named = conf.node.as_ref().is_none_or(|name| *name == view.node);
    Ok((has_all && is_named && view.is_trusted_now()?).then_some(open))
}

/// The requested addresses that a run must have: host-local refuses the others.
fn wanted(conf: &Conf) -> impl Iterator<Item = Address> {
    let asked = conf.local.requested.iter().copied();
    asked.filter(|address| conf.is_in_a_set(*address) && conf.local.barred.end(*address).is_none())
}

/// What the ADD lacks: the claim, the requested addresses, a run of each set without one, and of the set that was found full.
async fn need(work: &mut Work<'_>, full: Option<usize>, before: &View) -> Result<(), CniError> {
    let (conf, name) = (work.conf, work.me.name.clone());
    if let Some(claim) = &conf.claim {
        return hold(work, claim, before).await;
    }
    let asked: Vec<Address> = wanted(conf).collect();
    work.load_shards(asked.iter().copied()).await?;
    for address in asked {
        match work.draft.take(Span { first: address, last: address }, &name) {
            Err(run) if run.owner != name => return Err(taken(address, &run)),
            _ => {}
        }
    }
    for (index, set) in conf.local.sets.iter().enumerate() {
        let spans = Conf::spans(set);
        let own = |draft: &crate::protocol::Draft| {
            let shards = draft.bases().map(|base| draft.shard(base));
            shards.flat_map(|shard| shard.of(&name).collect::<Vec<_>>()).any(|run| overlaps(set, run))
        };
        let has_run = work.view.memory.spans().any(|run| overlaps(set, run)) || own(&work.draft);
        let room = work.find_room(&spans, conf.claim_size).await?;
        if has_run && (full != Some(index) || work.has_gained) {
            continue;
        }
        let span = room.ok_or_else(|| reservations::exhausted(conf, index, before))?;
        tracing::info!(%span, "claiming a run");
        work.draft.take(span, &name).map_err(|run| taken(span.first, &run))?;
    }
    work.draft.set(&Key::Want(name), None);
    work.view.wants_at_ms = 0;
    Ok(())
}

fn overlaps(set: &RangeSet, run: Span) -> bool {
    set.ranges()
        .iter()
        .any(|range| range.first.family == run.first.family && range.first <= run.last && run.first <= range.last)
}

fn taken(address: impl std::fmt::Display, run: &Run) -> CniError {
    let owner = crate::protocol::owner(&run.owner);
    CniError::new(Code::EXISTS, format!("requested IP address {address} belongs to {owner}")).detail(format!(
        "It is in the run {}. A node gives it back at its next call, if no container there has it: try again.",
        run.span
    ))
}

/// The node holds a claim, which gets an address of each range set where it has none: the requested one, or a free one.
async fn hold(work: &mut Work<'_>, claim: &str, before: &View) -> Result<(), CniError> {
    let (conf, name) = (work.conf, work.me.name.clone());
    load_claim(work, claim).await?;
    let own = claims::hold(&mut work.draft, &name, claim, conf.claim_moves).map_err(|refusal| match refusal {
        claims::Refusal::Leaving => CniError::new(Code::TRY_AGAIN, format!("an operator releases claim {claim}"))
            .detail(format!("Try again; if that was interrupted: cnitool cluster release {} {claim}.", conf.network)),
        claims::Refusal::Held(holders) => {
            let nodes = holders.into_iter().collect::<Vec<_>>().join(" and ");
            CniError::new(Code::EXISTS, format!("claim {claim} is held by {nodes}")).detail(
                "A container there has its address. DEL of that comes first; of a node that is lost, cnitool cluster forget. For a container that moves \
                 while both live, two nodes hold a claim if the second asks with claimMoves.",
            )
        }
    })?;
    for (index, set) in conf.local.sets.iter().enumerate() {
        if own.iter().any(|ip| set.find((*ip).into()).is_some()) {
            continue;
        }
        let requested = wanted(conf).find(|address| set.find(*address).is_some());
        let address = match requested {
            Some(address) => address,
            None => {
                let room = work.find_room(&Conf::spans(set), 1).await?;
                room.ok_or_else(|| reservations::exhausted(conf, index, before))?.first
            }
        };
        work.load_shards([address]).await?;
        claims::grant(&mut work.draft, claim, address).map_err(|run| taken(address, &run))?;
    }
    Ok(())
}
