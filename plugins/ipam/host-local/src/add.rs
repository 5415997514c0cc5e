//! ADD: one address of each range set, or none at all.

use std::time::Duration;

use cni_spec::{AddResult, Attachment, CniError, Code, Dns, Ip};
use ipnetwork::IpNetwork;

use crate::address::Address;
use crate::conf::{Conf, Reclaim};
use crate::fault::fault;
use crate::range::{RangeSet, Span};
use crate::resolv;
use crate::source::Shelf;
use crate::store::released::{self, Released};
use crate::store::{Reserved, Store, content_of};

/// ADD: an address of each range set for `owner`, or none at all.
///
/// # Errors
/// Why a set has no address to give (code 105; code 11 while some cool down), or what is wrong with the store. Nothing is
/// reserved then.
pub async fn add(conf: &Conf, owner: &Attachment) -> Result<AddResult, CniError> {
    let dns = dns(conf)?;
    let mut store = Store::create(&conf.place).await.map_err(|error| fault(&error))?;
    let ips = begin(&mut store, conf, owner).and_then(Leasing::all);
    store.finish();
    Ok(result(conf, ips?, dns))
}

/// The name service of the result.
///
/// # Errors
/// The file that `resolvConf` names cannot be read.
pub(crate) fn dns(conf: &Conf) -> Result<Dns, CniError> {
    conf.resolv_conf.as_deref().map_or_else(|| Ok(Dns::default()), resolv::read)
}

pub(crate) fn result(conf: &Conf, ips: Vec<Ip>, dns: Dns) -> AddResult {
    AddResult { ips, routes: conf.routes.clone(), dns, ..AddResult::default() }
}

fn begin<'a>(store: &'a mut Store, conf: &'a Conf, owner: &'a Attachment) -> Result<Leasing<'a, Store>, CniError> {
    if conf.reclaim == Reclaim::Always {
        let kept = conf.reuse_address.then_some(owner);
        store.reclaim_earlier_boots(kept).map_err(|error| fault(&error))?;
    }
    let held = store.owned_by(owner).map_err(|error| fault(&error))?;
    let cooling = match conf.cool_down {
        Duration::ZERO => Vec::new(),
        cool_down => released::read(store.notes(), cool_down),
    };
    Ok(Leasing { shelf: store, conf, owner, held, cooling, made: Vec::new() })
}

fn ip(address: Address, set: &RangeSet) -> Result<Ip, CniError> {
    let outside = || CniError::new(Code::INTERNAL, format!("address {address} is in no range of its set"));
    let range = set.find(address).ok_or_else(outside)?;
    let network = IpNetwork::new(address.ip(), range.subnet.prefix()).map_err(|_bad_prefix| outside())?;
    Ok(Ip { interface: None, address: network, gateway: Some(range.gateway.ip()) })
}

/// The leases of one ADD in progress.
pub(crate) struct Leasing<'a, S> {
    pub(crate) shelf: &'a mut S,
    pub(crate) conf: &'a Conf,
    pub(crate) owner: &'a Attachment,
    /// The addresses that the owner held before.
    pub(crate) held: Vec<Address>,
    /// Recently released addresses, with the time that they must still wait.
    pub(crate) cooling: Vec<(Released, Duration)>,
    /// The addresses that this ADD has reserved.
    pub(crate) made: Vec<Address>,
}

