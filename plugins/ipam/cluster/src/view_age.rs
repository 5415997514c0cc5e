//! How long a node trusts its view, and how long it does not ask a store that was away or had nothing.

use std::path::Path;
use std::time::Duration;

use cni_spec::CniError;
use netops::boot::{Boot, uptime};

use crate::node_view::{View, fault};

/// How long a store that was away is not asked for what can wait, and one that had nothing not for more.
const QUIET_MS: u64 = 10_000;

impl View {
    /// Whether what was read is trusted now: in this boot, for a bounded time, and only by who has read it.
    pub(crate) fn is_trusted_now(&self) -> Result<bool, CniError> {
        Ok(!self.is_copy
            && self.boot == boot()?
            && self.age()?.is_some_and(|age| age < Duration::from_secs(self.trust_seconds.into())))
    }

    /// The time since the store was read; `None` if that confirmed nothing, or is in the future: this clock is not the one by which it was read.
    ///
    /// # Errors
    /// Code 106: the kernel has no such clock.
    pub fn age(&self) -> Result<Option<Duration>, CniError> {
        let now = now_ms()?;
        Ok(self.read_at_ms.and_then(|read| now.checked_sub(read)).map(Duration::from_millis))
    }

    /// Whether the store may be asked for what can wait.
    pub(crate) fn may_ask(&self) -> Result<bool, CniError> {
        Ok(!is_quiet(self.away_until_ms, now_ms()?))
    }

    /// Whether a run may be claimed ahead.
    pub(crate) fn may_claim_ahead(&self) -> Result<bool, CniError> {
        Ok(!is_quiet(self.quiet_until_ms, now_ms()?))
    }

    /// Notes that the store was away, or had no run to claim ahead.
    pub(crate) fn note_quiet(folder: &Path, is_away: bool) -> Result<(), CniError> {
        let Some(mut view) = Self::read(folder)? else { return Ok(()) };
        let until = if is_away { &mut view.away_until_ms } else { &mut view.quiet_until_ms };
        *until = now_ms()? + QUIET_MS;
        view.write(folder)
    }
}

/// Whether a pause lasts. One that ends later than it could have begun is of an earlier boot.
fn is_quiet(until_ms: u64, now_ms: u64) -> bool {
    until_ms.checked_sub(now_ms).is_some_and(|rest| (1..=QUIET_MS).contains(&rest))
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
    use super::{QUIET_MS, is_quiet};

    #[test]
    fn a_pause_of_an_earlier_boot_is_over() {
        assert!(is_quiet(5_000 + QUIET_MS, 5_000) && is_quiet(5_001, 5_000));
        assert!(!is_quiet(5_000, 5_000) && !is_quiet(4_000, 5_000));
        assert!(!is_quiet(30 * 86_400_000, 5_000), "the machine had been up for a month");
    }
}
