//! How long a node trusts its view, when it looks into the store again, and for how long it does not ask a store that was away.

use std::time::Duration;

use cluster_keys::Conf;
use cni_spec::{CniError, Code};
use netops::boot::{Boot, uptime};

use crate::node_view::{View, fault};
use crate::this_node;

/// How long a store that was away is not asked again.
const AWAY_MS: u64 = 3_000;
/// How long an ADD that was refused may take to come again.
const WANT_MS: u64 = 60_000;
/// The shortest time between two looks into the store that nothing demands.
const LOOK_MS: u64 = 5_000;

impl View {
    /// Whether what was read is trusted now: in this boot, for a bounded time, and only by who has read it.
    pub(crate) fn is_trusted_now(&self) -> Result<bool, CniError> {
        Ok(!self.is_copy
            && self.boot == boot()?
            && self.age()?.is_some_and(|age| age < Duration::from_secs(self.standing.trust_seconds.into())))
    }

    /// The time since the store was read, by the clock that no one sets, or by the time of day if that says more, as after a pause in which the machine's
    /// clock stood still. `None` if that confirmed nothing, or is in the future: this clock is not the one by which it was read.
    ///
    /// # Errors
    /// Code 106: the kernel has no such clock.
    pub fn age(&self) -> Result<Option<Duration>, CniError> {
        let now = now_ms()?;
        let by_day = Duration::from_secs(this_node::now().saturating_sub(self.standing.read_at_s));
        let age = self.read_at_ms.and_then(|read| now.checked_sub(read)).map(Duration::from_millis);
        Ok(age.map(|age| age.max(by_day)))
    }

    /// Whether no ADD came again that was refused a while ago: its want keeps others from claiming ahead.
    pub(crate) fn wants_in_vain(&self) -> Result<bool, CniError> {
        Ok(self.wants_at_ms > 0 && now_ms()?.abs_diff(self.wants_at_ms) > WANT_MS)
    }

    /// Whether the store is known to be away.
    pub(crate) fn is_away(&self) -> Result<bool, CniError> {
        Ok(is_quiet(self.standing.away_until_ms, now_ms()?))
    }

    /// Notes that the store was away just now; the caller has the node's lock.
    pub(crate) fn note_away(conf: &Conf, why: &CniError) -> Result<(), CniError> {
        let (_, mut view) = this_node::identify(conf)?;
        (view.standing.away_why, view.away_details) = (why.msg.clone(), why.details.clone());
        view.standing.away_until_ms = now_ms()? + AWAY_MS;
        view.write(conf.folder())
    }

    /// The error of a store that is known to be away: no call waits for it again so soon.
    pub(crate) fn check_away(&self) -> Result<(), CniError> {
        let why = || CniError::new(Code::TRY_AGAIN, self.standing.away_why.clone()).detail(self.away_details.clone());
        if self.is_away()? { Err(why()) } else { Ok(()) }
    }

    /// Whether the node looks into the store now: a quarter of the trust is over; or, while the node keeps addresses that others may want, as long
    /// has passed since the last look as the node had been without a change then.
    pub(crate) fn is_due(&self, keeps_unused: bool) -> Result<bool, CniError> {
        let now = now_ms()?;
        let quarter = u64::from(self.standing.trust_seconds) * 250;
        let quiet = self.checked_at_ms.saturating_sub(self.changed_at_ms).clamp(LOOK_MS, quarter.max(LOOK_MS));
        let since = now.checked_sub(self.checked_at_ms);
        let is_old = self.age()?.is_none_or(|age| age > Duration::from_millis(quarter));
        Ok(is_old || since.is_none_or(|since| since > if keeps_unused { quiet } else { quarter }))
    }
}

/// Whether a pause lasts. One that ends later than it could have begun is of an earlier boot.
fn is_quiet(until_ms: u64, now_ms: u64) -> bool {
    until_ms.checked_sub(now_ms).is_some_and(|rest| (1..=AWAY_MS).contains(&rest))
}

/// The kernel's number of this boot.
///
/// # Errors
/// Code 106: no `/proc` is mounted.
pub fn boot() -> Result<String, CniError> {
    Boot::read().map(|boot| boot.id).map_err(|error| fault(&error))
}

/// Milliseconds since the machine's start.
pub(crate) fn now_ms() -> Result<u64, CniError> {
    let uptime = uptime().map_err(|error| fault(&error))?;
    Ok(u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{AWAY_MS, is_quiet};

    #[test]
    fn a_pause_of_an_earlier_boot_is_over() {
        assert!(is_quiet(5_000 + AWAY_MS, 5_000) && is_quiet(5_001, 5_000));
        assert!(!is_quiet(5_000, 5_000) && !is_quiet(4_000, 5_000));
        assert!(!is_quiet(30 * 86_400_000, 5_000), "the machine had been up for a month");
    }
}