impl<S: Shelf> Leasing<'_, S> {
    /// An address of each set; after a failure this ADD has nothing reserved.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn all(mut self) -> Result<Vec<Ip>, CniError> {
        self.each().map_err(|error| self.undo(error))
    }

    fn each(&mut self) -> Result<Vec<Ip>, CniError> {
        let mut requested = self.conf.requested.clone();
        let mut leased = Vec::new();
        for (index, set) in self.conf.sets.iter().enumerate() {
            let wanted = requested.iter().find(|address| set.find(**address).is_some()).copied();
            requested.retain(|address| Some(*address) != wanted);
            let address = self.one(index, set, wanted).map_err(|error| {
                let msg = format!("failed to allocate for range {index}: {}", error.msg);
                CniError { msg, ..error }
            })?;
            leased.push(ip(address, set)?);
        }
        if requested.is_empty() {
            return Ok(leased);
        }
        let texts: Vec<String> = requested.iter().map(Address::to_string).collect();
        Err(CniError::new(Code::INVALID_CONFIG, format!("failed to allocate all requested IPs: {}", texts.join(" ")))
            .detail("No range set has them, or a set has more than the one that a container gets of it."))
    }

    /// Releases what was reserved, newest first.
    fn undo(&mut self, error: CniError) -> CniError {
        let content = content_of(self.owner);
        let mut error = error;
        while let Some(address) = self.made.pop() {
            error = match self.shelf.release(address, &content) {
                Ok(()) => error.detail(format!("Undone: {address} released.")),
                Err(left) => error.detail(format!("Left behind for DEL: {left}.")),
            };
        }
        error
    }

    fn one(&mut self, index: usize, set: &RangeSet, wanted: Option<Address>) -> Result<Address, CniError> {
        if let Some(held) = self.held.iter().copied().find(|held| set.find(*held).is_some()) {
            if self.conf.reuse_address && wanted.is_none_or(|wanted| wanted == held) {
                return Ok(held);
            }
            let id = &self.owner.container_id;
            let text = format!("{held} has been allocated to {id}, duplicate allocation is not allowed");
            return Err(CniError::new(Code::EXISTS, text)
                .detail(format!("Its interface {} holds it. DEL comes before the next ADD.", self.owner.ifname)));
        }
        match wanted {
            Some(wanted) => self.requested(index, set, wanted),
            None => self.any(index, set),
        }
    }

    fn requested(&mut self, index: usize, set: &RangeSet, wanted: Address) -> Result<Address, CniError> {
        if self.conf.barred.is_gateway(wanted) {
            return Err(CniError::new(Code::INVALID_CONFIG, format!("requested ip {wanted} is subnet's gateway")));
        }
        if self.conf.barred.end(wanted).is_some() {
            return Err(CniError::new(Code::INVALID_CONFIG, format!("requested ip {wanted} is excluded"))
                .detail("Key ipam.exclude has it."));
        }
        let text = format!("requested IP address {wanted} is not available in range set {set}");
        if let Some(rest) = self.waits(wanted).filter(|_| !self.conf.yields) {
            return Err(
                CniError::new(Code::TRY_AGAIN, text).detail(format!("It cools down for {} s more.", seconds(rest)))
            );
        }
        match self.reserve(index, wanted)? {
            Reserved::Done => Ok(wanted),
            Reserved::Taken => Err(CniError::new(Code::EXISTS, text).detail(format!("File {wanted} names its owner."))),
        }
    }

    fn any(&mut self, index: usize, set: &RangeSet) -> Result<Address, CniError> {
        if let Some(former) = self.former(set)
            && self.reserve(index, former)? == Reserved::Done
        {
            return Ok(former);
        }
        let spans = set.order(self.shelf.last_reserved(index));
        loop {
            for span in &spans {
                if let Some(address) = self.any_of(index, *span)? {
                    return Ok(address);
                }
            }
            let kept = self.conf.reuse_address.then_some(self.owner);
            let reclaimed = match self.conf.reclaim {
                Reclaim::Never => 0,
                Reclaim::Exhausted | Reclaim::Always => {
                    self.shelf.reclaim_earlier_boots(kept).map_err(|error| fault(&error))?
                }
            };
            if reclaimed == 0 {
                let given = self.longest_released(index, set)?;
                if self.conf.yields {
                    // Those that are left are held again.
                    self.cooling.clear();
                }
                return given.ok_or_else(|| self.exhausted(index, set));
            }
        }
    }

    /// The address of the set that cools down for the longest time, with `releaseCooldownSeconds`.
    fn longest_released(&mut self, index: usize, set: &RangeSet) -> Result<Option<Address>, CniError> {
        let may_be_given = |address: &Address| set.find(*address).is_some() && self.conf.barred.end(*address).is_none();
        let all = self.cooling.iter().map(|(released, _)| released.address);
        let candidates: Vec<Address> = all.filter(may_be_given).filter(|_| self.conf.yields).collect();
        for (at, address) in candidates.iter().enumerate() {
            // The list has a line for each release.
            let is_later = candidates.iter().skip(at + 1).any(|later| later == address);
            if !is_later && self.reserve(index, *address)? == Reserved::Done {
                return Ok(Some(*address));
            }
        }
        Ok(None)
    }

    fn any_of(&mut self, index: usize, span: Span) -> Result<Option<Address>, CniError> {
        let waiting = |address: Address| self.cooling.iter().any(|(released, _)| released.address == address);
        let mut free =
            next_free(|span| self.shelf.next_free(span), self.conf, span, waiting).map_err(|error| fault(&error))?;
        while let Some(address) = free {
            if self.reserve(index, address)? == Reserved::Done {
                return Ok(Some(address));
            }
            // Released without the lock; the store has recorded it.
            let waiting = |address: Address| self.cooling.iter().any(|(released, _)| released.address == address);
            let rest = Span { first: address, ..span };
            free = next_free(|span| self.shelf.next_free(span), self.conf, rest, waiting)
                .map_err(|error| fault(&error))?;
        }
        Ok(None)
    }

    /// The address that this very owner released and that is still cooling down.
    fn former(&self, set: &RangeSet) -> Option<Address> {
        let own = |released: &Released| self.conf.reuse_address && released.was_of(self.owner);
        let mut former =
            self.cooling.iter().filter(|(released, _)| own(released)).map(|(released, _)| released.address);
        former.find(|address| set.find(*address).is_some() && self.conf.barred.end(*address).is_none())
    }

    /// How long `address` must wait before this owner may have it.
    fn waits(&self, address: Address) -> Option<Duration> {
        let mut waiting = self.cooling.iter().filter(|(released, _)| released.address == address);
        let own = |released: &Released| self.conf.reuse_address && released.was_of(self.owner);
        waiting.find(|(released, _)| !own(released)).map(|(_, rest)| *rest)
    }

    fn reserve(&mut self, index: usize, address: Address) -> Result<Reserved, CniError> {
        let reserved = self.shelf.reserve(address, self.owner).map_err(|error| fault(&error))?;
        if reserved == Reserved::Done {
            self.made.push(address);
            self.shelf.set_last_reserved(index, address).map_err(|error| fault(&error))?;
        }
        Ok(reserved)
    }

    fn exhausted(&self, index: usize, set: &RangeSet) -> CniError {
        let text = format!("no IP addresses available in range set: {set}");
        let waiting = self.cooling.iter().filter(|(released, _)| set.find(released.address).is_some());
        match waiting.map(|(_, rest)| *rest).min() {
            Some(rest) => CniError::new(Code::TRY_AGAIN, text).detail(format!(
                "All are reserved but for some that cool down, the first for {} s more.",
                seconds(rest)
            )),
            None => CniError::new(Code::NO_ADDRESS, text).detail(format!(
                "All of set {index} are reserved in {}. Widen the range, run GC, or set reclaimEarlierBoot.",
                self.shelf.folder().display()
            )),
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(rest: Duration) -> u64 {
    rest.as_secs() + u64::from(rest.subsec_nanos() > 0)
}

/// The first address of `span` that is free by `free`, not excluded and not cooling down.
///
/// # Errors
/// The errors of `free`.
pub(crate) fn next_free<E>(
    mut free: impl FnMut(Span) -> Result<Option<Address>, E>,
    conf: &Conf,
    span: Span,
    waiting: impl Fn(Address) -> bool,
) -> Result<Option<Address>, E> {
    let mut rest = Some(span);
    while let Some(span) = rest.filter(|span| span.first <= span.last) {
        let Some(free) = free(span)? else { return Ok(None) };
        let Some(end) = conf.barred.end(free).or_else(|| waiting(free).then_some(free)) else { return Ok(Some(free)) };
        rest = end.next().map(|first| Span { first, ..span });
    }
    Ok(None)
}
