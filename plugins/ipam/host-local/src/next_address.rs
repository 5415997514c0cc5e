//! Which address of a range set ADD gives: the one that its owner has already, the requested one, or the next free one after the
//! address that was reserved last, without those that are excluded or cool down.

use std::time::Duration;

use cni_spec::error::DUPLICATE_ALLOCATION;
use cni_spec::{CniError, Code};

use crate::add::Leasing;
use crate::address::Address;
use crate::conf::{Conf, Reclaim};
use crate::range::{Range, RangeSet, Span};
use crate::store::released::Released;
use crate::store::{Reservations, Reserved};
use crate::store_error;

impl RangeSet {
    /// The order in which addresses are tried: from the one after `last_reserved` round to it again; from the
    /// first range's start if `last_reserved` is missing or in no range of this set.
    pub fn order(&self, last_reserved: Option<Address>) -> Vec<Span> {
        let start = last_reserved
            .and_then(|last| Some((last, self.ranges().iter().position(|range| range.span().contains(last))?)));
        let Some((last, index)) = start else {
            return self.ranges().iter().map(Range::span).collect();
        };
        let (before, from) = self.ranges().split_at(index);
        let Some((own, after)) = from.split_first() else { return Vec::new() };
        let rest = last.next().filter(|_| last < own.last).map(|first| Span { first, last: own.last });
        let others = after.iter().chain(before).map(Range::span);
        rest.into_iter().chain(others).chain([Span { first: own.first, last }]).collect()
    }
}

impl<S: Reservations> Leasing<'_, S> {
    /// The address of one set: the one that the owner holds already and may keep, the requested one, or the next one.
    pub(crate) fn one(&mut self, index: usize, set: &RangeSet, wanted: Option<Address>) -> Result<Address, CniError> {
        if let Some(held) = self.held.iter().copied().find(|held| set.find(*held).is_some()) {
            if self.conf.reuse_address && wanted.is_none_or(|wanted| wanted == held) {
                return Ok(held);
            }
            let id = &self.owner.container_id;
            let text = format!("{held} has been allocated to {id}, {DUPLICATE_ALLOCATION}");
            return Err(CniError::new(Code::EXISTS, text)
                .detail(format!("An ADD of its interface {} has reserved it, and no DEL has released it since: call DEL first, also if that container has ended.", self.owner.ifname)));
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
        let spans = set.order(self.reservations.last_reserved(index));
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
                    self.reservations.reclaim_earlier_boots(kept).map_err(|error| store_error(&error))?
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
        let mut free = next_free(|span| self.reservations.next_free(span), self.conf, span, waiting)
            .map_err(|error| store_error(&error))?;
        while let Some(address) = free {
            if self.reserve(index, address)? == Reserved::Done {
                return Ok(Some(address));
            }
            // Released without the lock; the store has recorded it.
            let waiting = |address: Address| self.cooling.iter().any(|(released, _)| released.address == address);
            let rest = Span { first: address, ..span };
            free = next_free(|span| self.reservations.next_free(span), self.conf, rest, waiting)
                .map_err(|error| store_error(&error))?;
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
                self.reservations.folder().display()
            )),
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(rest: Duration) -> u64 {
    rest.as_secs() + u64::from(rest.subsec_nanos() > 0)
}

/// The first address of `span` that is free by `free`, not excluded and not cooling down.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Family;
    use ipnetwork::IpNetwork;

    /// The reference's walk, a step at a time: one address forward, to the next range at the end, until the first
    /// address is reached again.
    fn walk(set: &RangeSet, last: Option<Address>) -> Vec<Address> {
        let ranges = set.ranges();
        let known = last.and_then(|last| Some((ranges.iter().position(|range| range.span().contains(last))?, last)));
        let step = |(index, address): (usize, Address)| match address == ranges[index].last {
            true => ((index + 1) % ranges.len(), ranges[(index + 1) % ranges.len()].first),
            false => (index, address.next().unwrap()),
        };
        let start = known.map_or((0, ranges[0].first), step);
        let steps = std::iter::successors(Some(start), |place| Some(step(*place)).filter(|place| place.1 != start.1));
        steps.map(|(_, address)| address).collect()
    }

    proptest::proptest! {
        #[test]
        fn the_order_is_that_of_a_walk(
            bounds in proptest::collection::vec((0u32..14, 0u32..14), 1..4),
            last in proptest::option::of((0u32..4, 0u32..16)),
        ) {
            let address = |range: u32, host: u32| Address { family: Family::V4, bits: (0x0a00_0000 + range * 16 + host).into() };
            let range = |(number, (one, other)): (u32, (u32, u32))| Range {
                subnet: IpNetwork::new(address(number, 0).ip(), 28).unwrap(),
                first: address(number, one.min(other)),
                last: address(number, one.max(other)),
                gateway: address(number, 1),
            };
            let set = RangeSet::new((0..).zip(bounds).map(range).collect()).unwrap();
            let last = last.map(|(range, host)| address(range, host));
            let each = |span: &Span| std::iter::successors(Some(span.first), |at| at.next()).take_while(|at| *at <= span.last).collect::<Vec<_>>();
            let order: Vec<Address> = set.order(last).iter().flat_map(each).collect();
            proptest::prop_assert_eq!(order, walk(&set, last));
        }
    }
}
